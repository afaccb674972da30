"""The compiled inner loops of compaction, `kernel.c`, through ctypes.

Installing Spindle compiles them if there is a C compiler (see `hatch_build.py`). They are loaded
with the first compaction pass or audit, so a node that compacts nothing pays nothing for them.
"""

import ctypes
import logging
import os
import zlib
from functools import cache
from pathlib import Path
from typing import Final

from spindle.common.ports import Bytes
from spindle.log.cleaning.key_map import (
    CopiedBatches,
    CopyRules,
    FilteredRecords,
    MapSize,
)
from spindle.log.segments.segment import IndexPoint, IndexProgress
from spindle.protocol.records.batch import DELETE_HORIZON_FLAG, BatchHeader
from spindle.protocol.records.compression import MODERATE_BYTES

log = logging.getLogger(__name__)

LIBRARY: Final = Path(__file__).with_name("_kernel.so")
SOURCE: Final = Path(__file__).with_name("kernel.c")
CHECKSUMS: Final = Path(__file__).with_name("_kernel.checksums")
"""The CRC-32 of the source and that of the library, one in each line."""

_SLOT_BYTES: Final = 24
_MAX_RECORD_GROWTH: Final = 16
_INT64: Final = ctypes.c_int64
_POINTER: Final = ctypes.c_void_p


class _Filter(ctypes.Structure):
    _fields_ = tuple(
        (name, _INT64)
        for name in (
            "count",
            "base_offset",
            "base_timestamp",
            "max_timestamp",
            "has_append_time",
            "has_horizon",
            "known_end",
            "now_ms",
            "new_horizon_ms",
            "kept",
            "sets_horizon",
            "is_unchanged",
            "new_base_timestamp",
            "new_max_timestamp",
        )
    )


class _Walk(ctypes.Structure):
    _fields_ = (
        ("first_offset", _INT64),
        ("end_offset", _INT64),
        ("key_limit", _INT64),
        ("known_end", _INT64),
        ("now_ms", _INT64),
        ("new_horizon_ms", _INT64),
        ("index_interval_bytes", _INT64),
        ("point_room", _INT64),
        ("round_end", _INT64),
        ("last_offsets", ctypes.POINTER(_INT64)),
        ("last_offset_count", _INT64),
        ("mapped_end", _INT64),
        ("max_timestamp", _INT64),
        ("max_timestamp_offset", _INT64),
        ("bytes_since_point", _INT64),
        ("records_read", _INT64),
        ("records_kept", _INT64),
        ("written", _INT64),
        ("points", _INT64),
    )


