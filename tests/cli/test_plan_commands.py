"""`spindle plan`: the model from the answers of brokers, the output, the files, and a real node."""

import json
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from waiting import wait_for

from spindle.cli.main import run, spindle
from spindle.cli.plan.documents import head_document, plan_document
from spindle.cli.plan.place import parse_drain_target
from spindle.cli.plan.plan_command import with_given_options
from spindle.cli.plan.plan_text import bar_text, plan_lines
from spindle.cli.tools.reassignment_plan import check_plan, parse_plan
from spindle.client.admin.cluster import ClusterNode
from spindle.client.cluster_metadata import BrokerAddress, ClusterView, PartitionView, TopicView
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.operations.deletions import BrokerSpace, OwnDeletions, deleted_space
from spindle.operations.directories import UNREADABLE, DrainTarget, find_directories
from spindle.operations.drain_run import end_of_drain
from spindle.operations.errors import OperationFailed
from spindle.operations.plan_files import rollback_texts, round_texts, write_files
from spindle.operations.reassignment import Replica
from spindle.operations.snapshot import ClusterSnapshot, refuse_moving, snapshot_of
from spindle.planner.goals import decommission, drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import DirectoryModel
from spindle.planner.plan import PlacementPlan
from tools import failure_code

GIB = 2**30
_RATE_AND_MOVES = " --throttle 1000000 --max-moves-per-dir 2"
_ADDRESS_AND_FILL = " --max-fill 90 --bootstrap-server host:1"
_SPREAD_AND_RACKS = " --spread 2.5 --allow-rack-loss"
_FILLS = " --trigger-fill 80 --target-fill 70"
LIMITS = PlanLimits()


def node(node_id: int, *, is_fenced: bool = False) -> ClusterNode:
    return ClusterNode(node_id, "host", 9090 + node_id, f"rack{node_id % 2}", is_fenced)


def view(*partitions: Sequence[int]) -> ClusterView:
    """Return topic t with the replicas of each partition, led by the first one."""
    views = {
        number: PartitionView(number, brokers[0], 1, tuple(brokers), tuple(brokers), ())
        for number, brokers in enumerate(partitions)
    }
    addresses = {number: BrokerAddress(number, "host", 9090 + number) for number in (1, 2, 3)}
    return ClusterView("id", 1, addresses, {"t": TopicView("t", ZERO_UUID, False, views)})


def log_dir(
    path: str, *sizes_gib: tuple[int, int], used_gib: int = 20, total_gib: int = 100
) -> LogDirView:
    """Return a directory with replicas of topic t: partition and size."""
    return LogDirView(
        path,
        ErrorCode.NONE,
        total_gib * GIB,
        (total_gib - used_gib) * GIB,
        False,
        {TopicPartition("t", n): ReplicaOnDisk(size * GIB, 0, False) for n, size in sizes_gib},
    )


def three_brokers(first: str = "/a") -> ClusterSnapshot:
    """Return brokers 1 to 3 with two partitions; broker 3 is dead. One path can be chosen."""
    return snapshot_of(
        [node(1), node(2), node(3, is_fenced=True)],
        view((1, 2), (3, 1)),
        {
            1: [log_dir(first, (0, 4)), log_dir("/b", (1, 6), used_gib=10)],
            2: [log_dir("/a", (0, 4), used_gib=4)],
            3: "cannot connect to host:9093",
        },
        None,
    )


def test_answers_of_brokers_become_a_model() -> None:
    snapshot = three_brokers()
    assert [str(directory) for directory in snapshot.model.directories] == [
        "1:/a",
        "1:/b",
        "2:/a",
        "3:(unreadable)",
    ]
    assert [directory.used_bytes // GIB for directory in snapshot.model.directories] == [
        20,
        10,
        4,
        6,
    ]
    assert [partition.directories for partition in snapshot.model.partitions] == [(0, 2), (3, 1)]
    assert snapshot.model.partitions[1].size_bytes == (6 * GIB, 6 * GIB)
    assert snapshot.remarks == [
        "broker 3 does not report its directories: cannot connect to host:9093"
    ]


