"""Planning and reading against a small broker: offsets, isolation, loss, and identical rows."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from wire_broker import WireBroker

from spindle.client.blocking.fetcher import NoProgress
from spindle.client.errors import ConnectionLost
from spindle.common.errors import ApiError, CorruptRecords, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.options import broker_read_options
from spindle.pipeline.brokers.planning import plan_tasks
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.brokers.reading import read_ranges, settled
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction

TIME_MS = 1_700_000_000_000


@pytest.fixture
def broker() -> Iterator[WireBroker]:
    with WireBroker() as running:
        for partition in (0, 1):
            log = running.log("a", partition)
            for base in range(0, 40, 10):
                log.append(numbered_batch(base, 10))
        yield running


def numbered_batch(base_offset: int, count: int, **fields: Any) -> bytes:
    records = [
        SimpleRecord(b"k%d" % n, b"v%d" % n, TIME_MS + n)
        for n in range(base_offset, base_offset + count)
    ]
    return build_batch(records, base_offset, **fields)


def options(broker: WireBroker, **given: str) -> Any:
    defaults = {
        "kafka.bootstrap.servers": broker.address,
        "kafka.retry.backoff.ms": "1",
        "kafka.default.api.timeout.ms": "500",
        "fetchOffset.numRetries": "1",
        "kafkaConsumer.pollTimeoutMs": "50",
        "kafka.fetch.max.wait.ms": "1",
        "fetchMaxBytes": "1024",
        "parallelism": "1",
    }
    if not {"subscribe", "assign", "subscribePattern"} & given.keys():
        defaults["subscribe"] = "a"
    return broker_read_options(defaults | given)


def plan(broker: WireBroker, **given: str) -> list[tuple[int, int, int]]:
    tasks = plan_tasks(options(broker, **given), sleep=lambda _: None)
    return [
        (part.partition.partition, part.start_offset, part.end_offset)
        for task in tasks
        for part in task
    ]


def rows(broker: WireBroker, **given: str) -> list[dict[str, Any]]:
    parsed = options(broker, **given)
    rows: list[dict[str, Any]] = []
    for task in plan_tasks(parsed):
        for batch in read_ranges(parsed, task):
            rows.extend(batch.to_pylist())
    return rows


# ---------------------------------------------------------------- planning


def per_partition(**offsets: int) -> str:
    return json.dumps({"a": {name.removeprefix("p"): value for name, value in offsets.items()}})


@pytest.mark.parametrize(
    ("given", "planned"),
    [
        ({}, [(0, 0, 40), (1, 0, 40)]),
        ({"assign": '{"a": [1]}'}, [(1, 0, 40)]),
        ({"subscribePattern": "^a$"}, [(0, 0, 40), (1, 0, 40)]),
        ({"subscribePattern": "nothing"}, []),
        ({"startingOffsets": per_partition(p0=7, p1=-2)}, [(0, 7, 40), (1, 0, 40)]),
        ({"endingOffsets": per_partition(p0=7, p1=-1)}, [(0, 0, 7), (1, 0, 40)]),
        ({"startingOffsets": per_partition(p0=40, p1=3)}, [(1, 3, 40)]),
        ({"startingTimestamp": str(TIME_MS + 15)}, [(0, 10, 40), (1, 10, 40)]),
        ({"endingTimestamp": str(TIME_MS + 15)}, [(0, 0, 10), (1, 0, 10)]),
        ({"endingTimestamp": str(TIME_MS + 999)}, [(0, 0, 40), (1, 0, 40)]),
        (
            {
                "startingTimestamp": str(TIME_MS + 999),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [],
        ),
        (
            {"startingOffsetsByTimestamp": per_partition(p0=0, p1=TIME_MS + 20)},
            [(0, 0, 40), (1, 20, 40)],
        ),
        ({"minPartitions": "4"}, [(0, 0, 20), (0, 20, 40), (1, 0, 20), (1, 20, 40)]),
        ({"maxRecordsPerPartition": "30"}, [(0, 0, 20), (0, 20, 40), (1, 0, 20), (1, 20, 40)]),
    ],
)
def test_offsets_and_limits_become_planned_ranges(
    broker: WireBroker, given: dict[str, str], planned: list[tuple[int, int, int]]
) -> None:
    assert plan(broker, **given) == planned


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingTimestamp": str(TIME_MS + 999)}, "no record at or after"),
        ({"startingOffsets": per_partition(p0=1)}, "missing: a-1; not read: none"),
        ({"endingOffsets": per_partition(p0=1, p1=1, p2=1)}, "not read: a-2"),
        ({"startingOffsets": per_partition(p0=41, p1=0)}, "offset 41, after its end 40"),
        ({"assign": '{"a": [0, 5]}'}, "no such partition: a-5"),
    ],
)
def test_limits_that_do_not_fit_the_topic(
    broker: WireBroker, given: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        plan(broker, **given)


def test_an_end_beyond_the_log_is_noticed_by_the_plan(broker: WireBroker) -> None:
    broker.log("empty", 0)
    beyond = {"endingOffsets": per_partition(p0=99, p1=-1)}
    with pytest.raises(
        DataLoss, match="a-0: ending offset 99 is outside the log, which ends at 40"
    ):
        plan(broker, **beyond)
    tolerant = {**beyond, "failOnDataLoss": "false"}
    assert plan(broker, **tolerant) == [(0, 0, 40), (1, 0, 40)]
    tolerant["startingOffsets"] = per_partition(p0=70, p1=5)
    assert plan(broker, **tolerant) == [(1, 5, 40)]
    empty = {"subscribe": "empty", "endingOffsets": '{"empty": {"0": 1}}'}
    with pytest.raises(DataLoss, match="ends at 0"):
        plan(broker, **empty)
    assert plan(broker, **empty, failOnDataLoss="false") == []


def test_a_topic_that_does_not_exist_is_asked_for_as_often_as_configured(
    broker: WireBroker,
) -> None:
    with pytest.raises(ApiError, match="topic 'b' does not exist in cluster wire-broker"):
        plan(broker, subscribe="b", **{"fetchOffset.numRetries": "2"})
    assert len(broker.requests[MetadataRequest]) == 3


def test_internal_topics_are_never_read(broker: WireBroker) -> None:
    broker.log("__internal", 0).append(numbered_batch(0, 1))
    broker.internal.append("__internal")
    assert plan(broker, subscribePattern="internal") == []
    assert plan(broker, subscribe="__internal") == []


def test_read_committed_ends_at_the_last_stable_offset(broker: WireBroker) -> None:
    broker.log("a", 0).last_stable_offset = 20
    assert plan(broker, isolationLevel="read_committed") == [(0, 0, 20), (1, 0, 40)]


def test_sizes_that_may_not_be_asked_do_not_stop_a_read(broker: WireBroker) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    broker.interrupt(DescribeLogDirsRequest, lambda _: DescribeLogDirsResponse(error_code=denied))
    assert plan(broker) == [(0, 0, 40), (1, 0, 40)]


def test_planning_retries_before_it_reports_that_no_broker_answers(broker: WireBroker) -> None:
    parsed = options(broker, **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    pauses: list[float] = []
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        plan_tasks(parsed, sleep=pauses.append)
    assert pauses == [1.0]


# ---------------------------------------------------------------- reading


def test_rows_are_those_of_the_built_in_source(broker: WireBroker) -> None:
    broker.log("rows", 3).append(
        build_batch(
            [
                SimpleRecord(b"k", b"v", TIME_MS, (("h", b"1"), ("h", None))),
                SimpleRecord(None, None, -1),
                SimpleRecord(b"", b"", TIME_MS + 1),
            ]
        )
    )
    read_rows = rows(broker, subscribe="rows", includeHeaders="true")
    assert [row["key"] for row in read_rows] == [b"k", None, b""]
    assert [row["value"] for row in read_rows] == [b"v", None, b""]
    assert [row["offset"] for row in read_rows] == [0, 1, 2]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in read_rows} == {
        ("rows", 3, 0)
    }
    milliseconds = [round(row["timestamp"].timestamp() * 1000) for row in read_rows]
    assert milliseconds == [TIME_MS, -1, TIME_MS + 1]
    assert [row["headers"] for row in read_rows] == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        None,
        None,
    ]


def test_ranges_are_cut_inside_batches(broker: WireBroker) -> None:
    read_rows = rows(
        broker,
        startingOffsets=per_partition(p0=7, p1=38),
        endingOffsets=per_partition(p0=23, p1=-1),
    )
    assert [row["offset"] for row in read_rows] == [*range(7, 23), 38, 39]


def test_columns_shrink_the_rows(broker: WireBroker) -> None:
    parsed = options(broker, columns="offset,key")
    (task,) = plan_tasks(parsed)
    batches = list(read_ranges(parsed, task))
    assert batches[0].schema.names == ["offset", "key"]
    assert sum(batch.num_rows for batch in batches) == 80


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_of_every_codec_are_read(broker: WireBroker, codec: int) -> None:
    broker.log("packed", 0).append(numbered_batch(0, 50, codec=codec))
    assert [row["value"] for row in rows(broker, subscribe="packed")] == [
        b"v%d" % n for n in range(50)
    ]


def transactional_log(broker: WireBroker) -> None:
    """Let producer 5 abort offsets 0-9 and commit 11-20; 22-31 are without a transaction."""
    log = broker.log("tx", 0)
    log.append(numbered_batch(0, 10, producer_id=5, producer_epoch=0, is_transactional=True))
    log.append(marker(10, commit=False))
    log.append(numbered_batch(11, 10, producer_id=5, producer_epoch=0, is_transactional=True))
    log.append(marker(21, commit=True))
    log.append(numbered_batch(22, 10))
    log.aborted = [(5, 0)]


def marker(offset: int, *, commit: bool) -> bytes:
    outcome = EndTransactionMarker(commit, coordinator_epoch=0)
    batch = bytearray(build_end_transaction(outcome, 5, 0, TIME_MS))
    batch[0:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def test_read_committed_leaves_out_what_was_aborted(broker: WireBroker) -> None:
    transactional_log(broker)
    read_rows = rows(broker, subscribe="tx", isolationLevel="read_committed")
    assert [row["offset"] for row in read_rows] == [*range(11, 21), *range(22, 32)]


def test_read_uncommitted_returns_everything_but_markers(broker: WireBroker) -> None:
    transactional_log(broker)
    read_rows = rows(broker, subscribe="tx")
    assert [row["offset"] for row in read_rows] == [*range(10), *range(11, 21), *range(22, 32)]


def test_gaps_of_compaction_are_no_loss(broker: WireBroker) -> None:
    log = broker.log("gaps", 0)
    log.append(numbered_batch(3, 2))
    log.append(numbered_batch(50, 2))
    assert [row["offset"] for row in rows(broker, subscribe="gaps")] == [3, 4, 50, 51]


# ---------------------------------------------------------------- filters


def filtered(broker: WireBroker, filters: PushedFilters) -> tuple[list[tuple[int, int]], int]:
    """Return partition and offset of the rows, and the number of planned offsets."""
    parsed = options(broker)
    tasks = plan_tasks(parsed, filters)
    places = [
        (row["partition"], row["offset"])
        for task in tasks
        for batch in read_ranges(parsed, task, filters)
        for row in batch.to_pylist()
    ]
    return places, sum(part.size for task in tasks for part in task)


def test_bounds_on_times_as_options(broker: WireBroker) -> None:
    read_rows = rows(broker, minTimestamp=str(TIME_MS + 8), maxTimestamp=str(TIME_MS + 11))
    assert [row["offset"] for row in read_rows] == [8, 9, 10, 11, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("filters", "expected", "planned_offsets"),
    [
        (PushedFilters(partitions=frozenset({1})), [(1, n) for n in range(40)], 40),
        (PushedFilters(topics=frozenset({"b"})), [], 0),
        (
            PushedFilters(min_offset=12, end_offset=15),
            [(p, n) for p in (0, 1) for n in range(12, 15)],
            6,
        ),
        (PushedFilters(min_offset=99), [], 0),
        # The broker finds the batch; the kernel leaves out its other records.
        (
            PushedFilters(min_timestamp_ms=TIME_MS + 25),
            [(p, n) for p in (0, 1) for n in range(25, 40)],
            40,
        ),
        (
            PushedFilters(max_timestamp_ms=TIME_MS + 3),
            [(p, n) for p in (0, 1) for n in range(4)],
            80,
        ),
        (PushedFilters(min_timestamp_ms=TIME_MS + 99), [], 0),
    ],
)
def test_filters_narrow_what_is_planned_and_read(
    broker: WireBroker,
    filters: PushedFilters,
    expected: list[tuple[int, int]],
    planned_offsets: int,
) -> None:
    assert filtered(broker, filters) == (expected, planned_offsets)


# ---------------------------------------------------------------- open ends


def read_again(broker: WireBroker, plan: Any, parsed: Any) -> list[tuple[int, int]]:
    """Return the rows of a plan that is used once more, as Spark does."""
    return [
        (row["partition"], row["offset"])
        for task in plan
        for batch in read_ranges(parsed, settled(parsed, task))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("min_partitions", [None, "5"])
def test_records_that_arrive_after_planning_are_read(
    broker: WireBroker, min_partitions: str | None
) -> None:
    broker.log("a", 2)
    given = {} if min_partitions is None else {"minPartitions": min_partitions}
    parsed = options(broker, parallelism="2", **given)
    tasks = plan_tasks(parsed, keep_empty_ends=True)
    before = read_again(broker, tasks, parsed)
    assert sorted(before) == [(p, n) for p in (0, 1) for n in range(40)]
    broker.log("a", 1).append(numbered_batch(40, 3))
    broker.log("a", 2).append(numbered_batch(0, 2))
    new = [(1, 40), (1, 41), (1, 42), (2, 0), (2, 1)]
    assert sorted(read_again(broker, tasks, parsed)) == sorted(before + new)


def test_a_read_from_earliest_ignores_records_deleted_before_it_starts(
    broker: WireBroker,
) -> None:
    parsed = options(broker, minPartitions="4")
    tasks = plan_tasks(parsed)
    broker.log("a", 0).log_start_offset = 25
    expected = [(0, n) for n in range(25, 40)] + [(1, n) for n in range(40)]
    assert sorted(read_again(broker, tasks, parsed)) == expected
    with pytest.raises(DataLoss):
        list(read_ranges(parsed, tasks[0]))


def test_limits_by_offset_stay_as_they_are(broker: WireBroker) -> None:
    parsed = options(
        broker,
        startingOffsets=per_partition(p0=5, p1=39),
        endingOffsets=per_partition(p0=7, p1=40),
    )
    tasks = plan_tasks(parsed, keep_empty_ends=True)
    broker.log("a", 1).append(numbered_batch(40, 3))
    assert read_again(broker, tasks, parsed) == [(0, 5), (0, 6), (1, 39)]


# ---------------------------------------------------------------- loss


def planned(broker: WireBroker, start: int, end: int) -> tuple[OffsetRange, ...]:
    return (OffsetRange(TopicPartition("a", 0), broker.topic_ids["a"], start, end),)


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize(
    ("log_start", "lost", "left"),
    [(15, "offsets 0 to 14 of a-0", range(15, 30)), (35, "offsets 0 to 29 of a-0", range(0))],
)
def test_records_removed_before_the_read(
    broker: WireBroker, log_start: int, lost: str, left: range
) -> None:
    broker.log("a", 0).log_start_offset = log_start
    task = planned(broker, 0, 30)
    with pytest.raises(DataLoss, match=f"{lost} cannot be read.*failOnDataLoss=false"):
        list(read_ranges(options(broker), task))
    assert offsets(read_ranges(options(broker, failOnDataLoss="false"), task)) == list(left)


def test_records_removed_during_the_read(broker: WireBroker) -> None:
    log = broker.log("a", 0)
    for base in range(40, 400, 10):
        log.append(numbered_batch(base, 10))
    for tolerant, expected in (("false", None), ("true", DataLoss)):
        log.log_start_offset = 0
        reading = read_ranges(options(broker, failOnDataLoss=tolerant), planned(broker, 0, 400))
        first = next(reading).column("offset").to_pylist()
        log.log_start_offset = 395
        if expected is not None:
            with pytest.raises(expected):
                offsets(reading)
            continue
        read = first + offsets(reading)
        assert read[0] == 0
        assert read[-5:] == [395, 396, 397, 398, 399]
        assert read == sorted(set(read))
        assert len(read) < 400


def test_offsets_behind_a_truncated_log_are_data_loss(broker: WireBroker) -> None:
    task = planned(broker, 45, 50)
    with pytest.raises(DataLoss, match="offsets 45 to 49"):
        list(read_ranges(options(broker), task))
    assert offsets(read_ranges(options(broker, failOnDataLoss="false"), task)) == []


def test_a_leader_that_contradicts_itself(broker: WireBroker) -> None:
    def refuse(_: FetchRequest) -> FetchResponse:
        topic = FetchResponse.FetchableTopicResponse
        data = topic.PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        return FetchResponse(responses=[topic(partitions=[data])])

    task = planned(broker, 0, 40)
    broker.interrupt(FetchRequest, refuse)
    assert offsets(read_ranges(options(broker), task)) == list(range(40))
    broker.interrupt(FetchRequest, refuse, refuse)
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        offsets(read_ranges(options(broker), task))


def test_a_topic_that_was_created_again_is_not_read_as_the_old_one(broker: WireBroker) -> None:
    task = (OffsetRange(TopicPartition("a", 0), b"id of the former", 0, 40),)
    with pytest.raises(DataLoss, match="deleted and created again"):
        list(read_ranges(options(broker), task))
    assert offsets(read_ranges(options(broker, failOnDataLoss="false"), task)) == []


def test_an_end_that_does_not_exist_yet(broker: WireBroker) -> None:
    with pytest.raises(NoProgress, match="a-0 returned no records at offset 40 for 50 ms"):
        list(read_ranges(options(broker), planned(broker, 0, 41)))


def test_a_corrupt_batch_is_named(broker: WireBroker) -> None:
    batch = bytearray(numbered_batch(0, 3))
    batch[-1] ^= 1
    broker.log("bad", 0).append(bytes(batch))
    with pytest.raises(CorruptRecords, match=r"bad-0.*offset 0"):
        rows(broker, subscribe="bad")


def test_a_corrupt_batch_is_left_out_or_has_a_row(broker: WireBroker) -> None:
    log = broker.log("bad", 0)
    for base in range(0, 30, 10):
        batch = bytearray(numbered_batch(base, 10))
        batch[-1] ^= base == 10
        log.append(bytes(batch))
    read_rows = rows(broker, subscribe="bad", corruptBatches="skip", columns="offset")
    assert [row["offset"] for row in read_rows] == [*range(10), *range(20, 30)]
    read_rows = rows(broker, subscribe="bad", corruptBatches="permissive", columns="offset,value")
    (bad,) = [row for row in read_rows if row["corruption"] is not None]
    assert (bad["offset"], bad["value"], len(read_rows)) == (10, None, 21)
    assert bad["corruption"]["lastOffset"] == 19
    assert bad["corruption"]["reason"].startswith("the checksum is wrong")
    assert bad["corruption"]["file"] is None
