"""The key map of compaction in native code (`native/src/compaction`), and its copier.

The native code lets other threads run meanwhile. It gives up in front of what it does not handle
(a compressed, transactional, control or damaged batch); `batch_filter` then handles that batch.
Import this module only where `spindle.common.native.is_native_available`.
"""

import os
from typing import Final

from spindle import _native
from spindle.common.ports import Bytes
from spindle.log.cleaning.key_map import CopiedBatches, CopyRules, FilteredRecords, MapSize
from spindle.log.segments.segment import IndexPoint, IndexProgress
from spindle.protocol.records.batch import DELETE_HORIZON_FLAG, HEADER_BYTES, BatchHeader

_SLOT_BYTES: Final = 24


class NativeKeyMap:
    """A key map in one table: hashes of 16 bytes, made with a random key, and offsets.

    Raises:
        MemoryError: the system refuses the memory.
    """

    __slots__ = ("_key_limit", "_map", "_slots")

    def __init__(self, size: MapSize) -> None:
        slots = min(size.memory_bytes // _SLOT_BYTES, int(size.keys / size.load_factor) + 2)
        self._slots = max(slots, 2)
        self._key_limit = int(self._slots * size.load_factor)
        secret = os.urandom(16)
        words = int.from_bytes(secret[:8], "big"), int.from_bytes(secret[8:], "big")
        self._map = _native.KeyMap(self._slots, self._key_limit, words)

    @property
    def is_full(self) -> bool:
        return self._map.used >= self._key_limit

    @property
    def use(self) -> float:
        return self._map.used / self._slots

    def put(self, key: bytes, offset: int) -> bool:
        """Note the offset of the newest record with the key; False if there is no room left."""
        return self._map.put(key, offset)

    def newest_offset(self, key: bytes) -> int:
        """Return the largest offset that was noted for the key, -1 if none was."""
        return self._map.newest_offset(key)

    def put_records(self, header: BatchHeader, payload: Bytes, first_offset: int) -> bool:
        """Note the keys of uncompressed records from `first_offset` on; False if it gave up."""
        count = header.record_count
        if count < 0:
            return False
        return self._map.put_records(bytes(payload), count, header.base_offset, first_offset)

    def filter_records(
        self, header: BatchHeader, payload: Bytes, rules: CopyRules
    ) -> FilteredRecords | None:
        """Return the uncompressed records of a data batch that stay; None if it gave up."""
        if header.record_count < 0:
            return None
        batch = (
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.has_log_append_time,
            header.attributes & DELETE_HORIZON_FLAG != 0,
        )
        filtered = self._map.filter_records(bytes(payload), batch, _times(rules))
        return None if filtered is None else FilteredRecords._make(filtered)

    def put_batches(
        self, data: bytes, at: int, first_offset: int, end_offset: int
    ) -> tuple[int, int]:
        """Note the keys of whole, plain batches; see `KeyMap`."""
        return self._map.put_batches(data, at, first_offset, end_offset)

    def copier(self, rules: CopyRules, chunk_bytes: int) -> "NativeCopier":
        """Return a copier of whole, plain batches."""
        return NativeCopier(self._map, rules, chunk_bytes)

    def close(self) -> None:
        """Free the memory. The map and its copiers must not be used afterwards."""
        self._map.close()


class NativeCopier:
    """Copies the kept records of plain batches: uncompressed, and outside of transactions."""

    __slots__ = ("_copier", "_out")

    def __init__(self, key_map: _native.KeyMap, rules: CopyRules, chunk_bytes: int) -> None:
        self._out = bytearray(2 * chunk_bytes)
        self._copier = _native.Copier(
            key_map,
            _times(rules),
            rules.round_end,
            rules.last_offsets,
            rules.index_interval_bytes,
            len(self._out) // max(rules.index_interval_bytes, HEADER_BYTES) + 2,
        )

    def copy(self, data: bytes, at: int, progress: IndexProgress) -> CopiedBatches:
        """Copy the kept records of batches from position `at`; see `BatchCopier`."""
        position, written, points, progress_then, records_read, records_kept = self._copier.copy(
            data, at, progress, self._out
        )
        return CopiedBatches(
            position,
            memoryview(self._out)[:written],
            [IndexPoint._make(point) for point in points],
            IndexProgress._make(progress_then),
            records_read,
            records_kept,
        )


def _times(rules: CopyRules) -> tuple[int, int, int]:
    return rules.known_end, rules.now_ms, rules.new_horizon_ms