def test_answers_that_contradict_each_other_end_with_one_line() -> None:
    twice = [log_dir("/a"), log_dir("/a")]
    with pytest.raises(OperationFailed, match="contradict each other: directory 1:/a is there 2"):
        snapshot_of([node(1)], view((1,)), {1: twice}, None)


def test_a_dead_broker_is_emptied_from_the_leaders() -> None:
    plan = decommission(three_brokers().model, 3, LIMITS)
    ((move,),) = [planned_round.moves for planned_round in plan.rounds]
    assert plan.cluster.directories[move.target].broker_id == 2
    (text,) = round_texts(plan)
    assert parse_plan(text).replicas == {TopicPartition("t", 1): (2, 1)}
    (text,) = rollback_texts(plan, LIMITS.max_fill)
    back = parse_plan(text)
    assert back.replicas == {TopicPartition("t", 1): (3, 1)}
    assert UNREADABLE not in text


def test_a_capacity_replaces_what_the_brokers_say() -> None:
    answers = {1: [log_dir("/a", (0, 4)), log_dir("/b")]}
    snapshot = snapshot_of([node(1)], view((1,)), answers, 50 * GIB)
    assert [directory.capacity_bytes for directory in snapshot.model.directories] == [50 * GIB] * 2
    assert [directory.used_bytes for directory in snapshot.model.directories] == [4 * GIB, 0]
    assert not snapshot.remarks
    shared = snapshot_of([node(1)], view((1,)), answers, None)
    (remark,) = shared.remarks
    assert remark.startswith("log directories seem to share a file system (brokers 1): ")


def test_a_capacity_below_the_replicas_of_a_directory_is_refused() -> None:
    answers = {1: [log_dir("/a", (0, 4)), log_dir("/b")]}
    assert snapshot_of([node(1)], view((1,)), answers, 4 * GIB).model.directories[0].fill == 1
    with pytest.raises(
        OperationFailed, match=r"`capacity_bytes` is 3\.0 GiB, less than the 4\.0 GiB .* 1:/a use"
    ):
        snapshot_of([node(1)], view((1,)), answers, 3 * GIB)


def test_an_offline_directory_and_one_of_unknown_size_receive_nothing() -> None:
    dead = LogDirView("/b", ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, False, {})
    answers = {1: [log_dir("/a", (0, 4), total_gib=-1, used_gib=0), dead]}
    model = snapshot_of([node(1)], view((1,)), answers, None).model
    assert [directory.capacity_bytes for directory in model.directories] == [0, 0]
    assert [directory.is_online for directory in model.directories] == [True, False]


def test_an_error_with_a_hostile_name_does_not_steer_the_terminal(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, "drain", "1:/\x1b[2J")
    assert code == 1
    assert "no log directory /\\x1b[2J" in err
    assert "\x1b" not in err


def test_a_failed_directory_is_emptied_of_all_that_its_broker_cannot_show() -> None:
    dead = LogDirView("/b", ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, False, {})
    answers = {1: [log_dir("/a"), dead], 2: [log_dir("/a", (0, 4))], 3: [log_dir("/a")]}
    nodes = [node(1), node(2), node(3)]
    model = snapshot_of(nodes, view((2, 1)), answers, None).model
    names = [str(model.directories[directory]) for directory in find_directories(model, 1, "/b")]
    assert names == ["1:/b", "1:(unreadable)"]
    assert find_directories(model, 1, "/a") == [0]
    ((move,),) = [
        planned_round.moves
        for planned_round in drain(model, find_directories(model, 1, "/b"), LIMITS).rounds
    ]
    assert str(model.directories[move.target]) == "3:/a"


