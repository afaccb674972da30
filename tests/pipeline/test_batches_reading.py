"""Rows of `spindle-batches`, read without Spark, and the counts that follow from them."""

from pathlib import Path
from typing import Any

import pytest
from log_directory_files import (
    ReplicaWriter,
    corrupt_byte,
    format_directory,
    marker,
    simple_records,
    size_of_first_batch,
)

from spindle.columnar.batch_columns import BATCH_COLUMNS, BATCH_TYPES
from spindle.columnar.columns import arrow_schema
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.pipeline.segments.batch_reader import read_batch_ranges
from spindle.pipeline.segments.failover import read_settings
from spindle.pipeline.segments.options import parse_batch_options, parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions
from spindle.pipeline.segments.ranges import plan_tasks, resolve_ranges
from spindle.pipeline.segments.reader import read_ranges
from spindle.protocol.records.batch import HEADER_BYTES, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, rebuild_batch
from spindle.protocol.records.record import decode_records

T0 = TopicPartition("topic", 0)


@pytest.fixture
def writer(tmp_path: Path) -> ReplicaWriter:
    directory = format_directory(tmp_path / "d1", node_id=7)
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    return ReplicaWriter(directory, T0)


def read(writer: ReplicaWriter, **extra: object) -> list[dict[str, Any]]:
    """Return the rows of all batches as dictionaries."""
    given = {"logDirs": str(writer.directory), "subscribe": "topic"}
    options = parse_batch_options(given | {name: str(value) for name, value in extra.items()})
    filters = options.row_bounds
    resolved = resolve_ranges(options, readable_partitions(options), filters)
    settings = read_settings(options).with_timestamps(
        filters.min_timestamp_ms, filters.max_timestamp_ms
    )
    rows: list[dict[str, Any]] = []
    for task in plan_tasks(options, resolved):
        for batch in read_batch_ranges(task, settings):
            assert batch.schema == arrow_schema(options.columns, BATCH_TYPES)
            rows += batch.to_pylist()
    return rows


def row_count(writer: ReplicaWriter, **extra: object) -> int:
    """Return the sum of `rowCount`, checked against the rows of a read with the same options."""
    counted: int = sum(row["rowCount"] for row in read(writer, columns="rowCount", **extra))
    given = {"logDirs": str(writer.directory), "subscribe": "topic", "columns": "offset"}
    options = parse_segment_options(given | {name: str(value) for name, value in extra.items()})
    filters = options.row_bounds
    settings = read_settings(options).with_timestamps(
        filters.min_timestamp_ms, filters.max_timestamp_ms
    )
    resolved = resolve_ranges(options, readable_partitions(options), filters)
    rows = [
        batch.num_rows
        for task in plan_tasks(options, resolved)
        for batch in read_ranges(task, settings)
    ]
    assert counted == sum(rows)
    return counted


def compacted(base_offset: int, left: list[int]) -> bytes:
    """Return a batch of ten offsets of which compaction has left some."""
    written = build_batch(simple_records(10), base_offset=base_offset)
    header = read_header(written)
    kept = [record for record in decode_records(written, 0, header) if record.offset in left]
    return rebuild_batch(header, kept)


def test_a_row_has_the_fields_of_the_header(writer: ReplicaWriter) -> None:
    writer.append_records(
        simple_records(20), producer_id=9, producer_epoch=2, base_sequence=5, codec=1
    )
    writer.append_records(simple_records(3))
    first, second, third = read(writer)
    assert tuple(first) == BATCH_COLUMNS
    assert {name: first[name] for name in ("topic", "partition", "broker")} == {
        "topic": "topic",
        "partition": 0,
        "broker": 7,
    }
    assert first["directory"] == str(writer.directory)
    assert first["segment"] == writer.segment.name
    assert (first["position"], first["sizeBytes"]) == (0, size_of_first_batch(writer.segment))
    assert second["position"] == first["sizeBytes"]
    assert [(row["baseOffset"], row["lastOffset"]) for row in (first, second, third)] == [
        (0, 9),
        (10, 19),
        (20, 22),
    ]
    assert (first["codec"], third["codec"]) == ("gzip", "none")
    assert (first["producerId"], first["producerEpoch"], first["baseSequence"]) == (9, 2, 5)
    assert (third["producerId"], third["producerEpoch"], third["baseSequence"]) == (None,) * 3
    assert (first["recordCount"], first["rowCount"], third["rowCount"]) == (10, 10, 3)
    assert first["maxTimestamp"].timestamp() == 1_000.009
    assert (first["isControl"], first["isTransactional"], first["crcOk"]) == (False, False, None)


def test_checksums_are_checked_where_it_is_asked_for(writer: ReplicaWriter) -> None:
    writer.append_records(simple_records(30, value_bytes=40_000))
    corrupt_byte(writer.segment, size_of_first_batch(writer.segment) + HEADER_BYTES + 100)
    assert [row["crcOk"] for row in read(writer, checkCrcs="true")] == [True, False, True]


