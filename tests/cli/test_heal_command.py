"""`spindle heal` on a node of `spindle up`, and what it remembers over a kill."""

import json
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path

import click
import pytest

from spindle.cli.heal.command import HoursParameter
from spindle.cli.main import run
from spindle.cli.tools.bootstrap import connect
from spindle.client.admin.cluster import describe_brokers
from spindle.operations import heal_run
from spindle.operations.directories import UNREADABLE
from spindle.operations.errors import OperationFailed
from spindle.operations.execution.execution_file import ExecutionFile
from spindle.operations.heal_memory import HealMemory, open_memory
from spindle.operations.heal_run import failed_place, failure_name
from spindle.operations.state_files import locked
from spindle.operations.throttles import BETWEEN_BROKERS, throttle_brokers
from spindle.planner.goals import drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel
from spindle.planner.plan import PlacementPlan

HOUR_MS = 3_600_000


def events(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run(("heal", "--once", "--json", "--capacity", "1GiB", *words)) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_memory_keeps_the_budget_of_a_day_and_the_time_of_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    memory = open_memory(path, "id")
    memory.see_offline(["1:/a"], 5 * HOUR_MS, HOUR_MS)
    memory.record_moved(100, 5 * HOUR_MS)
    memory.record_moved(10, 20 * HOUR_MS)
    again = open_memory(path, "id")
    assert again == memory
    assert again.spent_bytes(21 * HOUR_MS) == 110
    assert again.spent_bytes(30 * HOUR_MS) == 10
    with pytest.raises(OperationFailed, match="is of cluster id, not of other"):
        open_memory(path, "other")
    again.see_offline(["1:/a", "1:/b"], 5 * HOUR_MS + 1000, HOUR_MS)
    assert again.offline_ms == {"1:/a": 1000, "1:/b": 0}
    again.see_offline([], 6 * HOUR_MS, HOUR_MS)
    assert open_memory(path, "id") == HealMemory(path, "id", {}, 6 * HOUR_MS, again.moved)
    path.write_text("[]")
    with pytest.raises(OperationFailed, match="is not a state file of heal"):
        open_memory(path, "id")


@pytest.mark.parametrize("jump_ms", [10_000 * HOUR_MS, -3 * HOUR_MS], ids=["forward", "back"])
def test_time_in_which_nobody_looked_and_jumps_of_the_clock_are_no_grace(
    tmp_path: Path, jump_ms: int
) -> None:
    memory = open_memory(tmp_path / "memory.json", "id")
    memory.see_offline(["1:/a"], 5 * HOUR_MS, 60_000)
    memory.see_offline(["1:/a"], 5 * HOUR_MS + 50_000, 60_000)
    memory.see_offline(["1:/a"], 5 * HOUR_MS + jump_ms, 60_000)
    assert memory.offline_ms["1:/a"] == 50_000 + (60_000 if jump_ms > 0 else 0)


def test_hours_of_the_day_may_include_midnight() -> None:
    night = HoursParameter().convert("22:00-04:30", None, None)
    assert [night.include(time(hour)) for hour in (21, 22, 0, 4, 5)] == [False, *[True] * 3, False]
    assert str(night) == "22:00 and 04:30"
    early = HoursParameter().convert("01:00-05:00", None, None)
    assert [early.include(time(hour)) for hour in (0, 1, 4, 5)] == [False, True, True, False]
    for wrong in ("1-5", "24:00-01:00", "01:00-01:00"):
        with pytest.raises(click.BadParameter, match=wrong):
            HoursParameter().convert(wrong, None, None)


def test_a_clock_that_was_wrong_holds_the_budget_for_a_day_at_most(tmp_path: Path) -> None:
    memory = open_memory(tmp_path / "memory.json", "id")
    memory.record_moved(100, 10_000 * HOUR_MS)
    assert memory.spent_bytes(5 * HOUR_MS) == 100
    again = open_memory(tmp_path / "memory.json", "id")
    assert again.spent_bytes(28 * HOUR_MS) == 100
    assert again.spent_bytes(30 * HOUR_MS) == 0


def test_a_broker_that_restarts_has_the_grace_that_its_failed_directory_had_before() -> None:
    def directory(path: str, *, is_online: bool) -> DirectoryModel:
        return DirectoryModel(2, path, 100, 0, is_online=is_online)

    def name_of_last(*directories: DirectoryModel) -> str:
        model = ClusterModel([BrokerModel(2, None)], [*directories, unreadable], [])
        return failure_name(model, len(directories))

    unreadable = directory(UNREADABLE, is_online=False)
    good, bad = directory("/a", is_online=True), directory("/b", is_online=False)
    worse = directory("/a", is_online=False)
    names = {name_of_last(good, bad), name_of_last(worse, bad), name_of_last()}
    assert len(names) == 3


def test_a_failure_is_reported_by_the_paths_that_have_failed() -> None:
    def directory(path: str, *, is_online: bool = False) -> DirectoryModel:
        return DirectoryModel(2, path, 100, 0, is_online=is_online)

    def told(*directories: DirectoryModel) -> str:
        model = ClusterModel([BrokerModel(2, None)], [*directories, directory(UNREADABLE)], [])
        return failed_place(model, len(directories))

    assert told(directory("/a", is_online=True), directory("/b")) == "2:/b"
    assert told(directory("/a"), directory("/b")) == "2:/a, 2:/b"
    assert told() == "broker 2"


def test_a_healthy_cluster_is_left_alone_and_a_second_healing_is_refused(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path))
    assert events(capsys, *state) == [{"event": "fine", "directories": 3}]
    with locked(tmp_path / "round.json", "healing"):
        assert run(("heal", "--once", *state)) == 1
    assert "another healing is running" in capsys.readouterr().err


