"""The result of the audit of one segment: its findings, and the state for the next segments.

A part is small and has plain values, so that another process or machine can produce it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from spindle.audit.digests import LogDigest
from spindle.audit.findings import AuditFinding, FindingKind
from spindle.audit.index_files import IndexTail
from spindle.log.formats.transaction_index import AbortedTransaction

NO_BATCH: Final = -1
"""The last offset of a segment without transactions."""


class EpochRun(NamedTuple):
    """Consecutive batches with the same leader epoch, and the position of the first.

    `first_offset` is the base offset of the first of them, `last_offset` the end of the last one.
    """

    path: Path
    position: int
    epoch: int
    first_offset: int
    last_offset: int


class OffsetGap(NamedTuple):
    """Offsets that no batch has: [first_missing, following); `position` is that of the next batch.

    The position is None between two segments.
    """

    path: Path
    position: int | None
    first_missing: int
    following: int


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The state of one segment's batches that the next segments need.

    Attributes:
        first_offset, next_offset: the base offset of the first batch, and the offset after the
            last one; None without a batch.
        is_rewritten: batches lack records, which only compaction explains.
        epoch_runs: the leader epochs of the batches, in their order.
        gaps: the first gaps between batches, except after invalid bytes and after batches with a
            wrong offset.
    """

    first_offset: int | None
    next_offset: int | None
    is_rewritten: bool
    epoch_runs: tuple[EpochRun, ...]
    gaps: tuple[OffsetGap, ...] = ()


NO_BATCHES: Final = BatchPart(None, None, False, ())


class LastBatch(NamedTuple):
    """The last batch of a producer."""

    epoch: int
    last_sequence: int
    last_offset: int


class ProducerCut(NamedTuple):
    """The offset of a snapshot, and the last batch of each producer since the previous snapshot."""

    offset: int
    newest: Mapping[int, LastBatch]


class ProducerPart(NamedTuple):
    """The producers of one segment.

    Attributes:
        first_offset: the base offset of the first batch, None without a batch.
        cuts: one for each snapshot whose offset is not above the last batch.
        newest: the last batches after the last of these snapshots, by producer id.
    """

    first_offset: int | None
    cuts: tuple[ProducerCut, ...]
    newest: Mapping[int, LastBatch]


class Marker(NamedTuple):
    """The control batch that ended a transaction."""

    position: int
    offset: int
    producer_id: int
    is_abort: bool


class SeenMarker(NamedTuple):
    """A marker in a segment.

    Attributes:
        began_at: the first offset of its transaction in this segment, None if there is none.
        is_first: no marker of the producer is before it in this segment, so its transaction may
            have begun in an earlier one.
        open_from: the first offset of the transactions of other producers that began in this
            segment and are open at the marker, None if there is none.
    """

    marker: Marker
    began_at: int | None
    is_first: bool
    open_from: int | None


NO_PRODUCERS: Final = ProducerPart(None, (), {})


class TransactionPart(NamedTuple):
    """The transactions of one segment.

    Attributes:
        entries: of its transaction index, None if they cannot be read.
        last_offset: the last offset of a transactional batch or marker, -1 for none.
        markers: the abort markers, and those that the index names.
        ended: the offset of the first marker of each producer with one, by producer id.
        still_open: the first offsets of transactions that have not ended, by producer id.
        begun: the producers of transactions by first offset; only for offsets that are the last
            stable offset of an index entry and follow the entry's marker.
    """

    index_path: Path
    base_offset: int
    entries: Sequence[AbortedTransaction] | None
    last_offset: int
    markers: tuple[SeenMarker, ...]
    ended: dict[int, int]
    still_open: dict[int, int]
    begun: dict[int, int]


class SegmentBatches(NamedTuple):
    """The result of a walk over the batches of a segment, with attributes of `SegmentPart`."""

    batches: BatchPart
    producers: ProducerPart
    transactions: TransactionPart
    digest: LogDigest
    size_bytes: int
    batch_count: int
    index_tail: IndexTail | None


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The findings of the audit of one segment, and the state for the next segments.

    Attributes:
        is_gone: the file was removed during the audit.
        left_out: findings beyond those that are listed, by kind.
        index_tail: of the offset index of a finished segment, None if there is none.
    """

    path: Path
    base_offset: int
    findings: tuple[AuditFinding, ...]
    left_out: Mapping[FindingKind, int]
    batches: BatchPart
    producers: ProducerPart
    transactions: TransactionPart
    digest: LogDigest
    size_bytes: int
    batch_count: int
    is_gone: bool = False
    index_tail: IndexTail | None = None
