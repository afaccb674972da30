"""The audit of a segment up to its first unusual batch, in C and without NumPy.

Most segments are sound: each checksum is right, no offset is missing, each index entry names its
batch, and there are no transactions. The import of NumPy takes longer than the walk over hundreds
of MiB of such segments. So compiled code (`log/cleaning/kernel.c`) runs the checks, and stops
before the first batch that a check would report or that it does not handle: a transaction, or
missing offsets, perhaps because of compaction. `column_checks` continues from there, and decides
about findings.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from spindle.audit import file_limits
from spindle.audit.digests import TAIL_BATCHES, DigestBuilder
from spindle.audit.index_files import LOST_ENTRIES, IndexContent, IndexTail
from spindle.audit.record_checks import PackedBatch, RecordChecks
from spindle.audit.segment_part import (
    NO_BATCH,
    NO_BATCHES,
    NO_PRODUCERS,
    BatchPart,
    EpochRun,
    LastBatch,
    ProducerCut,
    ProducerPart,
    SegmentBatches,
    TransactionPart,
)
from spindle.log.cleaning.native_kernel import load_library
from spindle.log.formats.index_entries import OFFSET_ENTRY, TIME_ENTRY
from spindle.log.formats.names import INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from spindle.protocol.records.batch import HEADER_BYTES, add_to_sequence

_WINDOW_BYTES: Final = 256 << 10
"""Bytes of one read; they fit into a core's cache."""
_BUDGET_BYTES: Final = 4 << 20
"""Bytes after which a throttle may wait."""
_NO_SNAPSHOT: Final = 2**63 - 1

_AT_END: Final = 0
_NEEDS_ROOM: Final = 2
_UNUSUAL: Final = 3

_INT64: Final = ctypes.c_int64
_EPOCH_RUN: Final = Struct("=4q")
_LAST_BATCH: Final = Struct("=6q")
_RANGE_SUM: Final = Struct("=qQ")
_BATCH_DIGEST: Final = Struct("=qQ")
_PACKED_BATCH: Final = Struct("=6q")
_PRODUCER_SLOTS: Final = 1024
_RANGES: Final = 1024
_PACKED_BATCHES: Final = 1024
_EPOCH_RUNS: Final = 256
_TIMES_BEHIND: Final = 64


class _Walk(ctypes.Structure):
    """`sound_walk` of `kernel.c`."""

    _fields_ = (
        *((name, _INT64) for name in ("file", "size_bytes", "base_offset", "checks_records")),
        ("max_batch_bytes", _INT64),
        ("offset_entries", ctypes.c_void_p),
        ("time_entries", ctypes.c_void_p),
        *(
            (name, _INT64)
            for name in (
                "offset_entry_count",
                "time_entry_count",
                "snapshot_offset",
                "budget_bytes",
                "position",
                "batch_count",
                "first_offset",
                "next_offset",
                "is_rewritten",
                "last_position",
                "greatest_timestamp",
                "starts_seen",
                "ends_seen",
                "times_seen",
                "run_count",
                "behind_count",
                "producer_count",
                "range_count",
                "packed_count",
                "is_at_snapshot",
                "needed_bytes",
            )
        ),
        ("runs", ctypes.c_char * (_EPOCH_RUN.size * _EPOCH_RUNS)),
        ("times_behind", _INT64 * _TIMES_BEHIND),
        ("producers", ctypes.c_char * (_LAST_BATCH.size * _PRODUCER_SLOTS)),
        ("range_sums", ctypes.c_char * (_RANGE_SUM.size * _RANGES)),
        ("tail", ctypes.c_char * (_BATCH_DIGEST.size * TAIL_BATCHES)),
        ("packed", ctypes.c_char * (_PACKED_BATCH.size * _PACKED_BATCHES)),
    )


@dataclass(slots=True)
class SoundPrefix:
    """The batches of a segment before the first unusual one.

    Attributes:
        path, base_offset: of the segment.
        position: where they end.
        last_position: where the last of them begins.
        starts_seen, ends_seen: entries of the offset index whose positions, and whose offsets,
            match these batches.
        times_seen: entries of the time index that name one of them.
        greatest_timestamp: of these batches, -1 if there is none.
        times_behind: ascending positions of the batches that the last of these entries name, after
            the last position in the offset index.
        is_whole: they are the whole segment, and all index entries match them.
    """

    path: Path
    base_offset: int
    position: int = 0
    last_position: int = 0
    batch_count: int = 0
    starts_seen: int = 0
    ends_seen: int = 0
    times_seen: int = 0
    times_behind: tuple[int, ...] = ()
    greatest_timestamp: int = -1
    batches: BatchPart = NO_BATCHES
    producers: ProducerPart = NO_PRODUCERS
    digest: DigestBuilder = field(default_factory=DigestBuilder)
    index_tail: IndexTail | None = None
    is_whole: bool = False

    def result(self) -> SegmentBatches:
        """Return the state of the batches, if they are the whole segment."""
        index = self.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        return SegmentBatches(
            self.batches,
            self.producers,
            TransactionPart(index, self.base_offset, [], NO_BATCH, (), {}, {}, {}),
            self.digest.digest(),
            self.position,
            self.batch_count,
            self.index_tail,
        )