def test_throttles_of_a_drain_keep_a_healing_away_and_its_own_are_removed(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path))
    with connect(bootstrap, {}) as client:
        cluster_id = describe_brokers(client).cluster_id
        throttle_brokers(client, [1], BETWEEN_BROKERS, 2**20)
    (occupied,) = events(capsys, *state)
    assert (occupied["event"], occupied["throttled"]) == ("occupied", [1])
    ExecutionFile(tmp_path / "round.json", cluster_id, "heal", brokers=[1]).save()
    assert events(capsys, *state) == [{"event": "fine", "directories": 3}]
    assert not (tmp_path / "round.json").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("--trigger-fill", "50", "--target-fill", "60"),
            "--target-fill 60 is higher than --trigger-fill 50",
        ),
        (("--horizon", "3d"), "--horizon needs a history: give --history"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    bootstrap: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert run(("heal", "--once", *words)) == 2
    assert reason in capsys.readouterr().err


def test_directories_that_share_a_file_system_are_remarked_once(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert (
        run(("heal", "--once", "--dry-run", "--trigger-fill", "100", "--state", str(tmp_path))) == 0
    )
    assert capsys.readouterr().out.count("--capacity gives each its own size") == 1


def test_moves_begin_only_in_the_given_hours_and_a_remark_is_reported_once(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def empty_first(model: ClusterModel, *_: object) -> PlacementPlan:
        plan = drain(model, [0], PlanLimits(parallel_moves=1))
        return replace(plan, remarks=("so",))

    assert run(("topic", "create", "healed", "-p", "9", "-r", "1")) == 0
    monkeypatch.setattr(heal_run, "plan_healing", empty_first)
    later = [datetime.now() + timedelta(hours=hours) for hours in (2, 3)]
    state = ("--state", str(tmp_path), "--window")
    shown = events(capsys, *state, "-".join(f"{moment:%H:%M}" for moment in later))
    assert [entry["event"] for entry in shown] == ["fine", "remark", "outsideHours"]
    shown = events(capsys, *state, "-".join(f"{moment:%H:%M}" for moment in later[::-1]))
    kinds = [entry["event"] for entry in shown]
    assert (kinds.count("round") > 0, kinds.count("remark")) == (True, 1)


def test_the_plan_of_a_healing_is_shown_without_moves(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("topic", "create", "planned", "-p", "3", "-r", "1")) == 0
    load = ("--num-records", "8", "--record-size", "500000", "--throughput", "-1")
    assert run(("kafka", "producer-perf-test", "--topic", "planned", *load)) == 0
    capsys.readouterr()
    assert run(("plan", "heal", "--capacity", "10GiB", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["goal"] == "empty failed directories, and those above 85% down to 80%"
    assert document["rounds"] == []
    limits = ("--trigger-fill", "2", "--target-fill", "1.5")
    assert run(("plan", "heal", "--capacity", "100MiB", *limits, "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rounds"] or document["remarks"]
    assert run(("plan", "heal", "--trigger-fill", "50", "--target-fill", "60")) == 2
    assert "--target-fill 60 is higher than --trigger-fill 50" in capsys.readouterr().err
