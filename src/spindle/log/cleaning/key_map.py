"""The newest offset of each key in the part of a log that a compaction pass has read.

`DictKeyMap` holds the keys themselves in a dict of Python. `native_key_map.NativeKeyMap` holds
hashes of 16 bytes in one table of fixed size, and walks over whole chunks of batches.
"""

from typing import Final, NamedTuple, Protocol

from spindle.common.ports import Bytes
from spindle.log.segments.segment import IndexPoint, IndexProgress
from spindle.protocol.records.batch import BatchHeader

_BYTES_PER_KEY: Final = 160
"""Memory of one entry of a dict with its offset, without the bytes of its key; estimated."""


class MapSize(NamedTuple):
    """The limits of a key map.

    `keys` is the maximum number of keys, `load_factor` (0 to 1) the share of the memory that may be
    filled.
    """

    memory_bytes: int
    load_factor: float
    keys: int


class CopyRules(NamedTuple):
    """The rules by which a pass copies batches.

    Attributes:
        known_end: the keys below this offset were read; all records from here on are kept.
        round_end: the last batch before this offset is kept, if necessary without records.
        now_ms: tombstones are removed if their delete horizon is not later.
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
    """The kept uncompressed records of a batch, encoded; empty if all or none are kept."""

    kept_count: int
    is_unchanged: bool
    sets_horizon: bool
    base_timestamp: int
    max_timestamp: int
    data: Bytes


class CopiedBatches(NamedTuple):
    """The copies of a chunk's batches.

    `next_position` is the position of the first batch in the chunk that was not copied. `data` is
    overwritten by the next copy. Positions of the index points are relative to the beginning of
    `data`.
    """

    next_position: int
    data: memoryview
    points: list[IndexPoint]
    progress: IndexProgress
    records_read: int
    records_kept: int


class BatchCopier(Protocol):
    """Copies the kept records of whole batches."""

    def copy(self, data: bytes, at: int, progress: IndexProgress) -> CopiedBatches:
        """Copy the kept records of batches from position `at`, up to a batch that it cannot handle.

        `progress` is the index progress of the segment to which the copies are appended.
        """
        ...


class KeyMap(Protocol):
    """Notes keys, and finds the records whose key has no later one.

    The methods for many records at once stop before a batch that they cannot handle. The caller
    then reads the records and uses `put` and `newest_offset`.
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
        """Return a copier of whole batches from chunks of that size; None if there is none."""
        ...

    def close(self) -> None:
        """Free the memory. The map must not be used afterwards."""
        ...


class DictKeyMap:
    """A key map in Python."""

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
