"""Executions beside others: throttled replicas of one topic, moves that stand still, refusals."""

import json
from pathlib import Path

import pytest

from spindle.cli.main import run
from spindle.cli.tools.bootstrap import connect
from spindle.client.admin import configs
from spindle.client.admin.cluster import describe_brokers
from spindle.client.admin.partitions import Reassignment
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import ClusterView
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.config.resources import ConfigResourceType
from spindle.operations import drain_run
from spindle.operations.cancellation import ProgressReport, undone_if_cancelled
from spindle.operations.errors import OperationFailed
from spindle.operations.events import ProgressEvent
from spindle.operations.execution import executor as executor_module
from spindle.operations.execution import plan_rounds
from spindle.operations.execution.active_moves import ActiveMoves
from spindle.operations.execution.execution_file import ExecutionFile, open_execution_file
from spindle.operations.execution.executor import RoundExecutor
from spindle.operations.reassignment import Plan, Replica
from spindle.operations.throttles import (
    BETWEEN_BROKERS,
    add_entries,
    remove_entries,
    wanted_entries,
    with_entries,
    without_entries,
)
from spindle.planner.limits import PlanLimits

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def throttled(client: WireClient, topic: str) -> dict[str, str | None]:
    """Return the throttled replicas that are set for a topic."""
    return {
        config.name: config.value
        for config in configs.describe(
            client, ConfigResourceType.TOPIC, topic, (LEADERS, FOLLOWERS)
        )
        if config.source is configs.ReportedSource.DYNAMIC_TOPIC_CONFIG
    }


def test_two_executions_throttle_replicas_of_one_topic(bootstrap: str) -> None:
    assert run(("topic", "create", "shared", "-p", "2", "-r", "1")) == 0
    first, second = (TopicPartition("shared", number) for number in range(2))
    current = {first: (1,), second: (1,)}
    with connect(bootstrap, {}) as client:
        one = wanted_entries(client, Plan({first: (2,), second: (1,)}), current)
        other = wanted_entries(client, Plan({second: (3,)}), current)
        assert one == {"shared": {LEADERS: ["0:1"], FOLLOWERS: ["0:2"]}}
        add_entries(client, {**one, "deleted": {LEADERS: ["0:1"]}})
        add_entries(client, other)
        assert throttled(client, "shared") == {LEADERS: "0:1,1:1", FOLLOWERS: "0:2,1:3"}
        remove_entries(client, {**one, "deleted": {LEADERS: ["0:1"]}})
        assert throttled(client, "shared") == {LEADERS: "1:1", FOLLOWERS: "1:3"}
        remove_entries(client, other)
        assert throttled(client, "shared") == {}
        configs.alter(client, ConfigResourceType.TOPIC, "shared", {LEADERS: "*"}, ())
        assert wanted_entries(client, Plan({first: (2,)}), current) == {
            "shared": {FOLLOWERS: ["0:2"]}
        }
    both = {"shared": {LEADERS: ["0:1", "1:1"], FOLLOWERS: ["0:2", "1:3"]}}
    assert with_entries(one, other) == both
    assert without_entries(both, one) == other
    assert without_entries(one, both) == {"shared": {}}


def stand_still(monkeypatch: pytest.MonkeyPatch, found: ActiveMoves) -> None:
    """Let the same moves be under way until they are cancelled, and the limit be short."""

    def cancel(_: object, partitions: dict[TopicPartition, None]) -> dict[TopicPartition, None]:
        moves.pop()
        return partitions

    moves = [ActiveMoves({}, {}, {}, {}), found]
    monkeypatch.setattr(executor_module, "moves_under_way", lambda *_: moves[-1])
    monkeypatch.setattr(executor_module, "alter_reassignments", cancel)
    monkeypatch.setattr(executor_module, "STUCK_S", 0.0)


