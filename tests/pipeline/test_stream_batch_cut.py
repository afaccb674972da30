"""A batch of a stream has the same tasks whenever it is repeated: the checkpoint says how."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_directory_files import TOPIC_ID, ReplicaWriter, format_directory, simple_records
from wire_broker import WireBroker

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.streaming.batch_cut import (
    CutByBytes,
    CutByCount,
    cut_batch,
    cut_from_json,
    cut_to_json,
    topic_averages,
)
from spindle.pipeline.streaming.reader import BrokerStreamReader
from spindle.pipeline.streaming.segments_reader import SegmentsStreamReader
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from spindle.protocol.records.builder import build_batch

Json = dict[str, Any]
Bounds = list[list[tuple[int, int, int]]]
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def ranges(*bounds: tuple[TopicPartition, int, int]) -> list[OffsetRange]:
    return [OffsetRange(partition, ZERO_UUID, start, end) for partition, start, end in bounds]


def test_tasks_get_about_the_same_bytes_of_topics_with_unlike_records() -> None:
    whole = ranges((A0, 0, 100), (A1, 50, 150), (B0, 0, 20))
    cut = CutByBytes(3, {"a": 10, "b": 50})
    repeated = cut_from_json(json.loads(json.dumps(cut_to_json(cut))))
    assert cut_batch(whole, repeated) == [
        tuple(ranges((A0, 0, 100))),
        tuple(ranges((A1, 50, 150))),
        tuple(ranges((B0, 0, 20))),
    ]


def test_a_cut_by_offsets_remembers_its_options() -> None:
    cut = cut_from_json(cut_to_json(CutByCount(min_partitions=4)))
    assert cut == CutByCount(min_partitions=4)
    assert [task[0].size for task in cut_batch(ranges((A0, 0, 100)), cut)] == [25] * 4


def test_the_average_of_a_topic_is_that_of_the_offsets_that_are_read() -> None:
    whole = ranges((A0, 0, 30), (A1, 0, 10), (B0, 0, 1))
    assert topic_averages(whole, {A0: 10.0, A1: 21.0, B0: 0.2}) == {"a": 13, "b": 1}


# ---------------------------------------------------------------- repeated batches


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    writer = ReplicaWriter(
        format_directory(tmp_path / "d1", cluster_id="wire-broker"), TopicPartition("topic", 0)
    )
    writer.append_records(simple_records(100))
    return writer


@pytest.fixture
def broker(replica: ReplicaWriter) -> Iterator[WireBroker]:
    with WireBroker() as running:
        running.topic_ids["topic"] = TOPIC_ID
        fill(running, replica)
        yield running


def fill(broker: WireBroker, replica: ReplicaWriter) -> None:
    """Give the broker what the files have."""
    log = broker.log("topic", 0)
    log.batches.clear()
    for segment in sorted(replica.path.glob("*.log")):
        log.append(segment.read_bytes())
    log.end_offset = replica.next_offset


def reader_of(kind: str, broker: WireBroker, folder: Path, **options: str) -> BrokerStreamReader:
    given = {
        "kafka.bootstrap.servers": broker.address,
        "subscribe": "topic",
        "startingOffsets": "earliest",
        "fetchOffset.numRetries": "0",
        **options,
    }
    if kind == "spindle":
        return BrokerStreamReader(given)
    return SegmentsStreamReader(given | {"logDirs": str(folder / "d1")})


def cut_of(reader: BrokerStreamReader, end: Json) -> Bounds:
    """Return partition, start and end of the ranges of each task of the first batch."""
    bounds: Bounds = []
    for task in reader.partitions(reader.initialOffset(), end):
        own: Any = getattr(task, "planned", task)
        bounds.append([(r.partition.partition, r.start_offset, r.end_offset) for r in own.ranges])
    reader.stop()
    return bounds


@pytest.fixture(params=["spindle", "spindle-segments"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def planned(kind: str, broker: WireBroker, tmp_path: Path) -> Json:
    """The end of the first batch, of four tasks."""
    reader = reader_of(kind, broker, tmp_path, taskBytes="1500")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
    return dict(json.loads(json.dumps(end)))


def test_the_size_of_a_task_cuts_a_batch(
    kind: str, broker: WireBroker, planned: Json, tmp_path: Path
) -> None:
    cut = cut_of(reader_of(kind, broker, tmp_path), planned)
    assert len(cut) > 2
    assert cut[0][0][1] == 0
    ends = [task[-1][2] for task in cut]
    assert ends == sorted(ends)
    assert ends[-1] == 100


def test_a_repeated_batch_has_the_same_tasks_after_the_log_grew_and_rolled(
    kind: str, broker: WireBroker, replica: ReplicaWriter, planned: Json, tmp_path: Path
) -> None:
    before = cut_of(reader_of(kind, broker, tmp_path), planned)
    replica.roll()
    replica.append_records(simple_records(900, first=100, value_bytes=500))
    fill(broker, replica)
    assert cut_of(reader_of(kind, broker, tmp_path), planned) == before


@pytest.mark.parametrize(
    "changed", [{"parallelism": "64"}, {"minPartitions": "50"}, {"taskBytes": "1"}]
)
def test_a_repeated_batch_has_the_same_tasks_with_other_options_and_executors(
    kind: str, broker: WireBroker, planned: Json, tmp_path: Path, changed: dict[str, str]
) -> None:
    before = cut_of(reader_of(kind, broker, tmp_path), planned)
    assert cut_of(reader_of(kind, broker, tmp_path, **changed), planned) == before


def test_a_repeated_batch_has_the_same_tasks_if_other_brokers_report_no_sizes(
    kind: str, broker: WireBroker, replica: ReplicaWriter, planned: Json, tmp_path: Path
) -> None:
    before = cut_of(reader_of(kind, broker, tmp_path), planned)
    with WireBroker() as other:
        other.topic_ids["topic"] = TOPIC_ID
        fill(other, replica)
        refusal = DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        other.interrupt(DescribeLogDirsRequest, lambda _: refusal)
        assert cut_of(reader_of(kind, other, tmp_path), planned) == before


def test_tasks_keep_their_numbers_if_the_first_segment_was_deleted(
    broker: WireBroker, replica: ReplicaWriter, tmp_path: Path
) -> None:
    replica.roll()
    replica.append_records(simple_records(100, first=100))
    fill(broker, replica)
    options = {"taskBytes": "1500", "failOnDataLoss": "false"}
    reader = reader_of("spindle-segments", broker, tmp_path, **options)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    before = cut_of(reader, end)
    for file in replica.path.glob(f"{0:020d}.*"):
        file.unlink()
    broker.log("topic", 0).log_start_offset = 100
    after = cut_of(reader_of("spindle-segments", broker, tmp_path, **options), end)
    # Each task reads what is left of its offsets.
    assert after == [
        [(number, max(start, 100), stop) for number, start, stop in task if stop > 100]
        for task in before
    ]
    strict = reader_of("spindle-segments", broker, tmp_path)
    with pytest.raises(DataLoss, match="starting offset 0 is outside the log"):
        cut_of(strict, end)


def test_a_batch_that_the_kafka_source_planned_is_cut_as_that_source_cuts(
    kind: str, broker: WireBroker, tmp_path: Path
) -> None:
    broker.log("topic", 0).append(build_batch(simple_records(1, first=100), base_offset=100))
    reader = reader_of(kind, broker, tmp_path, minPartitions="2", failOnDataLoss="false")
    tasks = reader.tasks({"topic": {"0": 0}}, {"topic": {"0": 100}})
    assert [[(r.start_offset, r.end_offset) for r in task] for task in tasks] == [
        [(0, 50)],
        [(50, 100)],
    ]
    reader.stop()