@pytest.mark.parametrize("task_bytes", [700, 10_000])
def test_no_batch_is_missing_or_twice_however_tasks_are_cut(
    writer: ReplicaWriter, task_bytes: int
) -> None:
    for first in (0, 400, 800):
        writer.append_records(simple_records(400, first=first))
        writer.roll()
    base_offsets = [row["baseOffset"] for row in read(writer, taskBytes=task_bytes)]
    assert base_offsets == list(range(0, 1200, 10))


def test_batches_larger_than_the_window_are_passed_by(writer: ReplicaWriter) -> None:
    writer.append_records(simple_records(6, value_bytes=300_000), per_batch=2)
    assert [row["baseOffset"] for row in read(writer)] == [0, 2, 4]
    assert [row["crcOk"] for row in read(writer, checkCrcs="true")] == [True] * 3


def test_counts_of_compacted_batches_are_exact_also_where_the_range_cuts_them(
    writer: ReplicaWriter,
) -> None:
    writer.append(compacted(0, [1, 4, 5]))
    writer.append(compacted(10, []))
    writer.append(compacted(20, [20, 29]))
    assert row_count(writer) == 5
    for start in range(30):
        offsets = f'{{"topic":{{"0":{start}}}}}'
        assert row_count(writer, startingOffsets=offsets) == sum(
            offset >= start for offset in (1, 4, 5, 20, 29)
        )
        if start:
            row_count(writer, endingOffsets=offsets)


def test_rows_are_counted_within_the_wanted_times(writer: ReplicaWriter) -> None:
    times = [5, 1, 9, 3, 7, 2, 8, 4, 6, 0]
    writer.append(build_batch([SimpleRecord(b"", b"", time + 100) for time in times]))
    for least in range(98, 112, 3):
        for greatest in range(98, 112, 3):
            row_count(writer, minTimestamp=least, maxTimestamp=greatest)
    assert row_count(writer, minTimestamp=105) == 5


def test_markers_and_aborted_records_are_rows_that_do_not_count(writer: ReplicaWriter) -> None:
    transaction = {"producer_epoch": 0, "is_transactional": True}
    writer.append_records(simple_records(2), producer_id=1, **transaction)
    writer.append(marker(1, 2, is_commit=False))
    writer.append_aborted_entry(1, 0, 2)
    writer.append_records(simple_records(2), producer_id=1, **transaction)
    writer.append(marker(1, 5, is_commit=True))
    rows = read(writer, isolationLevel="read_committed")
    assert [(row["recordCount"], row["rowCount"]) for row in rows] == [
        (2, 0),
        (1, 0),
        (2, 2),
        (1, 0),
    ]
    assert [row["isControl"] for row in rows] == [False, True, False, True]
    assert row_count(writer, isolationLevel="read_committed") == 2
    assert row_count(writer) == 4


def test_a_marker_that_compaction_removed_hides_no_later_transaction(
    writer: ReplicaWriter,
) -> None:
    transaction = {"producer_epoch": 0, "is_transactional": True}
    writer.append_records(simple_records(2), producer_id=1, **transaction)
    writer.append_aborted_entry(1, 0, 2)
    writer.next_offset = 3
    writer.append_records(simple_records(2), producer_id=1, **transaction)
    writer.append(marker(1, 5, is_commit=True))
    assert row_count(writer, isolationLevel="read_committed") == 2


def test_space_that_was_allocated_and_not_written_ends_a_segment(writer: ReplicaWriter) -> None:
    writer.append_records(simple_records(25))
    with writer.segment.open("ab") as file:
        file.write(bytes(500_000))
    assert row_count(writer) == 25


def test_a_header_that_cannot_be_one_is_named_with_its_place(writer: ReplicaWriter) -> None:
    writer.append_records(simple_records(30))
    at = size_of_first_batch(writer.segment)
    writer.roll()
    writer.append_records(simple_records(30))
    corrupt_byte(writer.path / "00000000000000000000.log", at + 16)
    with pytest.raises(CorruptLog, match=rf"\.log at byte {at}: .*format"):
        read(writer, endingOffsets='{"topic":{"0":30}}')


@pytest.mark.parametrize("base_offset", [0, 30, 2**31 + 5, 2**62])
def test_a_wrong_base_offset_does_not_end_the_read(writer: ReplicaWriter, base_offset: int) -> None:
    writer.append_records(simple_records(30))
    at = size_of_first_batch(writer.segment)
    writer.roll()
    writer.append_records(simple_records(30))
    path = writer.path / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[:at] + base_offset.to_bytes(8, "big") + data[at + 8 :])
    for start in (0, 12):
        with pytest.raises(CorruptLog, match=rf"\.log at byte {at}: the offsets are outside"):
            read(writer, startingOffsets=f'{{"topic":{{"0":{start}}}}}')


@pytest.mark.parametrize(
    ("option", "finding"),
    [
        ({"includeHeaders": "true"}, "includeHeaders is for records"),
        ({"maxRecordsPerPartition": "5"}, "maxRecordsPerPartition is for records"),
        ({"columns": "value"}, "'value' is not a column; want some of topic, partition"),
    ],
)
def test_options_without_a_meaning_for_batches_are_refused(
    option: dict[str, str], finding: str
) -> None:
    with pytest.raises(ValueError, match=finding):
        parse_batch_options({"logDirs": "/d", "subscribe": "t", **option})
