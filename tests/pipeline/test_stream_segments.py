"""Streams from log directories: a small broker plans the batches, the files give the rows."""

import pickle
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from log_directory_files import TOPIC_ID, ReplicaWriter, format_directory, simple_records
from pyspark.sql.streaming.datasource import ReadMaxRows
from wire_broker import WireBroker

from spindle.common.ids import TopicPartition
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.sources.segments import SegmentsDataSource
from spindle.pipeline.streaming.segments_reader import SegmentsStreamReader
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.records.builder import build_batch

T0 = TopicPartition("topic", 0)


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    writer = ReplicaWriter(format_directory(tmp_path / "d1", cluster_id="wire-broker"), T0)
    writer.append_records(simple_records(100))
    return writer


@pytest.fixture
def broker(replica: ReplicaWriter) -> Iterator[WireBroker]:
    with WireBroker() as running:
        running.topic_ids["topic"] = TOPIC_ID
        running.log("topic", 0).end_offset = 70
        yield running


def given(broker: WireBroker, folder: Path, **options: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.address,
        "logDirs": str(folder / "d1"),
        "subscribe": "topic",
        "startingOffsets": "earliest",
        "fetchOffset.numRetries": "0",
        **options,
    }


def read(reader: SegmentsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    tasks = reader.partitions(start, end)
    copies = [pickle.loads(pickle.dumps((reader, task))) for task in tasks]
    batches = [batch for copy, task in copies for batch in copy.read(task)]
    return sorted(offset for batch in batches for offset in batch.column("offset").to_pylist())


def test_rows_come_from_the_files_up_to_the_offsets_of_the_broker(
    broker: WireBroker, tmp_path: Path
) -> None:
    reader = SegmentsStreamReader(given(broker, tmp_path, maxOffsetsPerTrigger="45"))
    limit = ReadMaxRows(45)
    ends = [reader.initialOffset()]
    for _ in range(3):
        ends.append(reader.latestOffset(ends[-1], limit))
    broker.log("topic", 0).end_offset = 100
    ends.append(reader.latestOffset(ends[-1], limit))
    batches = [read(reader, *pair) for pair in pairwise(ends)]
    assert batches == [
        list(range(45)), list(range(45, 70)), [], list(range(70, 100)),
    ]  # fmt: skip
    assert not broker.requests[FetchRequest]
    again = SegmentsStreamReader(given(broker, tmp_path))
    assert read(again, ends[0], ends[1]) == batches[0]


def test_a_topic_that_was_created_again_stops_the_stream(
    broker: WireBroker, tmp_path: Path
) -> None:
    reader = SegmentsStreamReader(given(broker, tmp_path))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    broker.topic_ids["topic"] = bytes(15) + b"\x77"
    with pytest.raises(DataLoss, match="was deleted and created again"):
        reader.latestOffset(end, reader.getDefaultReadLimit())


def test_records_that_a_replica_lacks_are_read_from_the_brokers(
    broker: WireBroker, replica: ReplicaWriter, tmp_path: Path
) -> None:
    for segment in sorted(replica.path.glob("*.log")):
        broker.log("topic", 0).append(segment.read_bytes())
    broker.log("topic", 0).append(build_batch(simple_records(20, first=100), base_offset=100))
    reader = SegmentsStreamReader(given(broker, tmp_path, failOnDataLoss="false"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert read(reader, start, end) == list(range(120))


@pytest.mark.parametrize("is_created_again", [True, False])
def test_a_batch_of_a_topic_that_is_gone_is_repeated_without_its_rows(
    broker: WireBroker, replica: ReplicaWriter, tmp_path: Path, is_created_again: bool
) -> None:
    reader = SegmentsStreamReader(given(broker, tmp_path))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    replica.path.rename(replica.directory / f"topic-0.{'0' * 32}-delete")
    if is_created_again:
        broker.topic_ids["topic"] = bytes(15) + b"\x77"
    else:
        broker.logs.clear()
        broker.topic_ids.clear()
    lenient = SegmentsStreamReader(given(broker, tmp_path, failOnDataLoss="false"))
    assert read(lenient, start, end) == []
    with pytest.raises(DataLoss, match=r"'topic' (was deleted and created|does not exist)"):
        read(SegmentsStreamReader(given(broker, tmp_path)), start, end)


def test_options_of_a_stream_are_accepted_and_brokers_are_needed(
    broker: WireBroker, tmp_path: Path
) -> None:
    options = given(broker, tmp_path, startingOffsets="latest")
    assert "`offset` bigint" in SegmentsDataSource(options).schema()
    del options["kafka.bootstrap.servers"]
    with pytest.raises(ValueError, match="startingOffsets: 'latest'"):
        SegmentsDataSource(options).schema()
    with pytest.raises(ValueError, match=r"kafka\.bootstrap\.servers is missing"):
        SegmentsStreamReader(options).initialOffset()
