"""The stream reader against a small broker, called as Spark calls it, without a session."""

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from wire_broker import PartitionLog, WireBroker

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.streaming.reader import BrokerStreamReader
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch

TIME_MS = 1_700_000_000_000
EARLIEST = {"startingOffsets": "earliest"}
Json = dict[str, Any]


@dataclass
class Clock:
    """A clock that a test sets, in seconds. It is pickled with the reader."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        """Return at once; retries do not need the time to pass."""


NO_OPTIONS: Final[Mapping[str, str]] = {}


class Stream:
    """Plays the part of Spark: plans batches, and repeats one from its start and end."""

    def __init__(
        self,
        broker: WireBroker,
        start: Json | None = None,
        options: Mapping[str, str] = NO_OPTIONS,
        **named: str,
    ) -> None:
        given = {**options, **named}
        self.clock = Clock()
        defaults = {
            "kafka.bootstrap.servers": broker.address,
            "kafka.retry.backoff.ms": "1",
            "kafka.default.api.timeout.ms": "500",
            "fetchOffset.numRetries": "1",
            "kafkaConsumer.pollTimeoutMs": "50",
            "kafka.fetch.max.wait.ms": "1",
            "subscribe": "a",
        }
        if {"assign", "subscribePattern"} & given.keys():
            del defaults["subscribe"]
        self.reader = BrokerStreamReader(defaults | given, sleep=self.clock.sleep, clock=self.clock)
        self.start = start
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()

    def plan(self) -> tuple[Json, Json]:
        """Return start and end of the next batch, in the form of the checkpoint."""
        start = self.reader.initialOffset() if self.start is None else self.start
        end = self.reader.latestOffset(start, self.limit)
        self.start = json.loads(json.dumps(end))
        return start, end

    def rows(self, start: Json, end: Json) -> list[tuple[str, int, int]]:
        """Return the rows of a batch as its tasks read them, with copies of the reader."""
        places = []
        for task in self.reader.partitions(start, end):
            for batch in pickle.loads(pickle.dumps(self.reader)).read(task):
                rows = batch.to_pylist()
                places += [(row["topic"], row["partition"], row["offset"]) for row in rows]
        return sorted(places)

    def batch(self) -> list[tuple[str, int, int]]:
        return self.rows(*self.plan())

    def close(self) -> None:
        self.reader.stop()


def fill(broker: WireBroker, partition: int, count: int, topic: str = "a") -> None:
    """Append records in batches of five."""
    log = broker.log(topic, partition)
    offsets = range(log.end_offset, log.end_offset + count)
    for batch in (offsets[at : at + 5] for at in range(0, count, 5)):
        records = [SimpleRecord(b"k", b"v" * 100, TIME_MS + offset) for offset in batch]
        log.append(build_batch(records, batch[0]))


@pytest.fixture
def broker() -> Iterator[WireBroker]:
    with WireBroker() as running:
        fill(running, 0, 40)
        fill(running, 1, 20)
        yield running


def expected(partition: int, start: int, end: int, topic: str = "a") -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for offset in range(start, end)]


# ---------------------------------------------------------------- batches


def test_batches_follow_each_other_without_gap(broker: WireBroker) -> None:
    stream = Stream(broker, options=EARLIEST)
    assert stream.batch() == expected(0, 0, 40) + expected(1, 0, 20)
    idle = stream.start
    assert stream.plan()[1] == idle
    assert stream.rows(*stream.plan()) == []
    fill(broker, 1, 3)
    assert stream.batch() == expected(1, 20, 23)
    stream.close()


def test_a_new_stream_starts_at_the_end_of_the_log(broker: WireBroker) -> None:
    stream = Stream(broker)
    start, end = stream.plan()
    assert stream.rows(start, end) == []
    fill(broker, 0, 2)
    # The first batch was not committed: a restart repeats it, and knows where it began.
    restarted = Stream(broker, start=end)
    assert restarted.rows(restarted.reader.initialOffset(), end) == []
    assert restarted.batch() == expected(0, 40, 42)


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ({"startingOffsets": '{"a": {"0": 38, "1": -1}}'}, expected(0, 38, 40)),
        ({"startingTimestamp": str(TIME_MS + 38)}, expected(0, 35, 40)),
        ({"startingOffsetsByTimestamp": json.dumps({"a": {"0": TIME_MS + 36, "1": TIME_MS + 18}})},
         expected(0, 35, 40) + expected(1, 15, 20)),
        ({"assign": '{"a": [1]}', **EARLIEST}, expected(1, 0, 20)),
    ],
)  # fmt: skip
def test_a_new_stream_starts_at_the_configured_offsets(
    broker: WireBroker, given: dict[str, str], rows: list[Any]
) -> None:
    given = {"startingOffsetsByTimestampStrategy": "latest"} | given
    assert Stream(broker, options=given).batch() == rows


def test_a_repeated_batch_has_the_same_rows(broker: WireBroker) -> None:
    stream = Stream(broker, subscribePattern="a|b", maxOffsetsPerTrigger="30", options=EARLIEST)
    batches = []
    for _ in range(4):
        start, end = stream.plan()
        batches.append((start, end, stream.rows(start, end)))
        fill(broker, 0, 7)
        fill(broker, 2, 7)
        fill(broker, 0, 7, topic="b")
    for start, end, rows in batches:
        assert Stream(broker, subscribePattern="a|b").rows(start, end) == rows
    everything = [row for _, _, rows in batches for row in rows]
    assert len(everything) == len(set(everything)) > 100


def test_read_committed_ends_at_the_last_stable_offset(broker: WireBroker) -> None:
    broker.log("a", 0).last_stable_offset = 15
    stream = Stream(broker, assign='{"a": [0]}', isolationLevel="read_committed", options=EARLIEST)
    assert stream.batch() == expected(0, 0, 15)


def test_tasks_columns_and_headers_are_those_of_a_batch_read(broker: WireBroker) -> None:
    stream = Stream(broker, minPartitions="6", columns="offset", options=EARLIEST)
    tasks = stream.reader.partitions(*stream.plan())
    assert len(tasks) == 6
    (first, *_) = stream.reader.read(tasks[0])
    assert first.schema.names == ["offset"]


# ---------------------------------------------------------------- limits of a trigger


def test_offsets_of_a_batch_are_limited(broker: WireBroker) -> None:
    stream = Stream(broker, maxOffsetsPerTrigger="30", options=EARLIEST)
    assert stream.limit == ReadMaxRows(30)
    assert stream.batch() == expected(0, 0, 20) + expected(1, 0, 10)
    assert stream.batch() == expected(0, 20, 40) + expected(1, 10, 20)
    stream.limit, stream.start = ReadAllAvailable(), None
    assert len(stream.batch()) == 60


def test_bytes_of_a_batch_are_limited(broker: WireBroker) -> None:
    whole = sum(map(len, broker.log("a", 0).batches))
    limit = str(whole // 4)
    stream = Stream(broker, assign='{"a": [0]}', maxBytesPerTrigger=limit, options=EARLIEST)
    assert stream.limit == ReadMaxBytes(whole // 4)
    assert [len(stream.batch()) for _ in range(5)] == [10, 10, 10, 10, 0]


def test_a_limit_in_bytes_needs_the_sizes_of_the_logs(broker: WireBroker) -> None:
    broker.interrupt(
        DescribeLogDirsRequest,
        lambda _: DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    )
    with pytest.raises(ValueError, match="need the sizes of the logs, which the brokers do not"):
        Stream(broker, maxBytesPerTrigger="10", options=EARLIEST).plan()


def test_a_small_backlog_waits_until_the_delay_ends(broker: WireBroker) -> None:
    stream = Stream(broker, minOffsetsPerTrigger="10", maxTriggerDelay="20s", options=EARLIEST)
    assert stream.limit == ReadMinRows(10)
    assert len(stream.batch()) == 60
    fill(broker, 0, 9)
    assert stream.batch() == []
    fill(broker, 0, 1)
    assert stream.batch() == expected(0, 40, 50)
    fill(broker, 0, 1)
    stream.clock.now += 19
    assert stream.batch() == []
    stream.clock.now += 1
    assert stream.batch() == expected(0, 50, 51)


def test_available_now_ends_at_the_target_and_does_not_wait(broker: WireBroker) -> None:
    stream = Stream(broker, minOffsetsPerTrigger="50", maxOffsetsPerTrigger="50", options=EARLIEST)
    stream.reader.prepareForTriggerAvailableNow()
    rows = []
    for _ in range(9):
        rows += stream.batch()
        fill(broker, 0, 50)
        fill(broker, 2, 50)
    assert sorted(rows) == expected(0, 0, 40) + expected(1, 0, 20)
    idle = stream.start
    assert stream.plan()[1] == idle


def test_a_new_stream_at_latest_with_available_now_reads_nothing(broker: WireBroker) -> None:
    stream = Stream(broker)
    stream.reader.prepareForTriggerAvailableNow()
    fill(broker, 0, 5)
    assert stream.batch() == []
    assert stream.batch() == []


def test_progress_reports_the_ends_of_the_log(broker: WireBroker) -> None:
    stream = Stream(broker, maxOffsetsPerTrigger="3", options=EARLIEST)
    assert stream.reader.reportLatestOffset() is None
    stream.plan()
    assert stream.reader.reportLatestOffset() == {"a": {"0": 40, "1": 20}}


# ---------------------------------------------------------------- topics that change


def test_new_partitions_and_new_topics_are_read_from_their_beginning(broker: WireBroker) -> None:
    stream = Stream(broker, subscribePattern="^a|^b", options=EARLIEST)
    stream.plan()
    fill(broker, 2, 4)
    fill(broker, 0, 6, topic="bee")
    assert stream.batch() == expected(2, 0, 4) + expected(0, 0, 6, "bee")


def recreate(broker: WireBroker, count: int) -> None:
    del broker.logs[TopicPartition("a", 1)]
    log = broker.logs[TopicPartition("a", 0)]
    vars(log).update(vars(PartitionLog()))
    broker.topic_ids["a"] = bytes(15) + b"\x77"
    fill(broker, 0, count)


@pytest.mark.parametrize("count", [10, 100])
def test_a_topic_that_was_created_again_is_never_mixed_with_the_first(
    broker: WireBroker, count: int
) -> None:
    stream = Stream(broker, options=EARLIEST)
    stream.plan()
    recreate(broker, count)
    with pytest.raises(DataLoss, match="topic 'a' was deleted and created again"):
        Stream(broker, start=stream.start).plan()
    tolerant = Stream(broker, start=stream.start, failOnDataLoss="false")
    assert tolerant.batch() == expected(0, 0, count)
    fill(broker, 0, 1)
    # The loss is reported once; then the stream belongs to the new topic.
    assert Stream(broker, start=tolerant.start).batch() == expected(0, count, count + 1)


def test_a_batch_of_a_topic_that_was_created_again_cannot_be_repeated(broker: WireBroker) -> None:
    stream = Stream(broker, options=EARLIEST)
    start, end = stream.plan()
    recreate(broker, 100)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        Stream(broker).rows(start, end)
    assert Stream(broker, failOnDataLoss="false").rows(start, end) == []


def test_a_topic_that_is_gone_stops_the_stream_or_is_left_out(broker: WireBroker) -> None:
    fill(broker, 0, 5, topic="b")
    stream = Stream(broker, subscribe="a,b", options=EARLIEST)
    stream.plan()
    del broker.logs[TopicPartition("b", 0)]
    with pytest.raises(DataLoss, match="b-0 does not exist any more"):
        Stream(broker, subscribe="a,b", start=stream.start).plan()
    tolerant = Stream(broker, subscribe="a,b", start=stream.start, failOnDataLoss="false")
    for _ in range(2):
        fill(broker, 1, 1)
        assert len(tolerant.batch()) == 1
    broker.topic_ids["b"] = bytes(15) + b"\x55"
    fill(broker, 0, 5, topic="b")
    assert tolerant.batch() == expected(0, 0, 5, "b")


def test_available_now_ends_although_a_topic_vanishes(broker: WireBroker) -> None:
    fill(broker, 0, 50, topic="b")
    stream = Stream(
        broker, subscribe="a,b", maxOffsetsPerTrigger="20", failOnDataLoss="false", options=EARLIEST
    )
    stream.reader.prepareForTriggerAvailableNow()
    rows = stream.batch()
    del broker.logs[TopicPartition("b", 0)]
    for _ in range(9):
        rows += stream.batch()
    assert [row for row in sorted(rows) if row[0] == "a"] == expected(0, 0, 40) + expected(1, 0, 20)


def test_an_unknown_topic_is_named(broker: WireBroker) -> None:
    with pytest.raises(ApiError, match="nowhere"):
        Stream(broker, subscribe="a,nowhere").plan()
    stream = Stream(broker, options=EARLIEST)
    stream.plan()
    with pytest.raises(ApiError, match="nowhere"):
        Stream(broker, subscribe="a,nowhere", start=stream.start).plan()


def test_starting_offsets_must_name_the_partitions(broker: WireBroker) -> None:
    with pytest.raises(ValueError, match="missing: a-1; not read: a-7"):
        Stream(broker, startingOffsets='{"a": {"0": 1, "7": 1}}').plan()


# ---------------------------------------------------------------- lost records


def test_retention_that_passes_the_stream(broker: WireBroker) -> None:
    stream = Stream(broker, maxOffsetsPerTrigger="30", options=EARLIEST)
    stream.plan()
    broker.log("a", 0).log_start_offset = 27
    with pytest.raises(DataLoss, match="offsets 20 to 26 of a-0 were removed") as raised:
        Stream(broker, start=stream.start).plan()
    assert "failOnDataLoss=false" in str(raised.value)
    tolerant = Stream(broker, start=stream.start, failOnDataLoss="false")
    assert tolerant.batch() == expected(0, 27, 40) + expected(1, 10, 20)


def test_a_log_that_went_backwards(broker: WireBroker) -> None:
    stream = Stream(broker, start={"a": {"0": 90, "1": 20}})
    with pytest.raises(DataLoss, match="a-0 ends at offset 40, before offset 90"):
        stream.plan()
    tolerant = Stream(broker, start={"a": {"0": 90, "1": 20}}, failOnDataLoss="false")
    assert tolerant.batch() == []
    fill(broker, 0, 5)
    assert tolerant.batch() == expected(0, 40, 45)


def test_an_end_that_is_old_for_a_moment_is_no_loss(broker: WireBroker) -> None:
    log = broker.log("a", 0)

    def old(request: Any) -> Any:
        log.end_offset, current = 10, log.end_offset
        answer = broker.handle(request)
        log.end_offset = current
        return answer

    stream = Stream(broker, start={"a": {"0": 35, "1": 20}})
    broker.interrupt(ListOffsetsRequest, old)
    assert stream.batch() == expected(0, 35, 40)


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_of_the_kafka_source_is_taken_over(broker: WireBroker) -> None:
    stream = Stream(broker, start={"a": {"0": 37, "1": 20}})
    assert stream.batch() == expected(0, 37, 40)
    recreate(broker, 100)
    with pytest.raises(DataLoss, match="created again"):
        stream.plan()


@pytest.mark.parametrize(
    ("start", "complaint"),
    [
        ({"b": {"0": 1}}, "the checkpoint is about b-0, and the options select none"),
        ({"logOffset": 3}, "stream of another source"),
        ({"a": {"0": 1}, "@cluster=elsewhere": {}}, "comes from cluster elsewhere"),
    ],
)
def test_a_wrong_checkpoint_is_refused_whatever_loss_is_allowed(
    broker: WireBroker, start: Json, complaint: str
) -> None:
    stream = Stream(broker, start=start, failOnDataLoss="false")
    with pytest.raises(ValueError, match=complaint):
        stream.plan()
    with pytest.raises(ValueError, match=complaint):
        stream.reader.partitions(
            start, start | {"b": {"0": 9}} if "b" in start else start | {"a": {"0": 9}}
        )


def test_a_failed_commit_to_a_group_is_a_warning(
    broker: WireBroker, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(broker, commitOffsetsTo="lag", options=EARLIEST)
    stream.plan()
    assert not caplog.text
    stream.plan()
    assert "offsets were not committed to group 'lag'" in caplog.text


def test_an_unusable_option_is_reported_by_the_first_call() -> None:
    reader = BrokerStreamReader({"subscribe": "a"})
    with pytest.raises(ValueError, match=r"option kafka\.bootstrap\.servers is missing"):
        reader.initialOffset()
