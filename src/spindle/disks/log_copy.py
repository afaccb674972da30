"""Copying a log to another directory, in ranges of whole batches (KIP-113).

`read_chunk` runs on the I/O thread of the current log, `append_chunk` on that of the future log. No
record is decoded. A chunk also reports changes of the current log: its start may have moved, its
end may have been truncated.
"""

from struct import Struct
from typing import Final, NamedTuple

from spindle.common.checksums import crc32c
from spindle.common.ports import Bytes
from spindle.disks.copied_range import CopiedRange, FileSpan
from spindle.log.log import NEVER_TRUNCATED, Log
from spindle.protocol.records.batch import LOG_OVERHEAD_BYTES, read_header

CHUNK_BYTES: Final = 1024 * 1024
"""Maximum bytes that one job reads or writes; a single batch may be larger."""

_NEWEST_EPOCH: Final = 2**31 - 1
_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8


class Chunk(NamedTuple):
    """A range of batches, and the offsets of the current log when they were read.

    `truncated_to` is the log end after the deepest truncation of the current log since the previous
    chunk; if it is below the requested offset, the chunk has no records.
    """

    records: Bytes
    first_offset: int
    end_offset: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    truncated_to: int


class CopyPosition(NamedTuple):
    """The end offset of a future log; `written` is what the chunk added, if anything."""

    end_offset: int
    written: CopiedRange | None


def begin_copy(log: Log) -> int:
    """Allow only appends, truncations and retention to change the log; return its end offset."""
    log.begin_move()
    log.lowest_end_offset = NEVER_TRUNCATED
    return log.log_end_offset


def read_chunk(log: Log, offset: int, max_bytes: int) -> Chunk:
    """Read the batches from `offset` on in the current log, or from its start if that is later."""
    truncated_to, log.lowest_end_offset = log.lowest_end_offset, NEVER_TRUNCATED
    records = memoryview(b"")
    first_offset = offset = max(offset, log.log_start_offset)
    if offset < log.log_end_offset and offset <= truncated_to:
        fetched_records = log.read(offset, max_bytes, log.log_end_offset)
        records, first_offset = fetched_records.records, fetched_records.first_offset
    return Chunk(
        records,
        first_offset,
        _end_offset(records, first_offset),
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        truncated_to,
    )


def truncate_as_read(log: Log, chunk: Chunk, now_ms: int) -> bool:
    """Truncate the future log to where the current log had been truncated when the chunk was read.

    Returns:
        True if something was cut off.
    """
    count = log.truncation_count
    end_offset = min(chunk.truncated_to, chunk.log_end_offset)
    if log.log_end_offset > end_offset:
        log.truncate_to(end_offset, now_ms)
    if log.log_end_offset < min(chunk.log_start_offset, chunk.first_offset):
        # Retention was faster than the copying; the current log does not have these records either.
        log.truncate_fully_and_start_at(min(chunk.log_start_offset, chunk.first_offset))
    return log.truncation_count != count


def append_chunk(log: Log, chunk: Chunk, now_ms: int, crc: int = 0) -> CopyPosition:
    """Bring a future log, after `truncate_as_read`, to where the current log was.

    Args:
        crc: the checksum of the records before these, with which that of these is begun.

    Raises:
        CorruptRecords: the checksum of a batch is wrong.
        ValueError: the last offsets of the current log have no records, so that no copy can reach
            its end before the next append.
    """
    if chunk.first_offset < log.log_end_offset and chunk.records:
        raise ValueError(f"{log} got a chunk that begins at offset {chunk.first_offset}")
    if not chunk.records and log.log_end_offset < chunk.log_end_offset <= chunk.truncated_to:
        raise ValueError(
            f"{log} cannot be copied up to offset {chunk.log_end_offset}: no records are there"
        )
    written = None
    if chunk.records:
        log.append_as_follower(chunk.records, _NEWEST_EPOCH, now_ms)
        segment, size_bytes = log.segments.active, len(chunk.records)
        written = CopiedRange(
            chunk.first_offset,
            chunk.end_offset,
            crc32c(chunk.records, crc),
            (FileSpan(segment.path, segment.size_bytes - size_bytes, size_bytes),),
            log.truncation_count,
        )
    follow_offsets(log, chunk.high_watermark, chunk.log_start_offset)
    return CopyPosition(log.log_end_offset, written)


def follow_offsets(log: Log, high_watermark: int, log_start_offset: int) -> None:
    """Set the high watermark and the log start, as far as the future log has been copied."""
    log.update_high_watermark(high_watermark)
    if log.log_start_offset < log_start_offset <= log.high_watermark:
        log.increment_log_start_offset(log_start_offset)


def start_over(log: Log) -> int:
    """Empty a future log that is not an exact copy; return its end offset."""
    log.truncate_fully_and_start_at(0)
    return log.log_end_offset


class Digest(NamedTuple):
    """The checksum of the whole batches between two offsets."""

    crc: int
    first_offset: int
    end_offset: int


def digest(log: Log, offset: int, end_offset: int, crc: int = 0) -> Digest:
    """Return the checksum, begun with `crc`, of some batches from `offset` to below `end_offset`.

    There are at most `CHUNK_BYTES` in it, and none if the log has none there. It begins at the log
    start if that is later.
    """
    offset = max(offset, log.log_start_offset)
    if offset >= min(end_offset, log.log_end_offset):
        return Digest(crc, offset, offset)
    records = log.read(offset, CHUNK_BYTES, end_offset).records
    return Digest(crc32c(records, crc), offset, _end_offset(records, offset))


def _end_offset(records: memoryview, offset: int) -> int:
    """Return the offset after the last of some whole batches; `offset` if there are none."""
    position = last = 0
    while position < len(records):
        last = position
        position += _LENGTH.unpack_from(records, position + _LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
    if not position:
        return offset
    return read_header(records, last).next_offset