def test_a_failed_directory_and_its_unknown_replicas_are_one_row() -> None:
    dead = LogDirView("/b", ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, False, {})
    answers = {1: [log_dir("/a"), dead], 2: [log_dir("/a", (0, 4))], 3: [log_dir("/a")]}
    model = snapshot_of([node(1), node(2), node(3)], view((2, 1)), answers, None).model
    plan = drain(model, find_directories(model, 1, "/b"), LIMITS)
    texts = [line.text for line in plan_lines("empty 1:/b", plan, LIMITS)]
    (row,) = (text for text in texts if "offline" in text)
    assert row.split()[:2] == ["1", "/b"]
    assert row.split()[-3:] == ["GiB", "emptied,", "offline"]
    assert not any(UNREADABLE in text for text in texts)
    document = plan_document(head_document("empty 1:/b", LIMITS, ClusterSnapshot(model), 0), plan)
    places = [(directory["broker"], directory["path"]) for directory in document["directories"]]
    assert sorted(places) == [(1, "/a"), (1, "/b"), (2, "/a"), (3, "/a")]
    ((move,),) = [round_["moves"] for round_ in document["rounds"]]
    assert (move["fromBroker"], move["fromPath"]) == (1, "/b")


def test_moving_replicas_are_no_ground_for_a_plan() -> None:
    refuse_moving([])
    with pytest.raises(OperationFailed, match=r"of 2 partitions are moving already \(t-0, t-1\)"):
        refuse_moving([TopicPartition("t", number) for number in (1, 0, 1)])


def drained(first: str = "/a") -> PlacementPlan:
    return drain(three_brokers(first).model, [0], LIMITS)


def test_the_files_of_rounds_are_plans_for_kafkas_tool_and_can_be_undone(tmp_path: Path) -> None:
    plan = drained()
    written = write_files(plan, tmp_path / "new" / "plan", LIMITS.max_fill)
    assert [path.name for path in written] == ["round-0001.json", "rollback-0001.json"]
    there, back = (parse_plan(path.read_text()) for path in written)
    check_plan(there)
    check_plan(back)
    partition = TopicPartition("t", 0)
    assert there.directories == {Replica(1, partition): "/b"}
    assert back.directories == {Replica(1, partition): "/a"}
    assert there.replicas == back.replicas == {partition: (1, 2)}
    with pytest.raises(OperationFailed, match="has files already"):
        write_files(plan, tmp_path / "new" / "plan", LIMITS.max_fill)


def test_a_rollback_waits_until_deleted_replicas_have_freed_their_space() -> None:
    disks = [
        log_dir("/a", (0, 6), (1, 3), total_gib=10, used_gib=9),
        log_dir("/b", total_gib=20, used_gib=0),
    ]
    model = snapshot_of([node(1)], view((1,), (1,)), {1: disks}, None).model
    plan = drain(model, [0], PlanLimits(parallel_moves=1))
    last, first = (parse_plan(text) for text in rollback_texts(plan, LIMITS.max_fill)[::-1])
    assert (last.wait_ms, first.wait_ms) == (60_000, 0)
    roomy = drain(model, [0], PlanLimits(parallel_moves=1))
    assert all(parse_plan(text).wait_ms == 0 for text in rollback_texts(roomy, 2.0))


def test_a_drain_of_a_dead_broker_does_not_claim_a_cordon() -> None:
    assert (
        end_of_drain(DrainTarget(1, "/a"), drained(), can_cordon=True).text
        == "1:/a has no replicas and is cordoned"
    )
    dead = decommission(three_brokers().model, 3, LIMITS)
    end = end_of_drain(DrainTarget(3), dead, can_cordon=True)
    assert end.text == "broker 3 has no replicas; its offline directories are not cordoned"
    assert end.facts == {"isCordoned": False, "wentOffline": []}