def test_moves_of_others_that_stand_still_are_named_and_not_waited_for(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    partition = TopicPartition("t", 0)
    copy = Replica(1, TopicPartition("u", 3))
    moves = ActiveMoves({partition: Reassignment((1, 3), (3,), ())}, {copy: 5}, {}, {})
    stand_still(monkeypatch, moves)
    with connect(bootstrap, {}) as client:
        file = ExecutionFile(tmp_path / "drain.json", "id", "drain")
        told: list[ProgressEvent] = []
        executor = RoundExecutor(client, file, PlanLimits(), told.append)
        with pytest.raises(OperationFailed, match="t-0 to broker 3, u-3 inside broker 1"):
            executor.wait()
    assert told[0].text == "others are moving 2 replicas: waiting for their end"


def test_a_second_interrupt_names_the_file_of_what_is_left(tmp_path: Path) -> None:
    told: list[ProgressEvent] = []

    def undo() -> None:
        raise KeyboardInterrupt

    file = tmp_path / "drain.json"
    report = ProgressReport(told.append)
    with (
        pytest.raises(KeyboardInterrupt),
        undone_if_cancelled(undo, file, report, "`cancel_drain`"),
    ):
        raise KeyboardInterrupt
    assert [event.event for event in told] == ["stopping", "notUndone"]
    assert told[-1].text == (
        f"not everything is undone: {file} has what is left, and `cancel_drain` undoes it"
    )


def test_a_move_of_the_round_that_stands_still_is_cancelled(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    partition = TopicPartition("t", 0)
    moves = ActiveMoves({partition: Reassignment((1, 3, 2), (3,), (2,))}, {}, {}, {})
    stand_still(monkeypatch, moves)
    told: list[ProgressEvent] = []
    plan = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,3]}]}'
    with connect(bootstrap, {}) as client:
        file = ExecutionFile(tmp_path / "drain.json", "id", "drain", round=plan)
        RoundExecutor(client, file, PlanLimits(), told.append).wait()
    assert [event.event for event in told] == ["moving", "givenUp"]


def test_a_drain_without_cordons_is_announced_and_continues(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(drain_run, "finalized_level", lambda *_: 27)
    assert run(("disks", "list", "--json")) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    path = broker["directories"][0]["path"]
    words = ("--capacity", "1GiB", "--state", str(tmp_path / "drain.json"))
    assert run(("drain", f"1:{path}", *words)) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "this cluster does not support cordons: its metadata.version is 4.1-IV1, and"
    )
    assert "it is not cordoned, so new topics may use it" in last


def fullest_place(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the directory with the most replicas, as `BROKER:DIR`."""
    assert run(("topic", "create", "refused", "-p", "6", "-r", "1")) in (0, 1)
    capsys.readouterr()
    assert run(("disks", "list", "--json")) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    return f"1:{max(broker['directories'], key=lambda each: each['partitions'])['path']}"


def test_a_cluster_that_refuses_in_the_middle_says_what_is_left_to_undo(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")

    place, state = fullest_place(capsys), tmp_path / "drain.json"
    monkeypatch.setattr(RoundExecutor, "run", refuse)
    with connect(bootstrap, {}) as client:
        cluster_id = describe_brokers(client).cluster_id
    words = ("drain", place, "--capacity", "1GiB", "--state", str(state))
    assert run(words) == 1
    error = capsys.readouterr().err
    assert "Cluster authorization failed." in error
    assert f"{state} has the cordons and throttles of this drain" in error
    assert open_execution_file(state, cluster_id, f"drain {place}").cordoned
    assert run((*words, "--cancel")) == 0


def test_moves_that_are_refused_again_and_again_end_a_drain_with_the_reasons(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def refuse(
        _: object, broker: int, wanted: dict[TopicPartition, str]
    ) -> dict[TopicPartition, ApiError]:
        error = ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The assignment is wrong.")
        return dict.fromkeys(wanted, error)

    place, state = fullest_place(capsys), tmp_path / "drain.json"
    words = ("drain", place, "--capacity", "1GiB", "--state", str(state))
    with monkeypatch.context() as patched:
        patched.setattr(plan_rounds, "PAUSE_S", 0.0)
        patched.setattr(executor_module, "move_replicas", refuse)
        assert run(words) == 1
    shown = capsys.readouterr()
    assert f"{place} does not get emptier" in shown.err
    assert shown.out.count("the cluster refused the move of") >= 5
    assert "The assignment is wrong." in shown.err
    with connect(bootstrap, {}) as client:
        described = configs.describe(client, ConfigResourceType.BROKER, "1", BETWEEN_BROKERS)
        cluster_id = describe_brokers(client).cluster_id
    assert not any(
        description.source is configs.ReportedSource.DYNAMIC_BROKER_CONFIG
        for description in described
    )
    assert open_execution_file(state, cluster_id, f"drain {place}").brokers == []
    assert run((*words, "--cancel")) == 0


def test_a_consumer_says_that_its_topic_does_not_exist_yet(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("consume", "nope", "--group", "g", "--timeout", "0")
    run(words)
    assert "topic nope does not exist yet: waiting for it" in capsys.readouterr().err
    run(("consume", "nope", "--timeout", "0"))
    assert "nope does not exist yet: asking the brokers to create it" in capsys.readouterr().err


def test_a_consumer_without_the_right_cannot_see_that_its_topic_does_not_exist(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = ClusterView(refused={"nope": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    monkeypatch.setattr(WireClient, "metadata", lambda *_: denied)
    run(("consume", "nope", "--group", "g", "--timeout", "0"))
    assert "does not exist yet" not in capsys.readouterr().err
