"""Compaction: keep only the newest record of each key (KIP-58; tombstones: KIP-534).

A pass reads the dirty part of a log and notes the newest offset of each key, then writes segments
anew, from the start of the log up to there, leaving out older records, records of aborted
transactions, and tombstones and markers whose delete horizon has passed. Rewritten batches keep
their base and last offsets. Nothing here touches the log: the pass runs in any thread, and the
directory's thread puts the result in place (`replacement.put_in_place`).
"""

from collections.abc import Generator, Iterator
from struct import error as StructError
from typing import Final, NamedTuple

from spindle.common.errors import CorruptLog, CorruptRecords, RecordsTooLarge
from spindle.common.native import is_native_available
from spindle.common.ports import FileSystem
from spindle.log.cleaning.batch_filter import BatchFilter
from spindle.log.cleaning.key_map import CopyRules, DictKeyMap, KeyMap, MapSize
from spindle.log.cleaning.plan import CleaningPlan, SourceSegment
from spindle.log.cleaning.transactions import CleanedTransactions
from spindle.log.errors import CleaningAborted, UncleanableLog
from spindle.log.formats.index_entries import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
)
from spindle.log.formats.names import CLEANED_SUFFIX
from spindle.log.open_files import FileHandles
from spindle.log.segments.segment import ScannedBatch, Segment
from spindle.protocol.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from spindle.protocol.records.compression import (
    MODERATE_BYTES,
    DecompressionBuffer,
    decompress,
    in_turn,
)
from spindle.protocol.records.record import (
    decode_bounded,
    decoded_bytes_limit,
)

_OPEN_FILES: Final = 16
_MIN_READ_BYTES: Final = 64 * 1024


class CleaningSettings(NamedTuple):
    """The memory of a pass.

    Attributes:
        map_bytes: for the key map.
        load_factor: the share of the key map that may be filled, 0 to 1.
        buffer_bytes: for reading and writing.
        is_native: use the native code where it is available.
    """

    map_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    buffer_bytes: int = 512 * 1024
    is_native: bool = True


class CleaningStats(NamedTuple):
    """The work of a pass. `mapped_bytes` were read for the keys, `read_bytes` to be copied."""

    mapped_bytes: int
    read_bytes: int
    written_bytes: int
    records_read: int
    records_kept: int
    map_use: float


class CleanedGroup(NamedTuple):
    """Segments and the one that replaces them (files with the suffix `.cleaned`)."""

    sources: list[SourceSegment]
    cleaned: Segment


class CleaningResult(NamedTuple):
    """The output of a pass; `end_offset` is the exclusive end of the clean part."""

    plan: CleaningPlan
    groups: list[CleanedGroup]
    end_offset: int
    stats: CleaningStats


DEFAULT_SETTINGS: Final = CleaningSettings()


def new_key_map(size: MapSize, *, is_native: bool) -> KeyMap:
    """Return an empty key map, in native code if that is wanted and available."""
    if is_native and is_native_available():
        from spindle.log.cleaning.native_key_map import NativeKeyMap

        return NativeKeyMap(size)
    return DictKeyMap(size)