def sound_prefix(
    file: Any,
    size_bytes: int,
    prefix: SoundPrefix,
    indexes: tuple[IndexContent, IndexContent],
    snapshot_offsets: Sequence[int],
    *,
    is_finished: bool,
    records: RecordChecks | None,
    on_bytes: Callable[[int], None],
) -> SoundPrefix:
    """Return the sound batches at the beginning of a segment; none without the compiled code.

    Args:
        file: the open segment.
        prefix: an empty prefix, which names the segment.
        indexes: its offset index and its time index.
        snapshot_offsets: of all producer snapshots of the log, ascending.
        is_finished: the segment was rolled or closed cleanly.
        records: reports wrong compressed records; None if records are not checked.
        on_bytes: called with the bytes of batches as they are read.
    """
    library = load_library()
    if library is None or not all(index.is_whole for index in indexes):
        return prefix
    entries = _index_entries(library, indexes, is_finished=is_finished)
    if entries is None:
        return prefix
    walk = _SoundWalk(library, file, size_bytes, prefix, indexes, entries, records, on_bytes)
    return walk.run(snapshot_offsets, is_finished=is_finished)


class _IndexEntries(NamedTuple):
    """The entries of both indexes of a segment, which ascend."""

    offset_count: int
    smallest_gap_bytes: int
    largest_gap_bytes: int
    last_position: int
    time_count: int
    last_timestamp: int


def _index_entries(
    library: Any, indexes: tuple[IndexContent, IndexContent], *, is_finished: bool
) -> _IndexEntries | None:
    """Return the entries; None if they do not ascend, or if their files have odd sizes."""
    offsets, times = indexes
    gaps, last_timestamp = (_INT64 * 3)(), _INT64()
    offset_count = library.spindle_offset_index(
        _address(offsets.data), len(offsets.data), ctypes.addressof(gaps)
    )
    time_count = library.spindle_time_index(
        _address(times.data), len(times.data), ctypes.addressof(last_timestamp)
    )
    for index, entry, count in (
        (offsets, OFFSET_ENTRY, offset_count),
        (times, TIME_ENTRY, time_count),
    ):
        if count < 0 or index.size_bytes % entry.size:
            return None
        if is_finished and index.size_bytes != count * entry.size:
            return None
    smallest, largest, last_position = gaps
    return _IndexEntries(
        offset_count, smallest, largest, last_position, time_count, last_timestamp.value
    )


def _address(data: bytes | bytearray) -> int | None:
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if data else None


