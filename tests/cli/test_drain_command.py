"""`spindle drain` on a node of `spindle up`, and the file that a killed drain leaves."""

import fcntl
import json
import os
from errno import ENOSPC
from pathlib import Path
from typing import Any, cast

import pytest

from spindle.cli.main import run
from spindle.cli.progress import printing
from spindle.cli.tools.bootstrap import connect
from spindle.client.admin.cluster import describe_brokers
from spindle.client.admin.configs import ReportedSource, describe
from spindle.client.admin.cordons import CordonRefused, cordoned_entries, uncordon
from spindle.client.admin.partitions import list_reassignments
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.cluster_metadata import ClusterView, PartitionView, TopicView
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.config.resources import ConfigResourceType
from spindle.operations import drain_run, plan_settings
from spindle.operations.directories import DrainTarget
from spindle.operations.drain_removal import Removal, remove_drained
from spindle.operations.errors import OperationFailed
from spindle.operations.events import NotUncordoned, ProgressEvent
from spindle.operations.execution import cordons
from spindle.operations.execution import executor as executor_module
from spindle.operations.execution.active_moves import ActiveMoves
from spindle.operations.execution.execution_file import ExecutionFile, open_execution_file
from spindle.operations.execution.executor import RoundExecutor
from spindle.operations.execution.running_plan import PlanUnderWay
from spindle.operations.reassignment import Replica, places_of
from spindle.operations.snapshot import read_snapshot
from spindle.operations.state_files import locked
from spindle.operations.throttles import BETWEEN_BROKERS, remove_throttles, throttle_brokers
from spindle.planner.goals import drain
from spindle.planner.limits import PlanLimits


def test_the_file_of_a_drain_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "drain.json"
    assert open_execution_file(path, "id", "drain 2:/d") == ExecutionFile(path, "id", "drain 2:/d")
    throttled = {"t": {"leader.replication.throttled.replicas": ["0:1", "0:2"]}}
    saved = ExecutionFile(path, "id", "drain 2:/d", ["/d"], throttled, [1, 2], '{"version":1}')
    saved.save()
    assert open_execution_file(path, "id", "drain 2:/d") == saved
    assert [path.name for path in tmp_path.iterdir()] == ["drain.json"]
    saved.cordoned = []
    saved.end()
    assert open_execution_file(path, "id", "drain 2:/d") == ExecutionFile(
        path, "id", "drain 2:/d", brokers=[1, 2]
    )
    saved.brokers = []
    saved.end()
    assert not path.exists()


def test_a_full_disk_leaves_the_old_file_of_a_drain_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    path = tmp_path / "drain.json"
    saved = ExecutionFile(path, "id", "drain 2:/d", brokers=[1])
    saved.save()
    monkeypatch.setattr(os, "fsync", refuse)
    saved.brokers = [1, 2]
    with pytest.raises(OSError, match="No space left on device") as caught:
        saved.save()
    assert caught.value.filename == str(path)
    assert open_execution_file(path, "id", "drain 2:/d").brokers == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["drain.json"]


def test_the_file_of_another_drain_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "drain.json"
    ExecutionFile(path, "id", "drain 2:/d").save()
    for cluster_id, place in (("id", "drain 3"), ("other", "drain 2:/d")):
        with pytest.raises(OperationFailed, match="is of 'drain 2:/d' in cluster id, not of"):
            open_execution_file(path, cluster_id, place)
    whole = '{"cluster_id": "id", "goal": "drain 2:/d", '
    inside = (
        '"round": "{cut"}',
        '"throttled": {"t": {"key": 5}}}',
        '"brokers": ["1"]}',
        '"cordoned": [5]}',
    )
    wrong = (
        *(whole + name for name in inside),
        whole + '"cordoned": 5}',
        whole + '"round": 5}',
        "[" * 100_000,
    )
    for text in ("", "[1]", '{"goal": "drain 2:/d"}', '{"unknown": 1}', *wrong):
        path.write_text(text)
        with pytest.raises(OperationFailed, match=r"drain\.json is damaged, or is not the"):
            open_execution_file(path, "id", "drain 2:/d")


def directories(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, bool]]:
    """Return the number of replicas of each directory, and whether it is cordoned."""
    capsys.readouterr()
    assert run(("disks", "list", "--json")) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    return {
        directory["path"]: (directory["partitions"], bool(directory["cordons"]))
        for directory in broker["directories"]
    }


