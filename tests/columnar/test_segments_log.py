"""Lookups in a partition's directory: positions, log end and timestamps."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from log_directory_files import (
    ReplicaWriter,
    corrupt_byte,
    format_directory,
    marker,
    simple_records,
    size_of_first_batch,
)

from spindle.client.fetching import AbortedProducer
from spindle.columnar.segment_log import SegmentLog
from spindle.columnar.transaction_state import (
    aborted_transactions,
    last_stable_offset,
    overlapping,
)
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.protocol.records.builder import SimpleRecord, build_batch

PARTITION = TopicPartition("topic", 0)


@pytest.fixture
def writer(tmp_path: Path) -> ReplicaWriter:
    """Write three segments of 500 records; offsets and timestamps (from 1_000_000 ms) ascend."""
    replica = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    for first in (0, 500, 1000):
        if first:
            replica.roll()
        replica.append_records(simple_records(500, first=first))
    return replica


@pytest.mark.parametrize("offset", [0, 1, 9, 10, 499, 500, 501, 999, 1234, 1499])
def test_a_position_is_before_its_offset_and_near(writer: ReplicaWriter, offset: int) -> None:
    log = SegmentLog(writer.path)
    start = log.position_of(offset)
    assert start is not None
    assert start.offset <= offset
    assert start.segment.base_offset == offset // 500 * 500
    # There is an entry every 4096 bytes: about 90 records of 45 bytes, and one more batch.
    assert offset - start.offset < 150


def test_a_stale_index_entry_is_passed_over(writer: ReplicaWriter) -> None:
    index = writer.segment.with_suffix(".index")
    data = bytearray(index.read_bytes())
    position = struct.unpack_from(">i", data, len(data) - 4)[0]
    struct.pack_into(">i", data, len(data) - 4, position + 13)
    index.write_bytes(data)
    log = SegmentLog(writer.path)
    start = log.position_of(1499)
    assert start is not None
    assert start.position < position
    assert log.end_offset() == 1500


def test_a_log_without_indexes_is_read_from_its_segments(writer: ReplicaWriter) -> None:
    for index in writer.path.glob("*.*index"):
        index.unlink()
    log = SegmentLog(writer.path)
    position = log.position_of(777)
    assert position is not None
    assert position.offset == 500
    assert log.end_offset() == 1500
    assert log.offset_for_timestamp(1_000_777, 0, 1500) == 777


def test_the_end_is_before_a_torn_batch(writer: ReplicaWriter) -> None:
    torn = build_batch(simple_records(5), base_offset=1500)
    for cut in (1, 30, 61, len(torn) - 1):
        with writer.segment.open("ab") as file:
            file.write(torn[:cut])
        assert SegmentLog(writer.path).end_offset() == 1500
        with writer.segment.open("r+b") as file:
            file.truncate(writer.segment.stat().st_size - cut)


def test_the_end_is_before_a_batch_with_a_wrong_checksum(writer: ReplicaWriter) -> None:
    corrupt_byte(writer.segment, writer.segment.stat().st_size - 5)
    assert SegmentLog(writer.path).end_offset() == 1490


def test_after_an_unclean_stop_everything_from_the_recovery_point_is_checked(
    writer: ReplicaWriter,
) -> None:
    first = writer.path / "00000000000000000500.log"
    corrupt_byte(first, size_of_first_batch(first) * 3 + 100)
    log = SegmentLog(writer.path)
    assert log.end_offset() == 1500
    assert log.end_offset(checked_from=800) == 1500
    assert log.end_offset(checked_from=0) == 530


def test_an_empty_active_segment_gives_the_end(writer: ReplicaWriter) -> None:
    writer.roll()
    assert SegmentLog(writer.path).end_offset() == 1500


def test_a_directory_without_segments(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    assert (log.first_offset, log.end_offset(), log.position_of(0)) == (0, 0, None)


@pytest.mark.parametrize("wanted", [0, 1_000_000, 1_000_001, 1_000_499, 1_000_500, 1_001_499])
def test_the_first_offset_of_a_time(writer: ReplicaWriter, wanted: int) -> None:
    log = SegmentLog(writer.path)
    assert log.offset_for_timestamp(wanted, 0, 1500) == max(0, wanted - 1_000_000)
    assert log.offset_for_timestamp(wanted, 700, 1500) == max(700, wanted - 1_000_000)
    assert log.offset_for_timestamp(1_001_500, 0, 1500) is None
    assert log.offset_for_timestamp(1_000_900, 0, 900) is None


def test_times_out_of_order(tmp_path: Path) -> None:
    replica = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    times = [50, 10, 90, 20, 70, 90, 5, 120, 1]
    replica.append_records([SimpleRecord(None, None, time) for time in times], per_batch=2)
    log = SegmentLog(replica.path)
    for wanted in range(125):
        expected = next((at for at, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_timestamp(wanted, 0, len(times)) == expected


def test_a_message_set_of_an_old_format_is_refused(writer: ReplicaWriter) -> None:
    first = writer.path / "00000000000000000000.log"
    data = bytearray(first.read_bytes())
    data[16] = 1
    first.write_bytes(data)
    log = SegmentLog(writer.path)
    start = log.position_of(0)
    assert start is not None
    with pytest.raises(CorruptLog, match="format 1"):
        list(log.headers_from(start))


def snapshot(producers: dict[int, int]) -> bytes:
    """Write a producer snapshot: first offset of the open transaction (-1 none) by producer id."""
    body = struct.pack(">i", len(producers)) + b"".join(
        struct.pack(">qhiqiqiq", producer, 0, 0, 0, 0, 0, 0, first)
        for producer, first in producers.items()
    )
    return struct.pack(">hI", 1, crc32c(body)) + body


def transactional(writer: ReplicaWriter, producer_id: int) -> None:
    part = simple_records(2)
    writer.append_records(part, producer_id=producer_id, producer_epoch=0, is_transactional=True)


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(
    tmp_path: Path,
) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    transactional(writer, 1)  # 0, 1
    transactional(writer, 2)  # 2, 3
    writer.append(marker(1, 4, is_commit=True))
    transactional(writer, 1)  # 5, 6
    writer.append(marker(2, 7, is_commit=False))
    log = SegmentLog(writer.path)
    assert [last_stable_offset(log, end) for end in (1, 4, 5, 7, 8)] == [0, 0, 2, 2, 5]
    writer.append(marker(1, 8, is_commit=True))
    assert last_stable_offset(SegmentLog(writer.path), 9) == 9


def test_open_transactions_come_from_the_newest_snapshot(tmp_path: Path) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    transactional(writer, 1)
    writer.roll()
    (writer.path / "00000000000000000002.snapshot").write_bytes(snapshot({1: 0, 5: -1}))
    transactional(writer, 2)
    writer.append(marker(2, 4, is_commit=True))
    assert last_stable_offset(SegmentLog(writer.path), 5) == 0
    writer.append(marker(1, 5, is_commit=True))
    assert last_stable_offset(SegmentLog(writer.path), 6) == 6
    (writer.path / "00000000000000000002.snapshot").write_bytes(snapshot({1: 0})[:-1])
    with pytest.raises(CorruptLog, match="snapshot"):
        last_stable_offset(SegmentLog(writer.path), 6)


@pytest.mark.parametrize("damage", ["length", "checksum"])
def test_the_last_stable_offset_is_unknown_behind_a_damaged_batch(
    tmp_path: Path, damage: str
) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    writer.append_records(simple_records(2))
    segment = writer.path / "00000000000000000000.log"
    position = segment.stat().st_size
    transactional(writer, 1)  # 2, 3: open
    writer.roll()
    writer.append_records(simple_records(2))
    data = bytearray(segment.read_bytes())
    data[position + {"length": 8, "checksum": -1 - position}[damage]] ^= 0x7F
    segment.write_bytes(data)
    log = SegmentLog(writer.path)
    assert last_stable_offset(log, 2) == 2, "the damage is behind the end"
    with pytest.raises(CorruptLog, match=f"0.log at byte {position}: .*offset 2"):
        last_stable_offset(log, 6)
    assert last_stable_offset(log, 6, passes_damage=True) == (6 if damage == "length" else 2)


@pytest.mark.parametrize("byte", [0, 7])
@pytest.mark.parametrize("is_last_of_segment", [False, True])
def test_the_last_stable_offset_is_unknown_if_a_base_offset_is_damaged(
    tmp_path: Path, byte: int, is_last_of_segment: bool
) -> None:
    """No checksum covers it; one that is too high would end the search for transactions."""
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    writer.append_records(simple_records(2))
    segment = writer.path / "00000000000000000000.log"
    if is_last_of_segment:
        writer.roll()
    transactional(writer, 1)  # 2, 3: open
    writer.roll()
    writer.append_records(simple_records(2))
    data = bytearray(segment.read_bytes())
    data[byte] ^= 0x40
    segment.write_bytes(data)
    with pytest.raises(CorruptLog, match=r"0\.log at byte \d+: offset 2 follows"):
        last_stable_offset(SegmentLog(writer.path), 6)


def test_damage_before_the_newest_snapshot_does_not_hide_the_last_stable_offset(
    tmp_path: Path,
) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    transactional(writer, 1)  # 0, 1
    segment = writer.path / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    writer.roll()
    (writer.path / "00000000000000000002.snapshot").write_bytes(snapshot({1: 0}))
    writer.append_records(simple_records(2))
    assert last_stable_offset(SegmentLog(writer.path), 4) == 0


def test_aborted_transactions_that_overlap_a_range(tmp_path: Path) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), PARTITION)
    writer.append_records(simple_records(10))
    writer.append_aborted_entry(7, 0, 4)
    writer.roll()
    writer.append_records(simple_records(10))
    writer.append_aborted_entry(8, 3, 15)
    aborted = aborted_transactions(SegmentLog(writer.path))
    first, second = AbortedProducer(7, 0, 4), AbortedProducer(8, 3, 15)
    assert overlapping(aborted, 0, 3) == (first,)
    assert overlapping(aborted, 4, 20) == (first, second)
    assert overlapping(aborted, 16, 20) == ()