class Cleaning:
    """One compaction pass over one log.

    It runs in steps (`advance`), so that the caller can limit its I/O. `result` is None until it is
    complete.
    """

    def __init__(
        self,
        file_system: FileSystem,
        plan: CleaningPlan,
        now_ms: int,
        settings: CleaningSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.plan = plan
        self.result: CleaningResult | None = None
        self._handles = FileHandles(file_system, _OPEN_FILES)
        self._now_ms = now_ms
        self.settings = settings
        self._chunk_bytes = max(settings.buffer_bytes // 2, _MIN_READ_BYTES)
        self._buffer = DecompressionBuffer()
        self._transactions = CleanedTransactions(plan.aborted)
        self._known_end = plan.dirty.first_dirty_offset
        self._mapped_bytes = self._read_bytes = self._written_bytes = 0
        self._records_read = self._records_kept = 0
        self._work = self._pass()

    def run(self) -> CleaningResult:
        """Run the whole pass; see `advance`."""
        while self.result is None:
            self.advance()
        return self.result

    def advance(self, max_bytes: int | None = None) -> int:
        """Run the pass until about `max_bytes` are read and written or `result` is set.

        May run in any thread. Return the bytes that were read and written.

        Raises:
            CleaningAborted: the log was truncated, renamed or deleted meanwhile.
            UncleanableLog: a batch is damaged, or holds what no batch can (a client's records are
                not parsed when they are appended), or exceeds the limits of a broker, or has more
                keys than the map has room for; the log stays as it is.
            OSError: the disk fails.
        """
        done = 0
        try:
            for step_bytes in self._work:
                done += step_bytes
                self._raise_if_aborted()
                if max_bytes is not None and done >= max_bytes:
                    break
        except FileNotFoundError:
            self._raise_if_aborted()
            raise
        except (CorruptLog, CorruptRecords, StructError) as error:
            finding = str(error)
        else:
            return done
        self._raise_if_aborted()
        # Without the cause, whose frames hold the records of the batch.
        raise UncleanableLog(self.plan.path, finding)

    def close(self) -> None:
        """Close the files and free the memory of a pass that is abandoned between two steps."""
        self._work.close()

    def _raise_if_aborted(self) -> None:
        if self.plan.signal.is_aborted:
            raise CleaningAborted(self.plan.path)

    def _pass(self) -> Generator[int, None, None]:
        """Run the pass; yield the number of bytes read and written since the previous yield."""
        plan, settings = self.plan, self.settings
        dirty = plan.dirty
        self._raise_if_aborted()
        max_keys = dirty.end_offset - dirty.first_dirty_offset
        size = MapSize(settings.map_bytes, settings.load_factor, max_keys)
        keys = new_key_map(size, is_native=settings.is_native)
        try:
            yield from self._read_keys(keys)
            rules = CopyRules(
                self._known_end,
                dirty.end_offset,
                self._now_ms,
                self._now_ms + plan.config.delete_retention_ms,
                sorted({last.last_data_offset for last in plan.last_records.values()}),
                plan.config.index_interval_bytes,
            )
            groups = []
            for group in self._groups():
                cleaned = self._new_segment(group[0].base_offset)
                yield from self._write(group, cleaned, keys, rules)
                groups.append(CleanedGroup(group, cleaned))
            stats = CleaningStats(
                self._mapped_bytes,
                self._read_bytes,
                self._written_bytes,
                self._records_read,
                self._records_kept,
                keys.use,
            )
            self.result = CleaningResult(plan, groups, self._known_end, stats)
        finally:
            keys.close()
            self._handles.close()

    # The keys of the dirty part.

    def _read_keys(self, keys: KeyMap) -> Iterator[int]:
        dirty = self.plan.dirty
        # The walk does not meet the markers that end earlier transactions.
        transactions = CleanedTransactions(
            [t for t in self.plan.aborted if t.last_offset >= dirty.first_dirty_offset]
        )
        for source in self.plan.sources:
            if source.end_offset <= dirty.first_dirty_offset:
                continue
            segment = self._open(source)
            position = 0
            while position < segment.size_bytes:
                data = self._read(segment, position, self._chunk_bytes)
                at, is_over = self._note_chunk(keys, transactions, segment, data, position)
                self._mapped_bytes += at
                yield at
                if is_over:
                    return
                if at == 0:
                    # The next batches may be as large.
                    self._chunk_bytes = 2 * _size_of_first(segment, data, position)
                position += at
            self._known_end = max(self._known_end, min(source.end_offset, dirty.end_offset))

    def _note_chunk(
        self,
        keys: KeyMap,
        transactions: CleanedTransactions,
        segment: Segment,
        data: bytes,
        position: int,
    ) -> tuple[int, bool]:
        """Note the keys of the whole batches in a chunk.

        Return where they end, and whether the pass reads no further.
        """
        dirty = self.plan.dirty
        view = memoryview(data)
        at = 0
        while True:
            at, mapped_end = keys.put_batches(data, at, dirty.first_dirty_offset, dirty.end_offset)
            self._known_end = max(self._known_end, mapped_end)
            batch = _batch_at(segment, view, at, position)
            if batch is None:
                return at, False
            header = batch.header
            if header.last_offset >= dirty.first_dirty_offset:
                if keys.is_full or header.last_offset >= dirty.end_offset:
                    return at, True
                check_crc(batch.data, 0, header)
                _check_count(header)
                if header.is_control:
                    transactions.is_marker_without_batches(header, batch.data)
                elif not transactions.is_aborted(header) and not self._note_keys(keys, batch):
                    return at, True
                self._known_end = header.next_offset
            at += len(batch.data)

    def _note_keys(self, keys: KeyMap, batch: ScannedBatch) -> bool:
        """Note the keys of one batch; return False if the map has no room for them.

        Some keys may be noted then, which is harmless: the records at their offsets are kept.
        """
        try:
            return self._note_keys_within(MODERATE_BYTES, keys, batch)
        except RecordsTooLarge:
            limit_bytes = decoded_bytes_limit(batch.header.size_bytes)
            return in_turn(self._note_keys_within, limit_bytes, keys, batch)

    def _note_keys_within(self, limit_bytes: int, keys: KeyMap, batch: ScannedBatch) -> bool:
        first = self.plan.dirty.first_dirty_offset
        payload = decompress(
            batch.header.codec, batch.data[HEADER_BYTES:], limit_bytes, self._buffer
        )
        if keys.put_records(batch.header, payload, first):
            return True
        for record in decode_bounded(batch.data, 0, batch.header):
            if record.key is None or record.offset < first:
                continue
            if not keys.put(record.key, record.offset):
                if self._known_end > first:
                    return False
                raise UncleanableLog(
                    self.plan.path,
                    "log.cleaner.dedupe.buffer.size has no room for the keys of the batch at "
                    f"offset {batch.header.base_offset}",
                )
        return True

    # The copies.

    def _groups(self) -> list[list[SourceSegment]]:
        """Return groups of neighbouring segments that fit into one segment each, in order, up to
        the offset where the keys are known.
        """
        config = self.plan.config
        groups: list[list[SourceSegment]] = []
        size = offset_entries = time_entries = 0
        for source in self.plan.sources:
            if source.base_offset >= self._known_end:
                break
            size += source.size_bytes
            offset_entries += source.offset_entries
            time_entries += source.time_entries
            if (
                not groups
                or size > config.segment_bytes
                or offset_entries * OFFSET_ENTRY.size > config.segment_index_bytes
                or time_entries * TIME_ENTRY.size > config.segment_index_bytes
                or source.end_offset - 1 - groups[-1][0].base_offset > MAX_RELATIVE_OFFSET
            ):
                groups.append([])
                size = source.size_bytes
                offset_entries, time_entries = source.offset_entries, source.time_entries
            groups[-1].append(source)
        return groups

    def _open(self, source: SourceSegment) -> Segment:
        plan = self.plan
        segment = Segment(self._handles, plan.path, source.base_offset, plan.config, 0)
        segment.size_bytes = source.size_bytes
        return segment

    def _read(self, segment: Segment, position: int, size_bytes: int) -> bytes:
        want = min(size_bytes, segment.size_bytes - position)
        data = self._handles.get(segment.path).pread(want, position)
        if len(data) < want:
            raise CorruptLog(segment.path, position + len(data), "the file ends too early")
        return data

    def _new_segment(self, base_offset: int) -> Segment:
        cleaned = Segment(
            self._handles,
            self.plan.path,
            base_offset,
            self.plan.config,
            self._now_ms,
            CLEANED_SUFFIX,
        )
        cleaned.create()
        cleaned.transaction_index.reset()
        return cleaned

    def _write(
        self, group: list[SourceSegment], cleaned: Segment, keys: KeyMap, rules: CopyRules
    ) -> Iterator[int]:
        batch_filter = BatchFilter(
            keys, rules, self._transactions, self.plan.last_records, self._buffer
        )
        copier, copied_bytes = None, 0
        for source in group:
            segment = self._open(source)
            position = 0
            while position < segment.size_bytes:
                if copied_bytes < self._chunk_bytes:
                    copied_bytes = self._chunk_bytes
                    copier = keys.copier(rules, copied_bytes)
                data = self._read(segment, position, self._chunk_bytes)
                view = memoryview(data)
                written_before = cleaned.size_bytes
                at = 0
                while True:
                    if copier is not None:
                        copied = copier.copy(data, at, cleaned.index_progress)
                        at = copied.next_position
                        self._records_read += copied.records_read
                        self._records_kept += copied.records_kept
                        if copied.data:
                            cleaned.append_indexed(copied.data, copied.points, copied.progress)
                    batch = _batch_at(segment, view, at, position)
                    if batch is None:
                        break
                    self._copy(batch, cleaned, batch_filter)
                    at += len(batch.data)
                written = cleaned.size_bytes - written_before
                self._read_bytes += at
                self._written_bytes += written
                yield at + written
                if at == 0:
                    # The next batches may be as large.
                    self._chunk_bytes = 2 * _size_of_first(segment, data, position)
                position += at
        cleaned.become_inactive()
        cleaned.sync()

    def _copy(self, batch: ScannedBatch, cleaned: Segment, batch_filter: BatchFilter) -> None:
        check_crc(batch.data, 0, batch.header)
        kept = batch_filter.filter(batch)
        self._records_read += batch.header.record_count
        if kept is not None:
            header = read_header(kept)
            self._records_kept += header.record_count
            cleaned.append(kept, [(0, header)])
        for transaction in self._transactions.still_visible:
            cleaned.transaction_index.append(transaction)
        self._transactions.still_visible.clear()


def _batch_at(segment: Segment, data: memoryview, at: int, position: int) -> ScannedBatch | None:
    """Return the whole batch at `at` of a chunk that was read at `position`, if there is one."""
    if len(data) - at < HEADER_BYTES:
        return None
    header = segment.header_at(data, at, position)
    end = at + header.size_bytes
    return None if end > len(data) else ScannedBatch(position + at, header, data[at:end])


def _check_count(header: BatchHeader) -> None:
    """Refuse a batch with more records than offsets: the key map has room for a key per offset.

    Raises:
        CorruptRecords: names both numbers.
    """
    offsets = header.last_offset_delta + 1
    if header.record_count > offsets:
        raise CorruptRecords(
            f"batch with base offset {header.base_offset}: {header.record_count} records, but "
            f"{offsets} offsets"
        )


def _size_of_first(segment: Segment, data: bytes, position: int) -> int:
    """Return the size of the first batch of a chunk that ends inside this batch.

    Raises:
        CorruptLog: the segment does not hold it either.
    """
    left = segment.size_bytes - position
    size = HEADER_BYTES
    if len(data) >= HEADER_BYTES:
        size = segment.header_at(data, 0, position).size_bytes
    if size > left:
        raise CorruptLog(segment.path, position, f"a batch has {size} bytes, {left} are left")
    return size