class _Point(ctypes.Structure):
    _fields_ = (
        ("last_offset", _INT64),
        ("position", _INT64),
        ("max_timestamp", _INT64),
        ("max_timestamp_offset", _INT64),
    )


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the compiled loops; None if they were not compiled, or must not be loaded.

    A library from another version of the source reads other structures than the ones below. A
    truncated one ends the process with SIGBUS.
    """
    if not LIBRARY.exists():
        return None
    try:
        files = (SOURCE, LIBRARY)
        value = "".join(f"{zlib.crc32(file.read_bytes())}\n" for file in files)
        if CHECKSUMS.read_bytes() != value.encode():
            log.warning(
                "%s is damaged or of another version: compaction runs without it, at a fraction of "
                "the rate, and audits start more slowly; install Spindle again",
                LIBRARY,
            )
            return None
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        log.warning("%s cannot be loaded: compaction and audits run without it: %s", LIBRARY, error)
        return None
    data, number = ctypes.c_char_p, _INT64
    signatures: dict[str, tuple[object, list[object]]] = {
        "spindle_cleaning_begin": (None, []),
        "spindle_map_new": (_POINTER, [ctypes.c_uint64] * 3),
        "spindle_map_free": (None, [_POINTER]),
        "spindle_map_used": (ctypes.c_uint64, [_POINTER]),
        "spindle_map_put": (ctypes.c_int, [_POINTER, data, number, number]),
        "spindle_map_get": (number, [_POINTER, data, number]),
        "spindle_map_records": (ctypes.c_int, [_POINTER, data, number, number, number, number]),
        "spindle_filter_records": (
            number,
            [_POINTER, data, number, _POINTER, _POINTER, _POINTER, number],
        ),
        "spindle_map_batches": (number, [_POINTER, data, number, number, _POINTER]),
        "spindle_copy_batches": (
            number,
            [_POINTER, data, *[number] * 2, *[_POINTER] * 3, number, _POINTER],
        ),
        "spindle_check_records": (ctypes.c_int, [_POINTER, *[number] * 3, _POINTER]),
        "spindle_digest_records": (number, [_POINTER, number, _POINTER]),
        "spindle_offset_index": (number, [_POINTER, number, _POINTER]),
        "spindle_time_index": (number, [_POINTER, number, _POINTER]),
        "spindle_walk_sound_batches": (ctypes.c_int, [_POINTER, _POINTER, number]),
        "spindle_walk_headers": (
            None,
            [*[number] * 4, _POINTER, ctypes.c_int, _POINTER, number, _POINTER, _POINTER],
        ),
    }
    for name, (return_type, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = return_type, arguments
    library.spindle_cleaning_begin()
    return library


class NativeKeyMap:
    """A key map in one table: hashes of 16 bytes, made with a random key, and offsets.

    Raises:
        MemoryError: the system refuses the memory.
    """

    __slots__ = ("_is_kept", "_key_limit", "_library", "_map", "_out", "_slots")

    def __init__(self, library: ctypes.CDLL, size: MapSize) -> None:
        slots = min(size.memory_bytes // _SLOT_BYTES, int(size.keys / size.load_factor) + 2)
        slots = max(slots, 2)
        self._library = library
        self._slots = slots
        self._out, self._is_kept = bytearray(), bytearray()
        self._key_limit = int(slots * size.load_factor)
        secret = os.urandom(16)
        self._map: int | None = library.spindle_map_new(
            slots, int.from_bytes(secret[:8], "big"), int.from_bytes(secret[8:], "big")
        )
        if self._map is None:
            raise MemoryError(f"a key map of {slots * _SLOT_BYTES} bytes")

    def __del__(self) -> None:
        self.close()

    @property
    def is_full(self) -> bool:
        return self._used() >= self._key_limit

    @property
    def use(self) -> float:
        return self._used() / self._slots

    def _used(self) -> int:
        used: int = self._library.spindle_map_used(self._map)
        return used

    def put(self, key: bytes, offset: int) -> bool:
        """Note the offset of the newest record with the key; False if there is no room left."""
        return bool(self._library.spindle_map_put(self._map, key, len(key), offset))

    def newest_offset(self, key: bytes) -> int:
        """Return the largest offset that was noted for the key, -1 if none was."""
        offset: int = self._library.spindle_map_get(self._map, key, len(key))
        return offset

    def put_records(self, header: BatchHeader, payload: Bytes, first_offset: int) -> bool:
        """Note the keys of uncompressed records from `first_offset` on; False if it gave up."""
        data = bytes(payload)
        done: int = self._library.spindle_map_records(
            self._map, data, len(data), header.record_count, header.base_offset, first_offset
        )
        return done == 1

    def filter_records(
        self, header: BatchHeader, payload: Bytes, rules: CopyRules
    ) -> FilteredRecords | None:
        """Return the uncompressed records of a data batch that stay; None if it gave up."""
        data = bytes(payload)
        count = header.record_count
        if not 0 <= count <= len(data):
            return None
        task = _Filter(
            count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.has_log_append_time,
            header.attributes & DELETE_HORIZON_FLAG != 0,
            rules.known_end,
            rules.now_ms,
            rules.new_horizon_ms,
        )
        room = len(data) + count * _MAX_RECORD_GROWTH
        out, is_kept = self._out, self._is_kept
        if len(out) <= room:
            out = bytearray(room + 1)
        if len(is_kept) <= count:
            is_kept = bytearray(count + 1)
        if room <= MODERATE_BYTES:
            self._out, self._is_kept = out, is_kept
        written = self._library.spindle_filter_records(
            self._map, data, len(data), ctypes.addressof(task), _at(is_kept), _at(out), room
        )
        if written < 0:
            return None
        return FilteredRecords(
            task.kept,
            bool(task.is_unchanged),
            bool(task.sets_horizon),
            task.new_base_timestamp,
            task.new_max_timestamp,
            memoryview(out)[:written],
        )

    def put_batches(
        self, data: bytes, at: int, first_offset: int, end_offset: int
    ) -> tuple[int, int]:
        """Note the keys of whole, plain batches; see `KeyMap`."""
        walk = _Walk(first_offset, end_offset, self._key_limit, mapped_end=-1)
        position = self._library.spindle_map_batches(
            self._map, data, len(data), at, ctypes.addressof(walk)
        )
        return position, walk.mapped_end

    def copier(self, rules: CopyRules, chunk_bytes: int) -> "NativeCopier":
        """Return a copier of whole, plain batches."""
        assert self._map is not None
        return NativeCopier(self._library, self._map, rules, chunk_bytes)

    def close(self) -> None:
        """Free the memory. The map and its copiers must not be used afterwards."""
        if self._map is not None:
            self._library.spindle_map_free(self._map)
            self._map = None


class NativeCopier:
    """Copies the kept records of plain batches: uncompressed, and outside of transactions."""

    __slots__ = ("_is_kept", "_last", "_library", "_map", "_out", "_points", "_walk")

    def __init__(
        self, library: ctypes.CDLL, key_map: int, rules: CopyRules, chunk_bytes: int
    ) -> None:
        self._library = library
        self._map = key_map
        room = 2 * chunk_bytes
        self._out = bytearray(room)
        self._is_kept = bytearray(room)
        point_room = room // max(rules.index_interval_bytes, 61) + 2
        self._points = (_Point * point_room)()
        self._last = (_INT64 * len(rules.last_offsets))(*rules.last_offsets)
        self._walk = _Walk(
            known_end=rules.known_end,
            now_ms=rules.now_ms,
            new_horizon_ms=rules.new_horizon_ms,
            index_interval_bytes=rules.index_interval_bytes,
            point_room=point_room,
            round_end=rules.round_end,
            last_offsets=self._last,
            last_offset_count=len(rules.last_offsets),
        )

    def copy(self, data: bytes, at: int, progress: IndexProgress) -> CopiedBatches:
        """Copy the kept records of batches from position `at`; see `BatchCopier`."""
        walk = self._walk
        walk.max_timestamp, walk.max_timestamp_offset, walk.bytes_since_point = progress
        walk.records_read = walk.records_kept = 0
        position = self._library.spindle_copy_batches(
            self._map,
            data,
            len(data),
            at,
            ctypes.addressof(walk),
            _at(self._is_kept),
            _at(self._out),
            len(self._out),
            ctypes.addressof(self._points),
        )
        return CopiedBatches(
            position,
            memoryview(self._out)[: walk.written],
            [
                IndexPoint(p.last_offset, p.position, p.max_timestamp, p.max_timestamp_offset)
                for p in self._points[: walk.points]
            ],
            IndexProgress(walk.max_timestamp, walk.max_timestamp_offset, walk.bytes_since_point),
            walk.records_read,
            walk.records_kept,
        )


def _at(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
