"""Plans and progress of `kafka-reassign-partitions`, and the numbers of the perf tools."""

import json
from datetime import datetime
from itertools import islice
from random import Random

import pytest

from spindle.cli.tools.consume_perf import row
from spindle.cli.tools.failures import ToolFailed, WrongOptions
from spindle.cli.tools.produce_perf import DECLARATION, Latencies, percentile_ms, record_keys
from spindle.cli.tools.reassign import list_lines, spread, status_lines
from spindle.cli.tools.reassignment_moves import active_moves, move_lines
from spindle.cli.tools.reassignment_plan import check_plan, parse_plan
from spindle.client.admin.partitions import Reassignment
from spindle.common.ids import TopicPartition
from spindle.operations.reassignment import Plan, Replica, ReplicaPlaces, plan_json
from spindle.operations.throttles import throttled_replicas
from tools import parsed

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def plan_text(*entries: dict[str, object]) -> str:
    return json.dumps({"version": 1, "partitions": entries})


def test_a_plan_and_its_text() -> None:
    text = plan_text(
        {"topic": "t", "partition": 1, "replicas": [2, 1], "log_dirs": ["/b", "any"]},
        {"topic": "t", "partition": 0, "replicas": [1]},
    )
    plan = parse_plan(text)
    assert plan == Plan({T0: (1,), T1: (2, 1)}, {Replica(2, T1): "/b"})
    assert parse_plan(plan_json(plan.replicas, plan.directories)) == plan
    assert plan_json({T0: (1,)}, {}) == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
    )


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "list cannot be empty"),
        ([{"topic": "t", "partition": 0, "replicas": []}], "replica list cannot be empty"),
        (
            [{"topic": "t", "partition": 0, "replicas": [1, 1]}],
            "t-0 contains multiple entries for 1",
        ),
        ([{"topic": "t", "partition": 0, "replicas": [1]}] * 2, "duplicate topic partitions: t-0"),
        (
            [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/a"]}],
            r"Size of replicas list \[1, 2\] is different from size of log dirs list \[/a\]",
        ),
        ([{"topic": "t", "partition": 0, "replicas": "1"}], "replicas of partition t-0"),
    ],
)
def test_plans_that_are_refused(entries: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ToolFailed, match=message):
        check_plan(parse_plan(plan_text(*entries)))


def test_a_proposal_changes_racks() -> None:
    current = {T0: (1, 2), T1: (1, 2)}
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert spread(current, [1, 2, 3, 4], racks) == {T0: (1, 3), T1: (3, 2)}
    assert spread(current, [1, 2], {}) == {T0: (1, 2), T1: (2, 1)}
    with pytest.raises(ToolFailed, match="larger than available brokers: 1"):
        spread(current, [1], {})
    with pytest.raises(ToolFailed, match="Not all brokers have rack information"):
        spread(current, [1, 2], {1: "a"})


def test_verify_reports_the_progress_of_each_partition() -> None:
    plan = Plan({T0: (1,), T1: (2, 1)})
    moving = {T1: Reassignment((2, 1), (2,), ())}
    assert status_lines(plan, {}, {T0: (1,), T1: (1,)})[1:] == [
        "Reassignment of partition t-0 is completed.",
        "There is no active reassignment of partition t-1, but replica set is 1 rather than 2,1.",
    ]
    assert status_lines(plan, moving, {})[2] == (
        "Reassignment of partition t-1 is still in progress."
    )
    assert list_lines(moving)[1] == "t-1: replicas: 2,1. adding: 2."
    assert list_lines({}) == ["No partition reassignments found."]


def test_moves_between_directories_are_reported_by_state() -> None:
    replica = Replica(1, T0)
    for places, line in [
        (ReplicaPlaces({}, {}), "is not found in any live log dir on broker 1"),
        (
            ReplicaPlaces({replica: "/b"}, {}),
            "Reassignment of replica t-0-1 completed successfully.",
        ),
        (ReplicaPlaces({replica: "/a"}, {}), "is not being moved from log dir /a to /b."),
        (ReplicaPlaces({replica: "/a"}, {replica: "/b"}), "replica t-0-1 is still in progress."),
        (ReplicaPlaces({replica: "/a"}, {replica: "/c"}), "moved to log dir /c instead of /b."),
    ]:
        (reported,) = move_lines({replica: "/b"}, places)
        assert line in reported
    assert active_moves({replica: "/b"}, ReplicaPlaces({replica: "/a"}, {replica: "/b"})) == {
        replica: "/a"
    }


def test_throttles_name_the_replicas_that_send_and_receive() -> None:
    assert throttled_replicas(Plan({T0: (2, 1)}), {T0: (1, 3)}) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:3",
            "follower.replication.throttled.replicas": "0:2",
        }
    }


def test_latencies_are_summarised_as_percentiles() -> None:
    samples = [(0.001, 98), (0.5, 1), (0.1, 1)]
    assert percentile_ms(samples, 0.5) == 1
    assert percentile_ms(samples, 0.99) == 100
    assert percentile_ms(samples, 0.999) == 500
    stats = Latencies()
    assert stats.add(10, 1000, stats.started) is None
    assert stats.total().startswith("10 records sent, ")
    assert stats.total().endswith(" ms 99.9th.")


def test_the_row_of_the_consumer() -> None:
    began, ended = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 3, 4, 7)
    assert row(began, ended, 10, 2 * 1024 * 1024, 1.0) == (
        "2026-01-02 03:04:05:000, 2026-01-02 03:04:07:000, 2.0000, 1.0000, 10, 5.0000, 1000, "
        "1000, 2.0000, 10.0000"
    )


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ([], [None] * 4),
        (["--key-distribution", "none"], [None] * 4),
        (["--key-distribution=range", "--record-key-range=3"], [b"0", b"1", b"2", b"0"]),
        (["--key-distribution=random", "--record-key-range=1"], [b"0"] * 4),
    ],
)
def test_keys_of_measured_records(words: list[str], keys: list[bytes | None]) -> None:
    made = record_keys(parsed(DECLARATION, words), Random(0))
    assert list(islice(made, 4)) == keys


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--record-key-range=3"], "--key-distribution must be 'range' or 'random'"),
        (["--key-distribution=range"], "--record-key-range is required"),
        (["--key-distribution=range", "--record-key-range=0"], "should be greater than zero"),
        (["--key-distribution=zipf"], "invalid choice: 'zipf' (choose from none, range, random)"),
    ],
)
def test_keys_that_contradict_each_other(words: list[str], text: str) -> None:
    with pytest.raises(WrongOptions) as caught:
        record_keys(parsed(DECLARATION, words), Random(0))
    assert text in str(caught.value)
