"""The newest offset of each key in the part of a log that a compaction pass has read.

`DictKeyMap` holds the keys themselves in a dict of Python. `native_kernel.NativeKeyMap` holds
hashes of 16 bytes in one table of fixed size, and walks over whole chunks of batches.
"""

from typing import Final, NamedTuple, Protocol

from spindle.common.ports import Bytes
from spindle.log.segments.index_progress import IndexPoint, IndexProgress
from spindle.protocol.records.batch import BatchHeader

_BYTES_PER_KEY: Final = 160
"""Memory of one entry of a dict with its offset, without the bytes of its key; estimated."""


class MapSize(NamedTuple):
    """The limits of a key map.

    `keys` is how many it could need at most, `load_factor` (0 to 1) the share of the memory that
    may be filled.
    """

    memory_bytes: int
    load_factor: float
    keys: int


class CopyRules(NamedTuple):
    """The rules by which a pass copies batches.

    Attributes:
        known_end: keys are known below this offset; all records from here on stay.
        round_end: the last batch before this offset stays, if need be without records.
        now_ms: tombstones go if their delete horizon is not later.
        new_horizon_ms: the delete horizon of batches that have tombstones and no horizon yet.
        last_offsets: the last data offset of each producer, ascending.
        index_interval_bytes: the bytes between two entries of the index.
    """

    known_end: int
    round_end: int
    now_ms: int
    new_horizon_ms: int
    last_offsets: list[int]
    index_interval_bytes: int


class FilteredRecords(NamedTuple):
    """The uncompressed records of a batch that stay, encoded; empty if all or none stay.

    `data` is overwritten by the next call of `filter_records`.
    """

    kept_count: int
    is_unchanged: bool
    sets_horizon: bool
    base_timestamp: int
    max_timestamp: int
    data: Bytes


class CopiedBatches(NamedTuple):
    """The copies of a chunk's batches.

    `next_position` is that of the first batch in the chunk that was left to the caller.
    `data` is overwritten by the next copy. The index points count from the beginning of `data`.
    """

    next_position: int
    data: memoryview
    points: list[IndexPoint]
    progress: IndexProgress
    records_read: int
    records_kept: int


class BatchCopier(Protocol):
    """Copies what stays of whole batches."""

    def copy(self, data: bytes, at: int, progress: IndexProgress) -> CopiedBatches:
        """Copy what stays of the batches from position `at` on, up to one that it cannot handle.

        `progress` is that of the segment which the copies are appended to.
        """
        ...


class KeyMap(Protocol):
    """Notes keys, and finds the records whose key has no later one.

    The methods that work on many records at once give up in front of what they cannot handle; then
    the caller reads the records and uses `put` and `newest_offset`.
    """

    @property
    def is_full(self) -> bool:
        """Whether the share of the memory that may be filled is filled."""
        ...

    @property
    def use(self) -> float:
        """The share of the memory that is filled."""
        ...

    def put(self, key: bytes, offset: int) -> bool:
        """Note the offset of the newest record with the key; False if there is no room left."""
        ...

    def newest_offset(self, key: bytes) -> int:
        """Return the largest offset that was noted for the key, -1 if none was."""
        ...

    def put_records(self, header: BatchHeader, payload: Bytes, first_offset: int) -> bool:
        """Note the keys of uncompressed records from `first_offset` on; False if it gave up."""
        ...

    def filter_records(
        self, header: BatchHeader, payload: Bytes, rules: CopyRules
    ) -> FilteredRecords | None:
        """Return the uncompressed records of a data batch that stay; None if it gave up."""
        ...

    def put_batches(
        self, data: bytes, at: int, first_offset: int, end_offset: int
    ) -> tuple[int, int]:
        """Note the keys of whole batches from position `at` on, below `end_offset`.

        Return the position of the first batch whose keys were not noted, and the offset after the
        last one whose keys were (-1 if there is none).
        """
        ...

    def copier(self, rules: CopyRules, chunk_bytes: int) -> BatchCopier | None:
        """Return what copies whole batches from chunks of that size; None if nothing does."""
        ...

    def close(self) -> None:
        """Give the memory back. The map is not used any more."""
        ...


class DictKeyMap:
    """A key map without compiled code."""

    __slots__ = ("_offsets", "_size", "_used_bytes")

    def __init__(self, size: MapSize) -> None:
        self._offsets: dict[bytes, int] = {}
        self._size = size
        self._used_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.use >= self._size.load_factor

    @property
    def use(self) -> float:
        return self._used_bytes / self._size.memory_bytes

    def put(self, key: bytes, offset: int) -> bool:
        """Note the offset of the newest record with the key; return True."""
        if key not in self._offsets:
            self._used_bytes += len(key) + _BYTES_PER_KEY
        self._offsets[key] = offset
        return True

    def newest_offset(self, key: bytes) -> int:
        """Return the largest offset that was noted for the key, -1 if none was."""
        return self._offsets.get(key, -1)

    def put_records(self, header: BatchHeader, payload: Bytes, first_offset: int) -> bool:
        """Leave the records to the caller."""
        return False

    def filter_records(
        self, header: BatchHeader, payload: Bytes, rules: CopyRules
    ) -> FilteredRecords | None:
        """Leave the records to the caller."""
        return None

    def put_batches(
        self, data: bytes, at: int, first_offset: int, end_offset: int
    ) -> tuple[int, int]:
        """Leave the batches to the caller."""
        return at, -1

    def copier(self, rules: CopyRules, chunk_bytes: int) -> BatchCopier | None:
        """Leave the batches to the caller."""
        return None

    def close(self) -> None:
        """Forget all keys."""
        self._offsets.clear()