def count_replicas(found: dict[str, tuple[int, bool]]) -> int:
    return sum(count for count, _ in found.values())


def test_a_directory_is_drained_and_cordoned_and_cancelling_needs_a_drain(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = directories(capsys)
    path = max(before)
    assert run(("topic", "create", "drained", "-p", "6", "-r", "1")) == 0
    # The broker makes the replicas after the controller has answered.
    replicas = count_replicas(before) + 6
    while count_replicas(before := directories(capsys)) < replicas:
        pass
    assert before[path][0] > 0
    state = ("--state", str(tmp_path / "drain.json"))
    words = ("drain", f"1:{path}", "--capacity", "1GiB", "--max-moves-per-dir", "1", *state)
    with_slash = ("drain", f"1:{path}/", *words[2:])
    assert run(with_slash) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == f"1:{path} has no replicas and is cordoned"
    assert run((*words, "--json")) == 0
    (end,) = map(json.loads, capsys.readouterr().out.splitlines())
    facts = {"isCordoned": True, "wentOffline": []}
    assert end == {"place": f"1:{path}", "event": "empty", **facts}
    assert directories(capsys)[path] == (0, True)
    assert count_replicas(directories(capsys)) == replicas
    assert not list(tmp_path.iterdir())
    assert run((*words, "--cancel")) == 1
    assert "there is no drain to cancel" in capsys.readouterr().err
    assert run(("disks", "uncordon", "1", path)) == 0


def test_a_drain_that_is_not_possible_changes_nothing(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(("topic", "create", "stuck", "-p", "1", "-r", "1")) == 0
    capsys.readouterr()
    assert run(("drain", "1", "--state", str(tmp_path / "drain.json"))) == 1
    error = capsys.readouterr().err
    assert "the plan can use 0 brokers" in error
    assert "Nothing has changed." in error
    assert not any(is_cordoned for _, is_cordoned in directories(capsys).values())


@pytest.mark.parametrize("fails_early", [False, True], ids=["plan", "cluster"])
def test_a_drain_that_cannot_continue_leaves_no_throttles(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fails_early: bool,
) -> None:
    def refuse(*_: object, **_settings: object) -> None:
        raise OperationFailed("the answers of the brokers contradict each other")

    if fails_early:
        monkeypatch.setattr(plan_settings, "read_snapshot", refuse)
    state = tmp_path / "drain.json"
    run(("topic", "create", "held", "-p", "1", "-r", "1"))
    with connect(bootstrap, {}) as client:
        cluster_id = describe_brokers(client).cluster_id
        ExecutionFile(state, cluster_id, "drain 1", ["/d"], {}, [1]).save()
        throttle_brokers(client, [1], BETWEEN_BROKERS, 2**20)
        assert run(("drain", "1", "--state", str(state))) == 1
        assert "--cancel removes them" in capsys.readouterr().err
        kept = describe(client, ConfigResourceType.BROKER, "1", BETWEEN_BROKERS)
    assert not any(config.source is ReportedSource.DYNAMIC_BROKER_CONFIG for config in kept)
    left = open_execution_file(state, cluster_id, "drain 1")
    assert (left.brokers, left.cordoned) == ([], ["/d"])


def test_throttles_that_another_execution_removes_are_set_again(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = iter([1, 1, 0])

    def moves(*_: object) -> ActiveMoves:
        if (count := next(looks)) and executor.file.brokers:
            remove_throttles(client, [1], [])
        return ActiveMoves(
            {}, dict.fromkeys([Replica(1, TopicPartition("t", 0))] * count, 0), {}, {}
        )

    monkeypatch.setattr(executor_module, "moves_under_way", moves)
    monkeypatch.setattr(executor_module, "CHECK_S", 0.0)
    with connect(bootstrap, {}) as client:
        file = ExecutionFile(tmp_path / "drain.json", "id", "drain", brokers=[1])
        limits = PlanLimits(throttle_bytes_per_second=2**20)
        executor = RoundExecutor(client, file, limits, lambda _: None)
        executor.throttle()
        executor.wait()
        described = client.describe_configs(ConfigResourceType.BROKER, ["1"], BETWEEN_BROKERS)
        assert set(described["1"].values()) == {str(2**20)}
        executor.unthrottle()


@pytest.mark.parametrize("options", [(), ("--cancel",)])
def test_the_throttles_of_a_broker_that_is_away_are_not_forgotten(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = min(directories(capsys))
    state = tmp_path / "drain.json"
    with connect(bootstrap, {}) as client:
        cluster_id = describe_brokers(client).cluster_id
    ExecutionFile(state, cluster_id, f"drain 1:{path}", brokers=[1, 9]).save()
    words = ("drain", f"1:{path}", "--capacity", "1GiB", "--state", str(state))
    assert run((*words, *options)) == 0
    assert "the throttles of broker 9 are left" in capsys.readouterr().out
    assert open_execution_file(state, cluster_id, f"drain 1:{path}").brokers == [9]
    run(("disks", "uncordon", "1", path))


def test_a_cordon_that_the_broker_hears_of_late_is_removed_all_the_same(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries: list[str] = []

    def uncordon_late(client: WireClient, broker_id: int, path: str) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise CordonRefused("no operator has cordoned it")

    monkeypatch.setattr(cordons, "uncordon", uncordon_late)
    file = ExecutionFile(tmp_path / "drain.json", "id", "drain 1:/d", ["/d"])
    told: list[ProgressEvent] = []
    with connect(bootstrap, {}) as client:
        cordons.remove_cordons(client, 1, file, told.append)
    assert (tries, told, file.cordoned) == (["/d"] * 3, [], [])


def test_replicas_that_change_after_the_plan_are_skipped_or_planned_again(
    bootstrap: str, tmp_path: Path
) -> None:
    assert run(("topic", "create", "gone", "-p", "4", "-r", "1")) == 0
    assert run(("topic", "create", "kept", "-p", "4", "-r", "1")) == 0
    told: list[ProgressEvent] = []
    with connect(bootstrap, {}) as client:
        model = read_snapshot(client, 2**30).model
        place = next(
            partition for partition in model.partitions if partition.name.topic == "kept"
        ).directories[0]
        plan = drain(model, [place], PlanLimits(parallel_moves=9))
        targets = {str(model.directories[move.target]) for move in plan.rounds[0].moves}
        assert run(("topic", "delete", "gone", "--yes")) == 0
        for target in targets:
            assert run(("disks", "cordon", *target.split(":", 1))) == 0
        file = ExecutionFile(tmp_path / "drain.json", "id", "drain")
        executor = RoundExecutor(client, file, PlanLimits(), told.append)
        executor.run(plan)
        assert executor.refused
        assert {step.event for step in told} == {"round", "refused"}
        assert not any("gone" in name for name in executor.refused)
        executor.unthrottle()
    for target in targets:
        assert run(("disks", "uncordon", *target.split(":", 1))) == 0


def test_ctrl_c_stops_the_copies_inside_a_broker_although_the_drain_has_cordoned_their_source(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(_: PlanUnderWay) -> None:
        raise KeyboardInterrupt

    replica = Replica(1, TopicPartition("interrupted", 0))
    assert run(("topic", "create", "interrupted", "-p", "1", "-r", "1")) == 0
    load = ("--num-records", "8", "--record-size", "500000", "--throughput", "-1")
    assert run(("kafka", "producer-perf-test", "--topic", "interrupted", *load)) == 0
    monkeypatch.setattr(PlanUnderWay, "note_begun", interrupted)
    with connect(bootstrap, {}) as client:
        path = places_of(client).directories[replica]
        limits = ("--capacity", "1GiB", "--throttle", "1KiB")
        state = ("--state", str(tmp_path / "drain.json"))
        assert run(("drain", f"1:{path}", *limits, *state)) == 130
        places = places_of(client)
        assert (places.directories[replica], places.futures) == (path, {})
        assert not cordoned_entries(client, 1)


def test_ctrl_c_before_an_answer_does_not_disturb_what_is_asked_next(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with connect(bootstrap, {}) as client:
        client.metadata(())
        with monkeypatch.context() as patched:
            patched.setattr(BlockingConnection, "_receive_one", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.metadata(())
        assert not list_reassignments(client)


def test_a_second_drain_with_the_same_file_is_refused(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = tmp_path / "drain.json"
    with locked(state, "drain"):
        assert run(("drain", "1", "--state", str(state))) == 1
    assert f"another drain is running, which uses {state}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_lock_that_another_drain_has_just_removed_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state, flock = tmp_path / "drain.json", fcntl.flock

    def flock_late(file: Any, how: int) -> None:
        monkeypatch.undo()
        ending.__exit__(None, None, None)
        flock(file, how)

    ending = locked(state, "drain")
    ending.__enter__()
    monkeypatch.setattr(fcntl, "flock", flock_late)
    with pytest.raises(OperationFailed, match="another drain ended a moment ago"):
        locked(state, "drain").__enter__()


@pytest.mark.parametrize(
    "words", [("1", "--then", "remove"), ("1:/d", "--then", "unregister")], ids=["retire", "forget"]
)
def test_a_last_step_that_does_not_fit_the_place_is_refused(
    bootstrap: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert run(("drain", *words, "--yes")) != 0
    assert "--then remove needs BROKER:DIR" in capsys.readouterr().err


def test_the_metadata_log_directory_is_not_drained_to_be_retired(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = directories(capsys)
    words = ("--then", "remove", "--yes", "--state", str(tmp_path / "drain.json"))
    assert run(("drain", f"1:{min(before)}", *words)) == 1
    assert "holds the metadata log of broker 1, so it cannot be removed" in capsys.readouterr().err
    assert directories(capsys) == before


def test_a_broker_that_runs_is_not_forgotten(bootstrap: str) -> None:
    with (
        connect(bootstrap, {}) as client,
        pytest.raises(OperationFailed, match="stop it, and"),
    ):
        remove_drained(client, Removal.UNREGISTER, DrainTarget(1), (), print)


def test_a_broker_that_has_replicas_again_is_not_forgotten() -> None:
    partition = PartitionView(0, 2, 0, (2, 3), (2,), (3,))
    view = ClusterView(topics={"new": TopicView("new", ZERO_UUID, False, {0: partition})})

    class ClusterWithoutBroker3:
        def metadata(self, topics: object = None) -> ClusterView:
            return view

    client = cast("WireClient", ClusterWithoutBroker3())
    with pytest.raises(OperationFailed, match="broker 3 has 1 replica again, such as new-0"):
        remove_drained(client, Removal.UNREGISTER, DrainTarget(3), (), print)


def test_a_broker_is_not_forgotten_while_topics_are_hidden_from_the_user() -> None:
    replica = ReplicaOnDisk(1, 0, False)
    held = LogDirView("/d", ErrorCode.NONE, 1, 1, False, {TopicPartition("secret", 0): replica})

    class ClusterWithSecretTopic:
        def metadata(self, topics: object = None) -> ClusterView:
            return ClusterView()

        def describe_log_dirs(self) -> dict[int, list[LogDirView]]:
            return {1: [held]}

    client = cast("WireClient", ClusterWithSecretTopic())
    with pytest.raises(OperationFailed, match="does not show 1 topic that brokers hold, such as"):
        remove_drained(client, Removal.UNREGISTER, DrainTarget(3), (), print)


def test_a_topic_that_is_created_just_before_the_cordon_leaves_as_well(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = max(directories(capsys))
    words = ("drain", f"1:{path}", "--capacity", "1GiB", "--state", str(tmp_path / "drain.json"))
    assert run(words) == 0
    assert run(("disks", "uncordon", "1", path)) == 0

    def set_late(*cordon: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setenv("SPINDLE_BOOTSTRAP", bootstrap)
        assert run(("topic", "create", "late", "-p", "6", "-r", "1")) == 0
        cordons.set_cordon(*cordon)

    monkeypatch.setattr(drain_run, "set_cordon", set_late)
    assert run(words) == 0
    assert directories(capsys)[path] == (0, True)
    assert run(("disks", "uncordon", "1", path)) == 0


def test_a_drained_directory_is_retired_and_keeps_no_cordon(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path, tries = max(directories(capsys)), list[str]()

    def uncordon_late(client: WireClient, broker_id: int, path: str) -> None:
        tries.append(path)
        if len(tries) == 1:
            raise CordonRefused("no operator has cordoned it")
        uncordon(client, broker_id, path)

    monkeypatch.setattr(cordons, "uncordon", uncordon_late)
    words = ("--capacity", "1GiB", "--state", str(tmp_path / "drain.json"))
    assert run(("drain", f"1:{path}", "--then", "remove", "--yes", *words)) == 0
    assert f"broker 1 no longer uses {path}" in capsys.readouterr().out
    with connect(bootstrap, {}) as client:
        assert cordoned_entries(client, 1) == ()
    assert path not in directories(capsys)


def test_names_in_steps_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    printing(as_json=False)(NotUncordoned(1, "/d", "cordoned /d\x1b[2J of broker 1\nand more"))
    assert capsys.readouterr().out == "cordoned /d\\x1b[2J of broker 1\nand more\n"
