"""Compaction: of each key only the newest record stays (KIP-58; tombstones: KIP-534).

A pass reads the dirty part of a log and notes the newest offset of each key, then writes segments
anew, from the start of the log up to there, leaving out older records, records of aborted
transactions, and tombstones and markers whose delete horizon has passed. Rewritten batches keep
their base and last offsets. Nothing here touches the log: the pass runs in any thread, and the
directory's thread puts the result in place (`replacement.put_in_place`).
"""

from struct import error as StructError
from typing import Final, NamedTuple

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.ports import FileSystem
from spindle.log.cleaning.plan import CleaningPlan, SourceSegment
from spindle.log.cleaning.transactions import CleanedTransactions
from spindle.log.errors import CleaningAborted, UncleanableLog
from spindle.log.formats.index_entries import MAX_RELATIVE_OFFSET
from spindle.log.formats.names import CLEANED_SUFFIX
from spindle.log.handles import FileHandles
from spindle.log.segments.segment import ScannedBatch, Segment
from spindle.protocol.records.batch import BatchHeader, check_crc, read_header
from spindle.protocol.records.builder import empty_batch, rebuild_batch
from spindle.protocol.records.record import Record, decode_records

DEFAULT_MAP_BYTES: Final = 128 * 1024 * 1024
_BYTES_PER_KEY: Final = 120
"""Memory of one entry of the map, without the bytes of its key; estimated."""
_OPEN_FILES: Final = 16


