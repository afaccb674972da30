"""Corrupt batches in log directories: a read fails, leaves them out, or returns a row for each."""

import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from log_directory_files import ReplicaWriter, corrupt_byte, format_directory, simple_records

from spindle.columnar.columns import arrow_schema
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.pipeline.segments.failover import read_settings
from spindle.pipeline.segments.options import parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions
from spindle.pipeline.segments.ranges import plan_tasks, resolve_ranges
from spindle.pipeline.segments.reader import read_ranges
from spindle.protocol.records.batch import CRC_COVERS_FROM, CRC_POSITION, batches

T0 = TopicPartition("topic", 0)
RECORDS = 1200
GZIP_SEGMENT = 400  # base offset of the segment whose batches are compressed


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """Return a replica of three segments with 400 records each, in batches of ten."""
    directory = format_directory(tmp_path / "d1", node_id=3)
    (directory / ".kafka_cleanshutdown").touch()
    writer = ReplicaWriter(directory, T0)
    for first in (0, 400, 800):
        if first:
            writer.roll()
        writer.append_records(simple_records(400, first=first), codec=int(first == GZIP_SEGMENT))
    return writer.path


def read(replica: Path, mode: str, **extra: str) -> list[dict[str, Any]]:
    given = {"logDirs": str(replica.parent), "subscribe": "topic", "corruptBatches": mode, **extra}
    options = parse_segment_options(given)
    resolved = resolve_ranges(options, readable_partitions(options), options.row_bounds)
    rows: list[dict[str, Any]] = []
    for task in plan_tasks(options, resolved):
        for batch in read_ranges(task, read_settings(options)):
            assert batch.schema == arrow_schema(options.columns)
            rows += batch.to_pylist()
    return rows


def segment(replica: Path, base: int) -> Path:
    return replica / f"{base:020d}.log"


def place(replica: Path, base: int, batch: int) -> tuple[int, int]:
    """Return position and size of a batch of a segment, by its index."""
    read_batches = list(batches(segment(replica, base).read_bytes()))[batch]
    return read_batches[0], read_batches[1].size_bytes


def wrong_checksum(replica: Path) -> tuple[int, int]:
    corrupt_byte(segment(replica, 0), place(replica, 0, 1)[0] + 100)
    return 0, 1


def wrong_checksum_of_the_last_batch(replica: Path) -> tuple[int, int]:
    corrupt_byte(segment(replica, 800), place(replica, 800, 39)[0] + 100)
    return 800, 39


def wrong_magic(replica: Path) -> tuple[int, int]:
    corrupt_byte(segment(replica, 800), place(replica, 800, 5)[0] + 16)
    return 800, 5


def huge_length(replica: Path) -> tuple[int, int]:
    corrupt_byte(segment(replica, 0), place(replica, 0, 3)[0] + 8)
    return 0, 3


def tiny_length(replica: Path) -> tuple[int, int]:
    path, (at, _) = segment(replica, 0), place(replica, 0, 7)
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, at + 8, 1)
    path.write_bytes(data)
    return 0, 7


def undecodable_payload(replica: Path) -> tuple[int, int]:
    """Break compressed bytes and give the batch the right checksum."""
    path, (at, size) = segment(replica, GZIP_SEGMENT), place(replica, GZIP_SEGMENT, 4)
    data = bytearray(path.read_bytes())
    data[at + 61] ^= 0xFF
    checksum = crc32c(bytes(data[at + CRC_COVERS_FROM : at + size]))
    struct.pack_into(">I", data, at + CRC_POSITION, checksum)
    path.write_bytes(data)
    return GZIP_SEGMENT, 4


def unparsable_record(replica: Path) -> tuple[int, int]:
    """Break the length of a record and give the batch the right checksum."""
    path, (at, size) = segment(replica, 0), place(replica, 0, 2)
    data = bytearray(path.read_bytes())
    data[at + 61] = 0x02
    checksum = crc32c(bytes(data[at + CRC_COVERS_FROM : at + size]))
    struct.pack_into(">I", data, at + CRC_POSITION, checksum)
    path.write_bytes(data)
    return 0, 2