def test_the_end_of_an_execution_names_the_space_that_deleted_replicas_still_use() -> None:
    directory = DirectoryModel(1, "/a", GIB, 10, deleted_bytes=4, deletion_delay_ms=60_000)
    others = [
        DirectoryModel(2, "/b", GIB, 10, deletion_delay_ms=1_000),
        DirectoryModel(3, "/c", GIB, 10, is_online=False),
    ]
    assert deleted_space(others, OwnDeletions()) is None
    own = OwnDeletions()
    own.add((2, "/b"), 6, 1_000)
    step = deleted_space([directory, *others], own, lambda: 0.0)
    assert step is not None
    assert step.text.startswith("deleted replicas still use 10 B of 1:/a, 2:/b: USED counts them")
    assert time.strftime("%H:%M:%S", time.localtime(60)) in step.text
    assert step.facts == {"directories": ["1:/a", "2:/b"], "deletedBytes": 10, "untilMs": 60_000}


def test_a_dead_broker_without_replicas_is_empty_and_not_unknown() -> None:
    nodes = [node(1), node(2), node(3, is_fenced=True)]
    answers: dict[int, Sequence[LogDirView] | str] = {
        1: [log_dir("/a", (0, 4))],
        2: [log_dir("/a", (0, 4))],
        3: "cannot connect",
    }
    model = snapshot_of(nodes, view((1, 2)), answers, None).model
    assert find_directories(model, 3, None) == []
    plan = decommission(model, 3, LIMITS)
    assert not plan.rounds
    end = end_of_drain(DrainTarget(3), plan, can_cordon=True)
    assert end.text == "broker 3 has no replicas; it does not answer, so it is not cordoned"
    assert end.facts == {"isCordoned": False, "wentOffline": []}


def test_topics_that_the_metadata_hides_are_named() -> None:
    answers: dict[int, Sequence[LogDirView] | str] = {
        1: [log_dir("/a", (0, 4))],
        2: [log_dir("/a", (0, 4))],
    }
    hidden = replace(view((1, 2)), topics={})
    assert snapshot_of([node(1), node(2)], hidden, answers, None).remarks == [
        "brokers hold 1 topic that the metadata does not show, such as t: their replicas are not "
        "planned. They were deleted a moment ago, or this user lacks DESCRIBE on them"
    ]


def test_equal_disks_that_are_equally_full_are_not_one_file_system() -> None:
    one, other = log_dir("/a", (0, 4), used_gib=5), log_dir("/b", (1, 4), used_gib=5)
    snapshot = snapshot_of([node(1)], view((1,), (1,)), {1: [one, other]}, None)
    assert snapshot.remarks == []
    empty = [log_dir("/a", used_gib=0), log_dir("/b", used_gib=0)]
    assert snapshot_of([node(1)], view(), {1: empty}, None).remarks == []


def test_deleted_replicas_do_not_count_as_fill_and_are_named() -> None:
    space = BrokerSpace([log_dir("/a", (0, 4), used_gib=10)], {"/a": 5 * GIB}, 90_000)
    snapshot = snapshot_of([node(1)], view((1,)), {1: space.views}, None, {1: space})
    (directory,) = snapshot.model.directories
    assert (directory.fill, directory.deletion_delay_ms) == (0.05, 90_000)
    assert snapshot.unexplained == []
    assert snapshot.remarks == [
        "deleted files still use 5.0 GiB (5.0 GiB in 1:/a), for up to 90 s after their deletion: "
        "fills do not count them, and copies wait for that space"
    ]


def test_a_broker_that_does_not_report_deletions_counts_those_of_this_execution() -> None:
    space = BrokerSpace([log_dir("/a", (0, 4), used_gib=10)])
    own = OwnDeletions()
    own.add((1, "/a"), 3 * GIB, 60_000)
    own.add((1, "/b"), 3 * GIB, 60_000)
    own.add((1, "/a"), 9 * GIB, -60_000)
    snapshot = snapshot_of([node(1)], view((1,)), {1: space.views}, None, {1: space}, own)
    (directory,) = snapshot.model.directories
    assert directory.kept_bytes == 7 * GIB
    assert snapshot.unexplained == [directory]
    own.add((1, "/a"), 90 * GIB, 60_000)
    snapshot = snapshot_of([node(1)], view((1,)), {1: space.views}, None, {1: space}, own)
    assert snapshot.model.directories[0].kept_bytes == 4 * GIB
    assert snapshot.unexplained == []


