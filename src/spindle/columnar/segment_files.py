"""The segments of a replica's directory, and the headers of their batches one by one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from spindle.common.errors import CorruptLog
from spindle.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
)

_READ_AHEAD_BYTES: Final = 256 * 1024
_NAME_DIGITS: Final = 20
_LAST_OFFSET: Final = 2**63 - 1
_OLD_FORMAT: Final = (
    "message format {} of Kafka before 0.11 is not supported; start the read behind these records, "
    "or copy them with a consumer of Kafka to a topic of today"
)


class SegmentFile(NamedTuple):
    """A segment as the directory listed it; an active segment may have grown since."""

    base_offset: int
    size_bytes: int
    path: Path


def list_segments(path: Path) -> list[SegmentFile]:
    """Return the segments of a replica's directory by base offset, without transient files.

    Compacted segments that wait for their last rename (`.log.swap`) replace the segments between
    them, as a broker's start would do it: some of the old ones may be gone already.

    Raises:
        FileNotFoundError: there is no such directory.
    """
    files: dict[str, list[SegmentFile]] = {"log": [], "log.swap": [], "log.cleaned": []}
    with os.scandir(path) as entries:
        for entry in entries:
            stem, _, suffix = entry.name.partition(".")
            if suffix not in files or not _is_base_offset(stem):
                continue
            try:
                size_bytes = entry.stat().st_size
            except FileNotFoundError:
                continue
            files[suffix].append(SegmentFile(int(stem), size_bytes, Path(entry.path)))
    segments = files["log"]
    swaps = sorted(files["log.swap"])
    if files["log.cleaned"]:
        # A group of which a part is still being written has replaced nothing yet.
        first_cleaned = min(files["log.cleaned"]).base_offset
        swaps = [swap for swap in swaps if swap.base_offset < first_cleaned]
    if swaps:
        start, end = swaps[0].base_offset, max(map(_end_of_batches, swaps))
        segments = [segment for segment in segments if not start <= segment.base_offset < end]
    return sorted(segments + swaps)


def _end_of_batches(segment: SegmentFile) -> int:
    end = segment.base_offset + 1
    with open_segment(segment) as file:
        for _, header in walk_headers(file, 0, str(segment.path)):
            end = header.next_offset
    return end


def _is_base_offset(stem: str) -> bool:
    return len(stem) == _NAME_DIGITS and stem.isdecimal() and int(stem) <= _LAST_OFFSET


def walk_headers(
    file: Any, position: int, path: str, *, read_ahead_bytes: int = _READ_AHEAD_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the whole batches of a file from a batch boundary on.

    Raises:
        CorruptLog: a message set of format 0 or 1.
    """
    size_bytes = os.fstat(file.fileno()).st_size
    window_start, window = position, b""
    while position + HEADER_BYTES <= size_bytes:
        at = position - window_start
        if at + HEADER_BYTES > len(window):
            window_start, at = position, 0
            window = os.pread(file.fileno(), read_ahead_bytes, position)
            if len(window) < HEADER_BYTES:
                return
        header = BatchHeader._make(HEADER.unpack_from(window, at))
        if header.magic in (0, 1) and header.batch_length > 0:
            raise CorruptLog(path, position, _OLD_FORMAT.format(header.magic))
        end = position + header.batch_length + LOG_OVERHEAD_BYTES
        if header.magic != MAGIC or end < position + HEADER_BYTES or end > size_bytes:
            return
        yield position, header
        position = end


def open_segment(segment: SegmentFile) -> Any:
    """Open a segment to be read without a buffer."""
    return open(segment.path, "rb", buffering=0)
