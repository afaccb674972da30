"""One segment of a log: the file of batches and its indexes.

A segment handles bytes and offsets; the log handles epochs and producers. A read gets one range of
bytes from the nearest indexed position, and is cut at batch boundaries.
"""

import logging
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.ports import Bytes
from spindle.log.formats.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    STRAY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from spindle.log.lease import SegmentProgress
from spindle.log.log_config import LogConfig
from spindle.log.open_files import FileHandles
from spindle.log.segments.file_range import FileRange
from spindle.log.segments.offset_index import OffsetIndex, OffsetPosition
from spindle.log.segments.preallocation import Preallocation
from spindle.log.segments.time_index import TimeIndex, TimestampPosition
from spindle.log.segments.transaction_index import TransactionIndex
from spindle.protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    read_header,
)
from spindle.protocol.sentinels import NO_TIMESTAMP

logger = logging.getLogger(__name__)

SCAN_BYTES: Final = 1024 * 1024
LOOKUP_BYTES: Final = 32 * 1024
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_LAST_OFFSET_DELTA: Final = Struct(">i")
_LAST_OFFSET_DELTA_POSITION: Final = 23
_NOTHING: Final = memoryview(b"")

SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class IndexPoint(NamedTuple):
    """A batch that gets index entries: its last offset and its position, and the largest timestamp
    up to there with the last offset of its batch.
    """

    last_offset: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int


class IndexProgress(NamedTuple):
    """The state that decides when a segment gets its next index entries."""

    max_timestamp: int
    max_timestamp_offset: int
    bytes_since_entry: int