def torn_end_of_a_segment(replica: Path) -> tuple[int, int]:
    corrupt_byte(segment(replica, 0), place(replica, 0, 39)[0] + 8)
    return 0, 39


def _with_base_offset(replica: Path, base: int, batch: int, offset: int) -> tuple[int, int]:
    """Write another base offset, which the checksum does not cover."""
    path, (at, _) = segment(replica, base), place(replica, base, batch)
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, at, offset)
    path.write_bytes(data)
    return base, batch


def offset_of_the_next_segment(replica: Path) -> tuple[int, int]:
    return _with_base_offset(replica, 0, 3, 400)


def offset_beyond_the_log(replica: Path) -> tuple[int, int]:
    return _with_base_offset(replica, GZIP_SEGMENT, 3, 2**62)


def offset_too_far_from_the_base(replica: Path) -> tuple[int, int]:
    return _with_base_offset(replica, 800, 5, 800 + 2**31)


def offset_below_the_batch_before(replica: Path) -> tuple[int, int]:
    return _with_base_offset(replica, 800, 5, 830)


def offset_below_the_segment(replica: Path) -> tuple[int, int]:
    return _with_base_offset(replica, 800, 0, 10)


WRONG_OFFSET = [
    offset_of_the_next_segment,
    offset_beyond_the_log,
    offset_too_far_from_the_base,
    offset_below_the_batch_before,
    offset_below_the_segment,
]
ONE_BATCH = [
    wrong_checksum,
    wrong_checksum_of_the_last_batch,
    wrong_magic,
    undecodable_payload,
    unparsable_record,
]
UP_TO_AN_INDEX_ENTRY = [huge_length, tiny_length, torn_end_of_a_segment]
Damage = Callable[[Path], tuple[int, int]]


@pytest.mark.parametrize("damage", WRONG_OFFSET)
def test_a_wrong_base_offset_neither_ends_the_read_nor_hides_other_batches(
    replica: Path, damage: Damage
) -> None:
    base, batch = damage(replica)
    with pytest.raises(CorruptLog, match="the offsets are outside of the segment") as caught:
        read(replica, "fail")
    assert (caught.value.path, caught.value.position) == (
        str(segment(replica, base)),
        place(replica, base, batch)[0],
    )
    first = base + 10 * batch
    expected = [offset for offset in range(RECORDS) if not first <= offset < first + 10]
    assert [row["offset"] for row in read(replica, "skip")] == expected


@pytest.mark.parametrize("damage", ONE_BATCH + UP_TO_AN_INDEX_ENTRY)
def test_a_corrupt_batch_fails_the_read_with_its_place(replica: Path, damage: Damage) -> None:
    before = {base: [at for at, _ in batches(segment(replica, base).read_bytes())]
              for base in (0, 400, 800)}  # fmt: skip
    base, batch = damage(replica)
    with pytest.raises(CorruptLog) as caught:
        read(replica, "fail")
    assert caught.value.path == str(segment(replica, base))
    assert caught.value.position == before[base][batch]