class _SoundWalk:
    """One pass over a segment; the arguments are those of `sound_prefix`."""

    def __init__(
        self,
        library: Any,
        file: Any,
        size_bytes: int,
        prefix: SoundPrefix,
        indexes: tuple[IndexContent, IndexContent],
        entries: _IndexEntries,
        records: RecordChecks | None,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._library = library
        self._prefix = prefix
        self._indexes = indexes  # they keep the memory of the entries
        self._entries = entries
        self._records = records
        self._on_bytes = on_bytes
        self._cuts: list[ProducerCut] = []
        self._newest: dict[int, LastBatch] = {}
        self._walk = _Walk(
            file=file.fileno(),
            size_bytes=size_bytes,
            base_offset=prefix.base_offset,
            checks_records=records is not None,
            max_batch_bytes=file_limits.MAX_BATCH_BYTES,
            offset_entries=_address(indexes[0].data),
            time_entries=_address(indexes[1].data),
            offset_entry_count=entries.offset_count,
            time_entry_count=entries.time_count,
            budget_bytes=_BUDGET_BYTES,
            greatest_timestamp=-1,
        )
        self._use(max(HEADER_BYTES, min(_WINDOW_BYTES, size_bytes)))

    def _use(self, room_bytes: int) -> None:
        self._buffer = bytearray(room_bytes)

    def run(self, snapshot_offsets: Sequence[int], *, is_finished: bool) -> SoundPrefix:
        walk, waiting = self._walk, list(snapshot_offsets)
        status = -1
        while status not in (_AT_END, _UNUSUAL):
            walk.snapshot_offset = waiting[0] if waiting else _NO_SNAPSHOT
            before = walk.position
            status = self._library.spindle_walk_sound_batches(
                ctypes.addressof(walk), _address(self._buffer), len(self._buffer)
            )
            self._take()
            if walk.position > before:
                self._on_bytes(walk.position - before)
            if walk.is_at_snapshot:
                self._cuts.append(ProducerCut(waiting.pop(0), self._newest))
                self._newest = {}
            if status == _NEEDS_ROOM:
                self._use(walk.needed_bytes)
        return self._noted(status == _AT_END, is_finished=is_finished)

    def _take(self) -> None:
        """Store the results for which the walk's buffers have no room."""
        walk, prefix = self._walk, self._prefix
        if walk.producer_count:
            for is_used, producer_id, epoch, sequence, delta, offset in _LAST_BATCH.iter_unpack(
                memoryview(walk).cast("B")[_Walk.producers.offset :][: _Walk.producers.size]
            ):
                if is_used:
                    last_sequence = add_to_sequence(sequence, delta)
                    self._newest[producer_id] = LastBatch(epoch, last_sequence, offset)
            at = ctypes.addressof(walk) + _Walk.producers.offset
            ctypes.memset(at, 0, _Walk.producers.size)
            walk.producer_count = 0
        prefix.digest.add(self._rows("range_sums", _RANGE_SUM, walk.range_count), ())
        walk.range_count = 0
        if self._records is not None:
            for row in self._rows("packed", _PACKED_BATCH, walk.packed_count):
                self._check_packed(self._records, *row)
        walk.packed_count = 0

    def _check_packed(
        self,
        records: RecordChecks,
        start: int,
        size_bytes: int,
        codec: int,
        count: int,
        last_delta: int,
        position: int,
    ) -> None:
        head = memoryview(self._buffer)[start : start + size_bytes]
        base_offset = int.from_bytes(head[:8], "big")
        batch = PackedBatch(position, base_offset, codec, count, last_delta)
        records.packed(batch, head[HEADER_BYTES:])

    def _rows(self, name: str, row: Struct, count: int) -> Any:
        member = getattr(_Walk, name)
        data = memoryview(self._walk).cast("B")[member.offset :][: count * row.size]
        return row.iter_unpack(data)

    def _noted(self, is_at_end: bool, *, is_finished: bool) -> SoundPrefix:
        walk, prefix = self._walk, self._prefix
        path, has_batches = prefix.path, walk.batch_count > 0
        first_offset = walk.first_offset if has_batches else None
        prefix.position, prefix.last_position = walk.position, walk.last_position
        prefix.batch_count = walk.batch_count
        prefix.starts_seen, prefix.ends_seen = walk.starts_seen, walk.ends_seen
        prefix.times_behind = tuple(walk.times_behind[: walk.behind_count])
        prefix.times_seen, prefix.greatest_timestamp = walk.times_seen, walk.greatest_timestamp
        prefix.batches = BatchPart(
            first_offset,
            walk.next_offset if has_batches else None,
            bool(walk.is_rewritten),
            tuple(EpochRun(path, *run) for run in self._rows("runs", _EPOCH_RUN, walk.run_count)),
        )
        prefix.producers = ProducerPart(first_offset, tuple(self._cuts), self._newest)
        kept = min(walk.batch_count, TAIL_BATCHES)
        tail = list(self._rows("tail", _BATCH_DIGEST, kept))
        oldest = walk.batch_count % TAIL_BATCHES if kept == TAIL_BATCHES else 0
        prefix.digest.add((), [*tail[oldest:], *tail[:oldest]])
        is_complete = not is_finished or self._entries.last_timestamp >= walk.greatest_timestamp
        prefix.is_whole = (
            is_at_end
            and walk.starts_seen == walk.ends_seen == walk.offset_entry_count
            and walk.times_seen == walk.time_entry_count
            and is_complete
        )
        if prefix.is_whole and is_finished:
            prefix.index_tail = self._index_tail()
        return prefix

    def _index_tail(self) -> IndexTail:
        entries, walk = self._entries, self._walk
        positions = [entries.last_position, *self._prefix.times_behind]
        gaps = sorted(after - before for before, after in pairwise(positions))
        return IndexTail(
            self._prefix.path.with_suffix(INDEX_SUFFIX),
            entries.offset_count,
            entries.smallest_gap_bytes,
            entries.largest_gap_bytes,
            walk.last_position - entries.last_position,
            gaps[-LOST_ENTRIES] if len(gaps) >= LOST_ENTRIES else 0,
        )
