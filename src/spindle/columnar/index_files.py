"""The index files of a segment: offset index, time index and index of aborted transactions.

A broker preallocates the indexes of its active segment, and after a crash they may hold stale
entries. So entries are used only as far as they ascend, and callers check the batch that an entry
points to, and the empty rest of an index (10 MiB by default) is not read.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from spindle.log.formats.index_entries import OFFSET_ENTRY_FIELDS, TIME_ENTRY_FIELDS
from spindle.log.formats.transaction_index import AbortedTransaction, decode_aborted_transactions

_OFFSET_ENTRY: Final = np.dtype(list(OFFSET_ENTRY_FIELDS))
_TIME_ENTRY: Final = np.dtype(list(TIME_ENTRY_FIELDS))
_FIRST_READ_ENTRIES: Final = 8192
"""Entries of a segment of 32 MiB, at the default `index.interval.bytes`."""


def read_offset_index(path: Path, segment_bytes: int) -> tuple[Any, Any]:
    """Return (relative last offsets, batch positions) as int64 arrays, empty without an index."""
    entries = _read(path, _OFFSET_ENTRY)
    offsets = entries["offset"].astype(np.int64)
    positions = entries["position"].astype(np.int64)
    count = min(_ascending(offsets), _ascending(positions))
    inside = int(np.searchsorted(positions[:count], segment_bytes))
    return offsets[:inside], positions[:inside]


def read_time_index(path: Path) -> tuple[Any, Any]:
    """Return (greatest timestamp so far in ms, relative offset) as int64 arrays."""
    entries = _read(path, _TIME_ENTRY)
    timestamps = entries["timestamp"].astype(np.int64)
    offsets = entries["offset"].astype(np.int64)
    count = _ascending(timestamps)
    if count and timestamps[0] <= 0:
        count = 0
    return timestamps[:count], offsets[:count]


def read_transaction_index(path: Path) -> list[AbortedTransaction]:
    """Return all entries in file order; none where the file is missing.

    Raises:
        CorruptLog: an entry is of another version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return decode_aborted_transactions(str(path), data)


def _read(path: Path, entry: "np.dtype[Any]") -> Any:
    """Return the entries of an index, without most of the zeros that a broker preallocated."""
    data = b""
    try:
        with path.open("rb", buffering=0) as file:
            read_bytes = _FIRST_READ_ENTRIES * entry.itemsize
            while block := file.read(read_bytes):
                data += block
                if len(block) < read_bytes or not any(block[-entry.itemsize :]):
                    break
                read_bytes = len(data)
    except FileNotFoundError:
        pass
    return np.frombuffer(data, entry, count=len(data) // entry.itemsize)


def _ascending(values: Any) -> int:
    """Return the length of the strictly ascending prefix; a zero after the first entry ends it."""
    if values.size < 2:
        return int(values.size and values[0] != 0)
    falls = np.flatnonzero(np.diff(values) <= 0)
    count = int(falls[0]) + 1 if falls.size else int(values.size)
    return 0 if count == 1 and values[0] == 0 else count