@pytest.mark.parametrize("damage", ONE_BATCH)
def test_only_the_corrupt_batch_is_left_out(
    replica: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    base, batch = damage(replica)
    first = base + 10 * batch
    with caplog.at_level(logging.WARNING):
        rows = read(replica, "skip")
    left_out = set(range(first, first + 10))
    assert [row["offset"] for row in rows] == sorted(set(range(RECORDS)) - left_out)
    assert f"topic-0: left out a corrupt batch with base offset {first} (" in caplog.text
    assert str(segment(replica, base)) in caplog.text


@pytest.mark.parametrize("damage", UP_TO_AN_INDEX_ENTRY)
def test_after_a_corrupt_length_the_read_continues_at_the_next_index_entry(
    replica: Path, damage: Damage
) -> None:
    base, batch = damage(replica)
    first = base + 10 * batch
    offsets = [row["offset"] for row in read(replica, "skip")]
    missing = sorted(set(range(RECORDS)) - set(offsets))
    assert missing[0] == first
    assert missing == list(range(first, missing[-1] + 1))
    assert len(missing) <= 150, "not more than an index interval"
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("damage", ONE_BATCH + UP_TO_AN_INDEX_ENTRY)
def test_a_row_says_where_the_corrupt_batch_is(replica: Path, damage: Damage) -> None:
    base, batch = damage(replica)
    rows = read(replica, "permissive", includeLineage="true")
    (bad,) = [row for row in rows if row["corruption"] is not None]
    corruption = bad["corruption"]
    assert corruption["file"] == str(segment(replica, base))
    assert corruption["baseOffset"] == base + 10 * batch
    assert corruption["reason"]
    stored = segment(replica, base).read_bytes()
    at = corruption["position"]
    assert stored[at : at + len(corruption["data"])] == corruption["data"]
    assert (bad["topic"], bad["partition"], bad["offset"]) == ("topic", 0, base + 10 * batch)
    assert (bad["key"], bad["value"], bad["timestamp"], bad["crc"]) == (None,) * 4
    assert (bad["broker"], bad["segment"], bad["position"]) == (3, f"{base:020d}.log", at)
    skipped = read(replica, "skip", includeLineage="true")
    assert [row for row in rows if row["corruption"] is None] == [
        {**row, "corruption": None} for row in skipped
    ]


@pytest.mark.parametrize("task_bytes", ["2000", "9000"])
def test_every_task_passes_its_corrupt_batches(replica: Path, task_bytes: str) -> None:
    for damage in (wrong_checksum, wrong_magic, undecodable_payload):
        damage(replica)
    rows = read(replica, "permissive", taskBytes=task_bytes)
    assert [row["offset"] for row in rows if row["corruption"]] == [10, 440, 850]
    assert sum(row["corruption"] is None for row in rows) == RECORDS - 30


def test_lineage_leads_to_the_batch_of_each_record(replica: Path) -> None:
    options = {"columns": "offset,position,crc,segment,directory,broker"}
    rows = read(replica, "fail", **options)
    assert len(rows) == RECORDS
    for base in (0, 400, 800):
        for at, header in batches(segment(replica, base).read_bytes()):
            for offset in range(header.base_offset, header.last_offset + 1):
                assert rows[offset] == {
                    "offset": offset,
                    "position": at,
                    "crc": header.crc,
                    "segment": f"{base:020d}.log",
                    "directory": str(replica.parent),
                    "broker": 3,
                }
    plain = read(replica, "fail", includeLineage="true", columns="offset,crc")
    assert list(plain[0]) == ["offset", "crc", "broker", "directory", "segment", "position"]


def test_an_unknown_mode_is_named(replica: Path) -> None:
    with pytest.raises(ValueError, match="option corruptBatches: 'ignore', want fail, skip or"):
        read(replica, "ignore")


def test_old_message_formats_are_refused_when_the_read_is_planned(replica: Path) -> None:
    old = struct.pack(">qiIbb", 0, 14 + 8, 0, 1, 0) + struct.pack(">qii", 5, -1, -1)
    path = segment(replica, GZIP_SEGMENT)
    path.write_bytes(old + path.read_bytes()[len(old) :])
    options = parse_segment_options({"logDirs": str(replica.parent), "subscribe": "topic"})
    resolved = resolve_ranges(options, readable_partitions(options), options.row_bounds)
    with pytest.raises(CorruptLog, match=r"400\.log at byte 0: message format 1 of Kafka before"):
        plan_tasks(options, resolved)
    later = read(replica, "fail", startingOffsets='{"topic":{"0":800}}')
    assert [row["offset"] for row in later] == list(range(800, 1200))