class ReadPositions:
    """The start and the end of the last read of a segment.

    The next read mostly begins at one of them: the same reader continues at the end, and another
    reader of the same records begins at the start. Such a read needs no index look-up.
    """

    __slots__ = ("_end_offset", "_end_position", "_start_offset", "_start_position")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the last read, because the segment was cut."""
        self._start_offset = self._end_offset = -1
        self._start_position = self._end_position = 0

    def at(self, offset: int) -> int | None:
        """Return the position of the batch with `offset`, if a read began or ended there."""
        if offset == self._end_offset:
            return self._end_position
        return self._start_position if offset == self._start_offset else None

    def note(self, offset: int, position: int, end_offset: int, end_position: int) -> None:
        """Store a read: its offset, the offset after it, and both positions."""
        self._start_offset, self._start_position = offset, position
        self._end_offset, self._end_position = end_offset, end_position


class WholeBatches(NamedTuple):
    """The end of the whole batches, and the start and base offset of the last one."""

    end: int
    last: int
    last_base_offset: int


class ScannedBatch(NamedTuple):
    """A whole batch of a scan: its position in the file, its header and its bytes."""

    position: int
    header: BatchHeader
    data: memoryview


class Segment:
    """The files of one segment.

    `max_timestamp` is the largest timestamp of its batches (-1: none), `max_timestamp_offset` the
    last offset of the batch that has it. `roll_timestamp` is the timestamp of the first batch: None
    until it is read, -1 if the segment is empty or the batch has no timestamp. `cuts` has the size
    after each truncation, for the file ranges that are being sent to clients.
    """

    __slots__ = (
        "_bytes_since_index_entry",
        "_handles",
        "_is_dirty",
        "_space",
        "base_offset",
        "created_ms",
        "cuts",
        "index_interval_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "positions",
        "roll_timestamp",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        handles: FileHandles,
        directory: str,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        suffix: str = "",
    ) -> None:
        """Nothing is read or written; see `create` and `open`."""
        self._handles = handles
        self.base_offset = base_offset
        self.path = f"{directory}/{offset_name(base_offset, LOG_SUFFIX)}{suffix}"
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(handles, directory, base_offset, index_bytes, suffix)
        self.time_index = TimeIndex(handles, directory, base_offset, index_bytes, suffix)
        self.transaction_index = TransactionIndex(handles, directory, base_offset, suffix)
        self.index_interval_bytes = config.index_interval_bytes
        self.created_ms = now_ms
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.roll_timestamp: int | None = NO_TIMESTAMP
        self._bytes_since_index_entry = 0
        self._is_dirty = False
        self._space = Preallocation(handles, config.segment_bytes)
        self.positions = ReadPositions()
        self.cuts: list[int] = []

    def use_settings(self, config: LogConfig) -> None:
        """Use the settings of the topic; a log that is loaded at start gets them later."""
        self.index_interval_bytes = config.index_interval_bytes
        self.offset_index.file.limit(config.segment_index_bytes)
        self.time_index.file.limit(config.segment_index_bytes)
        self._space.limit(config.segment_bytes)

    # Life of the files.

    def create(self) -> None:
        """Create the files of an empty active segment."""
        file = self._handles.get(self.path, create=True)
        if file.size():
            file.truncate(0)
        self._is_dirty = True
        self.offset_index.create()
        self.time_index.create()

    def open(self, sizes: dict[str, int]) -> bool:
        """Load the files of a closed segment.

        Args:
            sizes: bytes of the segment's files by suffix; a missing index is absent.

        Returns:
            False if an index is missing or invalid: then `recover` must follow.
        """
        self.size_bytes = sizes[LOG_SUFFIX]
        self.roll_timestamp = None if self.size_bytes else NO_TIMESTAMP
        index_bytes = sizes.get(INDEX_SUFFIX)
        time_index_bytes = sizes.get(TIME_INDEX_SUFFIX)
        if index_bytes is None or time_index_bytes is None:
            return False
        is_sound = (
            self.offset_index.open_trimmed(index_bytes, self.size_bytes)
            and self.time_index.open_trimmed(time_index_bytes)
            and self.transaction_index.open(sizes.get(TRANSACTION_INDEX_SUFFIX, 0))
        )
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        return is_sound

    def reset_indexes(self) -> None:
        """Drop all index entries; `note_batch` for each batch builds them again.

        It is called after an unclean stop, when the data may not be on the device either.
        """
        self._is_dirty = True
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self._bytes_since_index_entry = 0

    def cut(self, size_bytes: int) -> None:
        """Cut the data to `size_bytes`, the end of a batch that the indexes reach."""
        self.cuts.append(size_bytes)
        self._handles.get(self.path).truncate(size_bytes)
        self._is_dirty = True
        self._space.given_back()
        self.size_bytes = size_bytes
        self.positions.forget()
        if size_bytes == 0:
            self.roll_timestamp = NO_TIMESTAMP

    def become_inactive(self) -> None:
        """Write the last time index entry, trim the indexes, and release reserved space."""
        self.time_index.append_if_later(
            self.max_timestamp, self.max_timestamp_offset, is_final=True
        )
        self.offset_index.file.trim()
        self.time_index.file.trim()
        self.give_back_space()

    def give_back_space(self) -> None:
        """Release the space reserved behind the data; reservations are counted by path."""
        self._space.give_back(self._handles, self.path, self.size_bytes)

    def suspect_reserved_space(self) -> None:
        """Make `become_inactive` release space that a killed process may have reserved."""
        self._space.assume_preallocated(self._handles, self.size_bytes)

    def sync(self) -> None:
        """Return when all changes to data and indexes since the last `sync` are on the device."""
        if self._is_dirty:
            self._handles.get(self.path).sync()
            self._is_dirty = False
        self.offset_index.file.sync()
        self.time_index.file.sync()
        self.transaction_index.sync()

    def paths(self) -> list[str]:
        """Return the required files of the segment, and the transaction index if it exists."""
        paths = [self.path, self.offset_index.file.path, self.time_index.file.path]
        if not self.transaction_index.is_empty:
            paths.append(self.transaction_index.path)
        return paths

    def moved_to(self, directory: str) -> None:
        """Use the new path of the log's directory; no file of it may be open."""
        for part in (self, self.offset_index.file, self.time_index.file, self.transaction_index):
            part.path = f"{directory}/{part.path.rpartition('/')[2]}"

    def use(self, handles: FileHandles) -> None:
        """Use this thread's file cache from now on."""
        self._handles = handles
        for index in (self.offset_index.file, self.time_index.file, self.transaction_index):
            index.use(handles)

    def rename_suffix(self, old_suffix: str, new_suffix: str) -> None:
        """Replace the suffix of all files (`.cleaned` by `.swap`, `.swap` by none)."""
        for part in (self, self.offset_index.file, self.time_index.file, self.transaction_index):
            target = part.path.removesuffix(old_suffix) + new_suffix
            self._handles.release(part.path)
            if self._handles.file_system.exists(part.path):
                self._handles.file_system.rename(part.path, target)
            part.path = target

    def mark_deleted(self) -> list[str]:
        """Rename all files to `.deleted`; return the new paths."""
        paths = self.paths()
        for path in paths:
            self._handles.release(path)
            self._handles.file_system.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX for path in paths]

    def set_aside(self) -> None:
        """Rename all files to `.stray`; a start neither reads nor removes such files."""
        for path in self.paths():
            target = path + STRAY_SUFFIX
            while self._handles.file_system.exists(target):
                target += STRAY_SUFFIX
            self._handles.release(path)
            self._handles.file_system.rename(path, target)

    def delete(self) -> None:
        """Remove all files at once; an index may be missing."""
        self.cuts.append(0)
        files = self._handles.file_system
        indexes = (self.offset_index.file, self.time_index.file, self.transaction_index)
        for path in (self.path, *(index.path for index in indexes)):
            self._handles.release(path)
            if files.exists(path):
                files.remove(path)

    # Writing.

    def append(self, records: Bytes, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Write whole batches at the end.

        Args:
            batches: position in `records` and header (with final offsets) of each batch.
        """
        start = self.size_bytes
        self._space.write(self._handles, self.path, records, start)
        self._is_dirty = True
        if self.roll_timestamp == NO_TIMESTAMP and start == 0:
            self.roll_timestamp = batches[0][1].max_timestamp
        for position, header in batches:
            self.note_batch(start + position, header)
        self.size_bytes = start + len(records)

    def prepare_lease(self) -> None:
        """Let other code append to the files: the indexes get their full size."""
        self.offset_index.file.grow_to_full_size()
        self.time_index.file.grow_to_full_size()

    def progress(self) -> SegmentProgress:
        """Return what changes with each append."""
        offset_index, time_index = self.offset_index, self.time_index
        return SegmentProgress(
            self.size_bytes,
            self.max_timestamp,
            self.max_timestamp_offset,
            self._bytes_since_index_entry,
            offset_index.file.count,
            *offset_index.last,
            time_index.file.count,
            *time_index.last,
        )

    def take_progress(self, progress: SegmentProgress) -> None:
        """Store the state after appends by other code."""
        self._is_dirty = True
        self.size_bytes = progress.size_bytes
        self.max_timestamp = progress.max_timestamp
        self.max_timestamp_offset = progress.max_timestamp_offset
        self._bytes_since_index_entry = progress.bytes_since_index_entry
        offset_index, time_index = self.offset_index, self.time_index
        offset_index.file.appended_elsewhere(progress.offset_entries)
        offset_index.last = OffsetPosition(progress.last_entry_offset, progress.last_entry_position)
        time_index.file.appended_elsewhere(progress.time_entries)
        time_index.last = TimestampPosition(
            progress.last_entry_timestamp, progress.last_entry_timestamp_offset
        )

    @property
    def index_progress(self) -> IndexProgress:
        """The state that decides when the next index entries are written."""
        return IndexProgress(
            self.max_timestamp, self.max_timestamp_offset, self._bytes_since_index_entry
        )

    def append_indexed(
        self, records: Bytes, points: Sequence[IndexPoint], progress: IndexProgress
    ) -> None:
        """Write whole batches at the end, with index entries at `points` (counted from the
        beginning of `records`); `progress` is `index_progress` after them.
        """
        start = self.size_bytes
        self._handles.get(self.path, create=True).pwrite(records, start)
        self._is_dirty = True
        if start == 0:
            self.roll_timestamp = None
        for point in points:
            self.offset_index.append(point.last_offset, start + point.position)
            self.time_index.append_if_later(point.max_timestamp, point.max_timestamp_offset)
        self.size_bytes = start + len(records)
        self.max_timestamp, self.max_timestamp_offset, self._bytes_since_index_entry = progress

    def note_batch(self, position: int, header: BatchHeader) -> None:
        """Index a batch that starts at `position`. Call it once for each batch, in order."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += header.batch_length + LOG_OVERHEAD_BYTES

    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch; -1 if there is none. In ms."""
        if self.roll_timestamp is None:
            first = next(self.headers(0), None)
            self.roll_timestamp = first[1].max_timestamp if first else NO_TIMESTAMP
        return self.roll_timestamp

    def truncate_to(self, offset: int, position: int | None) -> None:
        """Remove the batch that holds `offset`, if one does, and everything after it.

        Args:
            position: `position_of(offset)`.
        """
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if position is not None:
            self.cut(position)
        self._bytes_since_index_entry = 0
        self.load_max_timestamp()

    def load_max_timestamp(self) -> None:
        """Find the largest timestamp from the time index and the batches after its last entry."""
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        try:
            for _, header in self.headers(self.position_near(self.max_timestamp_offset)):
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp = header.max_timestamp
                    self.max_timestamp_offset = header.last_offset
        except CorruptLog as damage:
            # Only searches by time and retention use it; reading the batch reports the damage.
            logger.warning("the largest timestamp of a segment may be too small: %s", damage)

    # Reading.

    def scan(self, position: int = 0) -> Iterator[ScannedBatch]:
        """Yield the complete batches from `position` on, where a batch must start.

        An incomplete batch at the end is skipped.

        Raises:
            CorruptLog: a batch header is invalid.
        """
        limit, read_bytes = self.size_bytes, SCAN_BYTES
        while limit - position >= HEADER_BYTES:
            want = min(read_bytes, limit - position)
            data = memoryview(self._handles.get(self.path).pread(want, position))
            at = 0
            while len(data) - at >= HEADER_BYTES:
                header = self.header_at(data, at, position)
                next_at = at + header.batch_length + LOG_OVERHEAD_BYTES
                if next_at > len(data):
                    break
                yield ScannedBatch(position + at, header, data[at:next_at])
                at = next_at
            if at == 0:
                # Not even one batch fitted: read just that one, if the file has all of it.
                if len(data) < HEADER_BYTES:
                    return
                read_bytes = self.header_at(data, 0, position).size_bytes
                if read_bytes > limit - position:
                    return
            position += at

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool
    ) -> memoryview | None:
        """Return whole batches from the one that holds `offset` to below `end_offset`.

        At most `max_bytes`, but at least one batch if `min_one_batch`. Nothing if the next batch
        does not fit or begins at or after `end_offset`; None if the segment has no batch that ends
        at `offset` or later.

        Raises:
            CorruptLog: the bytes are not batches.
        """
        position = self.start_of_read(offset)
        if position is None or position >= self.size_bytes:
            return None
        file = self._handles.get(self.path)
        want = min(max(max_bytes, HEADER_BYTES), self.size_bytes - position)
        data = memoryview(file.pread(want, position))
        if len(data) < HEADER_BYTES:
            return None
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, 0)
        size = length + LOG_OVERHEAD_BYTES
        if base_offset >= end_offset:
            return _NOTHING
        if position + size > self.size_bytes:
            raise CorruptLog(self.path, position, f"a batch of {size} bytes passes the end")
        if size > max_bytes:
            if not min_one_batch:
                return _NOTHING
            data = memoryview(file.pread(size, position))
        try:
            cut = cut_at_batch(data, end_offset)
        except CorruptRecords as error:
            raise CorruptLog(self.path, position, str(error)) from error
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, cut.last + _LAST_OFFSET_DELTA_POSITION)
        next_offset = cut.last_base_offset + delta + 1
        self.positions.note(offset, position, next_offset, position + cut.end)
        return data[: cut.end]

    def start_of_read(self, offset: int) -> int | None:
        """Return the same as `position_of`, from a cache of earlier reads."""
        position = self.positions.at(offset)
        return self.position_of(offset) if position is None else position

    def range_of(self, position: int, end: int) -> FileRange:
        """Return the bytes between two positions of the data, which are not read."""
        return FileRange(self._handles, self.path, position, end - position, self.cuts)

    def batch_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch that starts there; None if none does."""
        data = self._handles.get(self.path).pread(HEADER_BYTES, position)
        try:
            return read_header(data, 0)
        except CorruptRecords:
            return None

    def position_of(self, offset: int) -> int | None:
        """Return the position of the first batch with `offset` or a later one, or None."""
        for position, header in self.headers(self.position_near(offset)):
            if header.base_offset + header.last_offset_delta >= offset:
                return position
        return None

    def position_near(self, offset: int) -> int:
        """Return the nearest indexed start of a batch at or before the batch with `offset`.

        Check the index entry: a damaged one would make a reader skip records, or start inside a
        batch.
        """
        position = self.offset_index.lookup(offset)
        if position == 0 or self._is_batch_of(position, offset):
            return position
        logger.warning("%s does not fit its segment: rebuilt from it", self.offset_index.file.path)
        self._rebuild_offset_index()
        return self.offset_index.lookup(offset)

    def _is_batch_of(self, position: int, offset: int) -> bool:
        """Return whether a batch starts there that begins at `offset` or before."""
        if not 0 < position <= self.size_bytes - HEADER_BYTES:
            return False
        header = self.batch_at(position)
        return header is not None and self.base_offset <= header.base_offset <= offset

    def _rebuild_offset_index(self) -> None:
        self.offset_index.reset()
        self._is_dirty = True
        size_bytes = 0
        for position, header in self.headers(0):
            if size_bytes > self.index_interval_bytes:
                self.offset_index.append(header.last_offset, position)
                size_bytes = 0
            size_bytes += header.size_bytes
        self.offset_index.file.trim()
        self._bytes_since_index_entry = size_bytes

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the complete batches from where a batch must start.

        Only the headers of large batches are read.

        Raises:
            CorruptLog: a batch header is invalid.
        """
        while self.size_bytes - position >= HEADER_BYTES:
            data = self._handles.get(self.path).pread(LOOKUP_BYTES, position)
            at = 0
            while len(data) - at >= HEADER_BYTES:
                header = self.header_at(data, at, position)
                size = header.batch_length + LOG_OVERHEAD_BYTES
                if position + at + size > self.size_bytes:
                    return
                yield position + at, header
                at += size
            if at == 0:
                return
            position += at

    def header_at(self, data: Bytes, at: int, position: int) -> BatchHeader:
        """Return the header at index `at` of data that was read from `position` of the file.

        Raises:
            CorruptLog: the header is invalid.
        """
        try:
            return read_header(data, at)
        except CorruptRecords as error:
            raise CorruptLog(self.path, position + at, str(error)) from error

    def read_batch(self, position: int, header: BatchHeader) -> memoryview:
        """Return the bytes of the batch that starts there.

        Raises:
            CorruptLog: the file ends before the batch does.
        """
        data = memoryview(self._handles.get(self.path).pread(header.size_bytes, position))
        if len(data) < header.size_bytes:
            raise CorruptLog(self.path, position + len(data), "the file ends within a batch")
        return data

    def largest_timestamp(self) -> int:
        """Return the largest timestamp in ms; without one, the file's modification time."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._handles.file_system.modified_ms(self.path)

    def end_of_batches(self) -> tuple[int, int]:
        """Return the offset after the last whole batch, and the position after it.

        Raises:
            CorruptLog: the bytes after the last indexed batch are no batches.
        """
        next_offset = self.base_offset
        end = start = self.offset_index.last.position
        for position, header in self.headers(start):
            next_offset = header.next_offset
            end = position + header.size_bytes
        return next_offset, end


def cut_at_batch(data: memoryview, end_offset: int) -> WholeBatches:
    """Return the part of `data` that consists of whole batches below `end_offset`.

    The caller guarantees that the first batch is whole and below `end_offset`. If a length is
    impossible, the batches before it are returned, so that readers get as far as the damage.

    Raises:
        CorruptRecords: the first bytes are not a batch.
    """
    position = 0
    last = 0
    last_base_offset = 0
    limit = len(data) - LOG_OVERHEAD_BYTES
    unpack = _OFFSET_AND_LENGTH.unpack_from
    while position <= limit:
        base_offset, length = unpack(data, position)
        if base_offset >= end_offset or position + length > limit:
            break
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            if position:
                break
            raise CorruptRecords(f"batch at byte {position} of a read: length {length}")
        last = position
        last_base_offset = base_offset
        position += length + LOG_OVERHEAD_BYTES
    return WholeBatches(position, last, last_base_offset)