def test_a_slash_at_the_end_of_a_directory_means_the_same_directory() -> None:
    cluster = three_brokers().model
    assert find_directories(cluster, 1, "/b/") == find_directories(cluster, 1, "/b") == [1]
    assert [str(parse_drain_target(name)) for name in ("2", "2:/b", "2:/b/")] == [
        "2",
        "2:/b",
        "2:/b",
    ]


def test_a_directory_of_a_broker_that_does_not_answer_is_not_called_unknown() -> None:
    with pytest.raises(OperationFailed, match="broker 3 does not report its log directories"):
        find_directories(three_brokers().model, 3, "/a")
    with pytest.raises(OperationFailed, match="broker 2 has no log directory /b; it has /a"):
        find_directories(three_brokers().model, 2, "/b")


def test_the_screen_shows_bars_rounds_and_the_lower_bound() -> None:
    lines = plan_lines("empty 1:/a", drained(), LIMITS)
    assert [line.text for line in lines[:6]] == [
        "goal        empty 1:/a",
        "moves       1 move in 1 round, 4.0 GiB",
        "duration    at least 1:22 at 50.0 MiB/s for each broker",
        "lower bound 4.0 GiB (no plan moves less; this one moves 0.0 % more)",
        "spread      6.0 points before, 10.0 after, among the directories that stay",
        "leaders     0 to 1 for each broker that stays before, 0 to 1 after",
    ]
    assert lines[8].text.split()[-1] == "emptied"
    assert lines[-1].text == "    1      1  4.0 GiB  1:22      ████████████████████"
    assert bar_text(5, 10) == "█" * 10 + "░" * 10 + "  50.0 %"
    assert bar_text(5, 0) == "-"
    short = plan_lines("empty 1:/a", replace(drained(), lower_bound_bytes=2**40), LIMITS)
    assert short[3].text.endswith("(no plan that reaches the goal moves less; this one does not)")