class KeyOffsets:
    """The newest offset of each key in the part of a log that was read."""

    __slots__ = ("_left_bytes", "_offsets", "end_offset")

    def __init__(self, start_offset: int, limit_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._left_bytes = limit_bytes
        self.end_offset = start_offset

    @property
    def is_full(self) -> bool:
        return self._left_bytes <= 0

    def put(self, key: bytes, offset: int) -> None:
        if key not in self._offsets:
            self._left_bytes -= len(key) + _BYTES_PER_KEY
        self._offsets[key] = offset

    def is_newest(self, record: Record) -> bool:
        """Return whether no later record with the same key was read; False without a key.

        A record without a key is not.
        """
        if record.offset >= self.end_offset:
            return True
        return record.key is not None and record.offset >= self._offsets.get(record.key, -1)

    def __len__(self) -> int:
        return len(self._offsets)


class CleanedGroup(NamedTuple):
    """Segments and the one that replaces them (files with the suffix `.cleaned`)."""

    sources: list[SourceSegment]
    cleaned: Segment


class CleaningResult(NamedTuple):
    """The output of a pass; `end_offset` is the exclusive end of the clean part."""

    plan: CleaningPlan
    groups: list[CleanedGroup]
    end_offset: int
    bytes_before: int
    bytes_after: int


class Cleaning:
    """One compaction pass over one log."""

    __slots__ = ("_handles", "_keys", "_now_ms", "_transactions", "plan")

    def __init__(
        self,
        file_system: FileSystem,
        plan: CleaningPlan,
        now_ms: int,
        map_bytes: int = DEFAULT_MAP_BYTES,
    ) -> None:
        self._handles = FileHandles(file_system, _OPEN_FILES)
        self.plan = plan
        self._now_ms = now_ms
        self._keys = KeyOffsets(plan.dirty.first_dirty_offset, map_bytes)
        self._transactions = CleanedTransactions(plan.aborted)

    def run(self) -> CleaningResult:
        """Do the pass. May run in any thread.

        Raises:
            CleaningAborted: the log was truncated, renamed or deleted meanwhile.
            UncleanableLog: a batch is damaged, or holds what no batch can (a client's records are
                not parsed when they are appended); the log stays as it is.
            OSError: the disk fails.
        """
        try:
            self._read_keys()
            groups = [CleanedGroup(group, self._write(group)) for group in self._groups()]
        except FileNotFoundError:
            self._raise_if_aborted()
            raise
        except (CorruptLog, CorruptRecords, StructError) as error:
            self._raise_if_aborted()
            raise UncleanableLog(self.plan.path, str(error)) from error
        finally:
            self._handles.close()
        return CleaningResult(
            self.plan,
            groups,
            self._keys.end_offset,
            sum(source.size_bytes for group in groups for source in group.sources),
            sum(group.cleaned.size_bytes for group in groups),
        )

    def _raise_if_aborted(self) -> None:
        if self.plan.signal.is_aborted:
            raise CleaningAborted(self.plan.path)

    def _read_keys(self) -> None:
        dirty = self.plan.dirty
        keys = self._keys
        transactions = CleanedTransactions(self.plan.aborted)
        for source in self.plan.sources:
            if source.end_offset <= dirty.first_dirty_offset:
                continue
            for batch in self._open(source).scan():
                self._raise_if_aborted()
                header = batch.header
                if header.last_offset < dirty.first_dirty_offset:
                    continue
                if keys.is_full or header.last_offset >= dirty.end_offset:
                    return
                check_crc(batch.data, 0, header)
                if header.is_control:
                    transactions.is_marker_of_nothing(header, batch.data)
                elif not transactions.is_aborted(header):
                    self._note_keys(batch)
                keys.end_offset = header.next_offset
            keys.end_offset = min(source.end_offset, dirty.end_offset)

    def _note_keys(self, batch: ScannedBatch) -> None:
        first = self.plan.dirty.first_dirty_offset
        for record in decode_records(batch.data, 0, batch.header):
            if record.key is not None and record.offset >= first:
                self._keys.put(record.key, record.offset)

    def _groups(self) -> list[list[SourceSegment]]:
        """Return groups of neighbouring segments that fit into one segment each, in order, up to
        the offset where the keys are known.
        """
        config = self.plan.config
        groups: list[list[SourceSegment]] = []
        size = index_bytes = 0
        for source in self.plan.sources:
            if source.base_offset >= self._keys.end_offset:
                break
            size += source.size_bytes
            index_bytes += source.index_bytes
            if (
                not groups
                or size > config.segment_bytes
                or index_bytes > config.segment_index_bytes
                or source.end_offset - groups[-1][0].base_offset > MAX_RELATIVE_OFFSET
            ):
                groups.append([])
                size, index_bytes = source.size_bytes, source.index_bytes
            groups[-1].append(source)
        return groups

    def _open(self, source: SourceSegment) -> Segment:
        config = self.plan.config
        segment = Segment(self._handles, self.plan.path, source.base_offset, config, 0)
        segment.size_bytes = source.size_bytes
        return segment

    def _write(self, group: list[SourceSegment]) -> Segment:
        plan = self.plan
        base_offset = group[0].base_offset
        cleaned = Segment(
            self._handles, plan.path, base_offset, plan.config, self._now_ms, CLEANED_SUFFIX
        )
        cleaned.create()
        cleaned.transaction_index.reset()
        for source in group:
            for batch in self._open(source).scan():
                self._raise_if_aborted()
                check_crc(batch.data, 0, batch.header)
                kept = self._filter(batch)
                if kept is not None:
                    cleaned.append(kept, [(0, read_header(kept))])
                for transaction in self._transactions.still_visible:
                    cleaned.transaction_index.append(transaction)
                self._transactions.still_visible.clear()
        cleaned.become_inactive()
        cleaned.sync()
        return cleaned

    def _filter(self, batch: ScannedBatch) -> bytes | memoryview | None:
        """Return what stays of a batch: the batch, a smaller one, an empty one, or None."""
        header = batch.header
        if header.is_control:
            is_done = self._transactions.is_marker_of_nothing(header, batch.data)
            horizon_ms = header.delete_horizon_ms
            has_expired = horizon_ms is not None and horizon_ms <= self._now_ms
            drops_all = is_done and has_expired
            needs_horizon = is_done and horizon_ms is None
        else:
            drops_all = self._transactions.is_aborted(header)
            needs_horizon = False
        records = decode_records(batch.data, 0, header)
        kept = [] if drops_all else [r for r in records if self._stays(header, r)]
        if not kept:
            return empty_batch(header) if self._must_remain(header) else None
        if not header.is_control and header.delete_horizon_ms is None:
            needs_horizon = any(record.value is None for record in kept)
        if len(kept) == len(records) and not needs_horizon:
            return batch.data
        new_horizon_ms = self._now_ms + self.plan.config.delete_retention_ms
        return rebuild_batch(
            header, kept, delete_horizon_ms=new_horizon_ms if needs_horizon else None
        )

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if header.is_control or record.offset >= self._keys.end_offset:
            return True
        if not self._keys.is_newest(record):
            return False
        horizon_ms = header.delete_horizon_ms
        return record.value is not None or horizon_ms is None or self._now_ms < horizon_ms

    def _must_remain(self, header: BatchHeader) -> bool:
        """Return whether the batch has to stay, if need be without records.

        The last batch of a producer keeps its sequences known, the last one of the clean part keeps
        its last offset known.
        """
        last = self.plan.last_records.get(header.producer_id)
        if header.has_producer_id and last is not None:
            if last.last_data_offset >= 0:
                is_last = header.last_offset == last.last_data_offset
            else:
                is_last = header.is_control and header.producer_epoch == last.producer_epoch
            if is_last:
                return True
        return header.next_offset == self._keys.end_offset
