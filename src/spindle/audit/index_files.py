"""The files `.index` and `.timeindex`: their bytes, up to a limit, and entries that are missing.

A broker adds an entry after every `index.interval.bytes` of appends, with an entry of the time
index if the timestamps rise. The interval is unknown here: it is at most the smallest gap between
two entries of the log. An offset index that lost entries at its end only makes reads slower.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from spindle.audit.findings import Collector, FindingKind

_BLOCK_BYTES: Final = 96 * 1024
MAX_INDEX_BYTES: Final = 24 << 20
"""Maximum checked bytes of an index; brokers roll a segment at 10 MiB by default."""
_DEFAULT_INTERVAL_BYTES: Final = 4096
LOST_ENTRIES: Final = 4
"""Fewer lost entries are not reported, because a sound index can seem to lack some: each start of a
broker resets the byte counter, and each stop adds an entry to the time index only."""
_WIDE_GAPS: Final = 16
_MIN_GAPS: Final = 8
_MIN_TAIL_BYTES: Final = 4 << 20
"""A follower of an older version adds at most one entry per fetch."""


class IndexContent(NamedTuple):
    """An index file.

    Attributes:
        data: its bytes up to its first block of zeros, at most `MAX_INDEX_BYTES`.
        size_bytes: of the file.
        is_whole: the data has all entries.
    """

    data: bytes | bytearray
    size_bytes: int
    is_whole: bool = True


def read_index(path: Path) -> IndexContent | None:
    """Read an index file without the zeros that a broker preallocates; None if there is none."""
    data = bytearray()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                if len(data) >= MAX_INDEX_BYTES:
                    return IndexContent(data, os.fstat(file.fileno()).st_size, not any(block))
                data += block
                if not any(block):
                    break
            return IndexContent(data, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return None


class IndexTail(NamedTuple):
    """The entries of the offset index of a finished segment, and the bytes after the last entry.

    Attributes:
        gap_count, smallest_gap_bytes, largest_gap_bytes: of the gaps before its entries.
        tail_bytes: from the last entry, or the start of the segment, to the last batch.
        lost_gap_bytes: the smallest of the `LOST_ENTRIES` largest distances between entries of the
            time index after the last entry; 0 if there are fewer.
    """

    path: Path
    gap_count: int
    smallest_gap_bytes: int
    largest_gap_bytes: int
    tail_bytes: int
    lost_gap_bytes: int


def check_index_tails(findings: Collector, tails: Iterable[IndexTail]) -> None:
    """Report the indexes of a log that lost entries at their end."""
    tails = list(tails)
    known = [tail.smallest_gap_bytes for tail in tails if tail.gap_count]
    interval_bytes = max(1, min(known, default=_DEFAULT_INTERVAL_BYTES))
    for tail in tails:
        is_wide = (
            tail.gap_count >= _MIN_GAPS
            and tail.tail_bytes > _WIDE_GAPS * tail.largest_gap_bytes
            and tail.tail_bytes > _MIN_TAIL_BYTES
        )
        if is_wide or tail.lost_gap_bytes >= interval_bytes:
            findings.add(
                FindingKind.OFFSET_INDEX_SHORT,
                tail.path,
                f"{tail.tail_bytes} bytes of batches follow its last entry, but the log has an "
                f"entry for each {interval_bytes} bytes or so: reads are slower",
            )