@pytest.mark.parametrize(
    ("width", "has_bars", "has_paths"),
    [(50, False, False), (80, True, False), (100, False, True), (140, True, True)],
)
def test_the_screen_fits_into_a_terminal(width: int, has_bars: bool, has_paths: bool) -> None:
    remarks = ["broker 3 does not report its directories: " + "there is no answer " * 9]
    screen = plan_lines("empty 1:/a", drained(f"/{'long' * 9}"), LIMITS, remarks, width)
    lines = [line.text for line in screen]
    assert max(map(len, lines)) <= width
    assert any("█" in line and "%" in line for line in lines) == has_bars
    assert any("/" + "long" * 9 in line for line in lines) == has_paths
    assert sum("note" in line for line in lines) == 1


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(("plan", *words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture(scope="module")
def directories(up: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the directories of the node, which have six replicas together."""
    server = ("-b", str(up["bootstrap_servers"]))

    def listed() -> list[dict[str, Any]]:
        with redirect_stdout(StringIO()) as printed:
            assert run(("disks", "list", "--json", *server)) == 0
        (broker,) = json.loads(printed.getvalue())["brokers"]
        return list(broker["directories"])

    assert run(("topic", "create", "planned", "-p", "6", "-r", "1", *server)) == 0
    # The replicas are in the directories a moment after the topic was created.
    return wait_for(listed, lambda disks: sum(disk["partitions"] for disk in disks) >= 6)


def test_a_directory_of_a_running_node_is_planned_empty(
    bootstrap: str,
    directories: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path, count = directories[0]["path"], directories[0]["partitions"]
    code, out, _ = said(
        capsys, "drain", f"1:{path}", "--capacity", "1GiB", "--json", "--out", str(tmp_path / "p")
    )
    assert code == 0
    plan = json.loads(out)
    moves = [move for round_ in plan["rounds"] for move in round_["moves"]]
    assert len(moves) == count > 0
    assert {move["fromPath"] for move in moves} == {path}
    assert path not in {move["toPath"] for move in moves}
    assert (tmp_path / "p" / "rollback-0001.json").exists()
    code, out, _ = said(capsys, "drain", f"1:{path}", "--capacity", "1GiB")
    assert code == 0
    assert f"To carry it out: spindle drain 1:{path} --capacity 1GiB" in out


def test_a_goal_that_needs_no_moves_is_one_sentence(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, "heal", "--capacity", "1TiB")
    assert code == 0
    assert out == (
        "nothing to heal: no replica is in a failed directory, no directory is above 85%\n"
    )


def test_the_screen_says_what_was_written_and_what_is_next(
    bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, folder = tmp_path / "plan.html", tmp_path / "rounds"
    words = ("what-if", "--add-broker", "9", "--add-directory", "9:/new=1G", "--capacity", "1GiB")
    code, out, _ = said(capsys, *words, "--html", str(page))
    assert code == 0
    assert out.startswith("goal        balance the cluster with broker 9, with directory 9:/new=1G")
    assert out.endswith(f"Drew {page}\n")
    assert page.read_text().startswith("<!doctype html>")
    code, out, _ = said(capsys, "balance", "--capacity", "1GiB", "--out", str(folder))
    assert code == 0
    assert f"Wrote 0 files to {folder}" in out
    assert "kafka-reassign-partitions" not in out


@pytest.mark.parametrize(
    ("words", "step", "expected"),
    [
        ("drain 2 --capacity 200MiB", "spindle drain 2", " --capacity 200MiB"),
        ("drain 2 --throttle 1000000 --parallel 2", "spindle drain 2", _RATE_AND_MOVES),
        ("drain 2 -b host:1 --max-fill 90 --html p.html", "spindle drain 2", _ADDRESS_AND_FILL),
        ("balance --spread 2.5 --allow-rack-loss", "spindle balance", _SPREAD_AND_RACKS),
        ("balance --spread 2.5", "spindle drain 2", ""),
        ("balance --history . --horizon 36h", "spindle balance", " --history . --horizon 1d12h"),
        ("heal --trigger-fill 80 --target-fill 70", "spindle heal", _FILLS),
        ("what-if --add-broker 4 --capacity 1G", "add what is new", ""),
        ("balance", "spindle balance", ""),
    ],
)
def test_the_command_that_carries_a_plan_out_has_the_options_of_the_plan(
    words: str, step: str, expected: str
) -> None:
    root = click.Context(spindle, info_name="spindle")
    group = spindle.get_command(root, "plan")
    assert isinstance(group, click.Group)
    name, *rest = words.split()
    command = group.get_command(root, name)
    assert command is not None
    context = command.make_context(name, rest, parent=root)
    assert with_given_options(step, context) == step + expected


@pytest.mark.usefixtures("bootstrap", "directories")
def test_wrong_places_and_impossible_goals_end_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = {
        ("drain", "1:/nope"): "broker 1 has no log directory /nope; it has /",
        ("drain", "one"): "'one' is not BROKER or BROKER:DIR",
        ("decommission", "9"): "broker 9 is unknown or down; known brokers: 1",
        ("decommission", "1"): "it has 1 replica, and the plan can use 0 brokers",
        ("what-if",): "name at least one broker or directory",
        ("what-if", "--add-broker", "1"): "broker 1 exists already",
        ("what-if", "--add-directory", "7:/x=1G"): "there is no broker 7 for directory 7:/x",
        ("what-if", "--remove-broker", "1", "--add-directory", "1:/x=1G"): "1, which is removed",
        ("balance", "--max-fill", "nan"): "'nan' is not a finite number",
        ("balance", "--spread", "nan"): "'nan' is not a finite number",
        ("what-if", "--add-directory", "7:/x"): "is not BROKER:DIR=SIZE",
        ("what-if", "--add-directory", "7:/x=much"): "Invalid value: 'much' is not a size above 0",
    }
    for words, message in wrong.items():
        code, out, err = said(capsys, *words)
        assert (code, out) == (failure_code(err), ""), words
        assert message in err, words
