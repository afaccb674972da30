"""The audit of a segment up to its first unusual batch, in native code and without NumPy.

Most segments are sound: each checksum is right, no offset is missing, each index entry names its
batch, and there are no transactions. The import of NumPy takes longer than the walk over hundreds
of MiB of such segments. So native code (`native/src/audit/sound_walk.rs`) runs the checks, and
stops before the first batch that a check would report or that it does not handle: a transaction, or
missing offsets, perhaps because of compaction. `column_checks` continues from there, and decides
about findings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spindle.audit import file_limits
from spindle.audit.digests import DigestBuilder
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
from spindle.common.native import is_native_available
from spindle.log.formats.index_entries import OFFSET_ENTRY, TIME_ENTRY
from spindle.log.formats.names import INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from spindle.protocol.records.batch import HEADER_BYTES, add_to_sequence

if TYPE_CHECKING:
    from spindle import _native

_WINDOW_BYTES: Final = 256 << 10
"""Bytes of one read; they fit into a core's cache."""
_BUDGET_BYTES: Final = 4 << 20
"""Bytes after which a throttle may wait."""
_NO_SNAPSHOT: Final = 2**63 - 1


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
    """Return the sound batches at the beginning of a segment; none without native code.

    Args:
        file: the open segment.
        prefix: an empty prefix, which names the segment.
        indexes: its offset index and its time index.
        snapshot_offsets: of all producer snapshots of the log, ascending.
        is_finished: the segment was rolled or closed cleanly.
        records: reports wrong compressed records; None if records are not checked.
        on_bytes: called with the bytes of batches as they are read.
    """
    if not is_native_available() or not all(index.is_whole for index in indexes):
        return prefix
    from spindle import _native

    offsets, times = indexes
    walk = _native.SoundWalk.begin(
        size_bytes,
        prefix.base_offset,
        records is not None,
        file_limits.MAX_BATCH_BYTES,
        offsets.data,
        times.data,
        _WINDOW_BYTES,
        _BUDGET_BYTES,
    )
    if walk is None:
        return prefix
    for index, entry, count in (
        (offsets, OFFSET_ENTRY, walk.offset_count),
        (times, TIME_ENTRY, walk.time_count),
    ):
        if index.size_bytes % entry.size:
            return prefix
        if is_finished and index.size_bytes != count * entry.size:
            return prefix
    return _SoundWalk(walk, file, prefix, records, on_bytes).run(
        snapshot_offsets, is_finished=is_finished
    )


class _SoundWalk:
    """One pass over a segment; the arguments are those of `sound_prefix`."""

    def __init__(
        self,
        walk: "_native.SoundWalk",
        file: Any,
        prefix: SoundPrefix,
        records: RecordChecks | None,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._walk = walk
        self._file = file
        self._prefix = prefix
        self._records = records
        self._on_bytes = on_bytes
        self._cuts: list[ProducerCut] = []
        self._newest: dict[int, LastBatch] = {}

    def run(self, snapshot_offsets: Sequence[int], *, is_finished: bool) -> SoundPrefix:
        walk, waiting = self._walk, list(snapshot_offsets)
        status = ""
        while status not in ("at end", "unusual"):
            before = walk.position
            status = walk.run(self._file.fileno(), waiting[0] if waiting else _NO_SNAPSHOT)
            self._take()
            if walk.position > before:
                self._on_bytes(walk.position - before)
            if status == "at snapshot":
                self._cuts.append(ProducerCut(waiting.pop(0), self._newest))
                self._newest = {}
        return self._noted(status == "at end", is_finished=is_finished)

    def _take(self) -> None:
        """Take the results that the walk holds only until its next step."""
        for producer_id, epoch, sequence, delta, offset in self._walk.take_producers():
            last_sequence = add_to_sequence(sequence, delta)
            self._newest[producer_id] = LastBatch(epoch, last_sequence, offset)
        self._prefix.digest.add(self._walk.take_range_sums(), ())
        packed = self._walk.take_packed()
        if self._records is not None:
            for position, base_offset, codec, count, last_delta, data in packed:
                batch = PackedBatch(position, base_offset, codec, count, last_delta)
                self._records.packed(batch, memoryview(data)[HEADER_BYTES:])

    def _noted(self, is_at_end: bool, *, is_finished: bool) -> SoundPrefix:
        walk, prefix = self._walk, self._prefix
        path, has_batches = prefix.path, walk.batch_count > 0
        first_offset = walk.first_offset if has_batches else None
        prefix.position, prefix.last_position = walk.position, walk.last_position
        prefix.batch_count = walk.batch_count
        prefix.starts_seen, prefix.ends_seen = walk.starts_seen, walk.ends_seen
        prefix.times_behind = tuple(walk.times_behind)
        prefix.times_seen, prefix.greatest_timestamp = walk.times_seen, walk.greatest_timestamp
        prefix.batches = BatchPart(
            first_offset,
            walk.next_offset if has_batches else None,
            walk.is_rewritten,
            tuple(EpochRun(path, *run) for run in walk.runs),
        )
        prefix.producers = ProducerPart(first_offset, tuple(self._cuts), self._newest)
        prefix.digest.add((), walk.tail)
        is_complete = not is_finished or walk.last_timestamp >= walk.greatest_timestamp
        prefix.is_whole = (
            is_at_end
            and walk.starts_seen == walk.ends_seen == walk.offset_count
            and walk.times_seen == walk.time_count
            and is_complete
        )
        if prefix.is_whole and is_finished:
            prefix.index_tail = self._index_tail()
        return prefix

    def _index_tail(self) -> IndexTail:
        walk = self._walk
        positions = [walk.last_indexed_position, *self._prefix.times_behind]
        gaps = sorted(after - before for before, after in pairwise(positions))
        return IndexTail(
            self._prefix.path.with_suffix(INDEX_SUFFIX),
            walk.offset_count,
            *walk.gaps,
            walk.last_position - walk.last_indexed_position,
            gaps[-LOST_ENTRIES] if len(gaps) >= LOST_ENTRIES else 0,
        )
