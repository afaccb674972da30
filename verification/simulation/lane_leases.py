"""The leases of a modelled lane: what it knows of a log, and what it does with its files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from spindle.common.errors import CorruptRecords
from spindle.common.ports import File
from spindle.log.lease import LeaseTerms, SegmentProgress
from spindle.log.log import Log
from spindle.protocol.records.batch import (
    BatchHeader,
    add_to_sequence,
    batches,
    check_crc,
    patch_offset_and_epoch,
    patch_timestamp,
    read_header,
)
from spindle.runtime.lanes.directory_lane import GrantedLease

if TYPE_CHECKING:
    from spindle._native import Lease as NativeLease
    from verification.simulation.lane import LaneModel
else:
    NativeLease = object

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_CACHED_BATCHES: Final = 5
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_Batch = tuple[int, int, int, int]
ProducerEntry = tuple[int, int, list[_Batch]]


class LaneRecords(NamedTuple):
    """The place of records in a file of the log."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        """Return the bytes that are there now."""
        return self.file.pread(self.size_bytes, self.position)


class _OlderSegment(NamedTuple):
    base_offset: int
    size_bytes: int
    path: str


class LeaseModel(NativeLease):
    """See `spindle._native.Lease`; the attributes below `cuts` are used behind the gate.

    Attributes:
        cuts: one entry if records were removed from the end of the log; shared by leases.
    """

    def __init__(
        self, lane: "LaneModel", number: int, terms: LeaseTerms, cuts: list[None] | None
    ) -> None:
        self.lane = lane
        self.terms = terms
        self._number = number
        self._end_offset = terms.end_offset
        self._high_watermark = terms.high_watermark
        self._is_active = False
        self._has_ended = False
        self.must_wake = not terms.is_sole_replica
        self.is_reported = False
        self.waiting: dict[int, None] = {}
        """Tokens of the connections whose fetches wait."""
        self._counts = [0] * 6
        """Produces, failed produces, bytes in, messages in, fetches, bytes out."""
        self.cuts: list[None] = [] if cuts is None else cuts
        open_file = lane.disks.open
        self._log, self._offset_index, self._time_index = (open_file(p) for p in terms.paths)
        self.progress = terms.progress
        self._older = [_OlderSegment(base, size, path) for base, size, path, *_ in terms.older]
        self._producers = {p.producer_id: (p.epoch, list(p.batches)) for p in terms.producers}
        self._changed_producers: dict[int, None] = {}
        self.is_dirty = False
        self.first_append_ms = -1

    # -- what Python sees

    @property
    def id(self) -> int:
        return self._number

    @property
    def leader_epoch(self) -> int:
        return self.terms.leader_epoch

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def is_valid(self) -> bool:
        return self._is_active and not self._has_ended

    def activate(self) -> None:
        self._is_active = True

    def end(self, was_cut: bool) -> None:
        if was_cut and not self.cuts:
            self.cuts.append(None)
        if not self._has_ended:
            self._has_ended = True
            self.lane.lease_ended(self)

    def raise_high_watermark(self, offset: int) -> None:
        if self._raise(offset) and self.waiting:
            self.lane.wake()

    def _raise(self, offset: int) -> bool:
        offset = min(offset, self._end_offset)
        has_moved = offset > self._high_watermark
        self._high_watermark = max(self._high_watermark, offset)
        return has_moved

    def refresh(
        self,
        end_offset: int,
        high_watermark: int,
        progress: Sequence[int],
        producers: Sequence[ProducerEntry],
    ) -> None:
        self.progress = SegmentProgress(*progress)
        for producer_id, epoch, entries in producers:
            if entries:
                self._producers[producer_id] = epoch, list(entries)
            else:
                self._producers.pop(producer_id, None)
        self._end_offset = end_offset
        self._high_watermark = max(self._high_watermark, high_watermark)
        if self.waiting:
            self.lane.wake()

    def wake_for_appends(self, is_waiting: bool) -> None:
        self.must_wake = is_waiting

    def take_counts(self) -> tuple[int, int, int, int, int, int]:
        produces, failed, bytes_in, messages_in, fetches, bytes_out = self._counts
        self._counts = [0] * 6
        return produces, failed, bytes_in, messages_in, fetches, bytes_out

    # -- behind the gate

    def take_changes(self) -> tuple[int, int, int, int, SegmentProgress, list[ProducerEntry]]:
        """Return what has changed since the last call; see `Lane.take_changes`."""
        self.is_dirty = False
        first_append_ms, self.first_append_ms = self.first_append_ms, -1
        changed, self._changed_producers = self._changed_producers, {}
        producers = [
            (producer_id, *self._producers[producer_id])
            for producer_id in changed
            if producer_id in self._producers
        ]
        end_offset, high_watermark = self._end_offset, self._high_watermark
        return self.id, end_offset, high_watermark, first_append_ms, self.progress, producers

    def may_append(self, header: BatchHeader, acks: int, now_ms: int) -> bool:
        """Return whether the batch may be appended without Python."""
        terms = self.terms
        max_bytes, uses_append_time, after_max_ms, limits_decompressed = terms.rules
        return (
            terms.may_append
            and (acks != -1 or terms.is_sole_replica)
            and header.size_bytes <= max_bytes
            and not (limits_decompressed and header.codec)
            and (
                uses_append_time
                or (
                    not header.has_log_append_time and header.max_timestamp <= now_ms + after_max_ms
                )
            )
            and self._is_next(header)
            and not self._must_roll(header, now_ms if uses_append_time else header.max_timestamp)
        )

    def _is_next(self, header: BatchHeader) -> bool:
        if not header.has_producer_id:
            return True
        epoch, cached = self._producers.get(header.producer_id, (-1, []))
        return (
            bool(cached)
            and epoch == header.producer_epoch
            and cached[-1][0] >= 0
            and header.base_sequence == add_to_sequence(cached[-1][0], 1)
        )

    def _must_roll(self, header: BatchHeader, timestamp: int) -> bool:
        now, terms = self.progress, self.terms
        segment_bytes, max_timestamp, _, offset_entries, time_entries = terms.limits
        return (
            now.size_bytes > segment_bytes - header.size_bytes
            or timestamp > max_timestamp
            or now.offset_entries >= offset_entries
            or now.time_entries + 1 >= time_entries
            or self._end_offset + header.last_offset_delta - terms.base_offset
            > _MAX_RELATIVE_OFFSET
        )

    def append(self, records: bytearray, now_ms: int) -> tuple[int, int]:
        """Write a batch; return its base offset and the time of the append, -1 without one.

        Raises:
            OSError: the log is as if nothing was written.
        """
        header, append_ms = read_header(records), -1
        if self.terms.rules[1]:
            header = patch_timestamp(records, 0, header, now_ms, is_log_append_time=True)
            append_ms = now_ms
        base_offset = self._end_offset
        patch_offset_and_epoch(records, 0, base_offset, self.leader_epoch)
        header = header._replace(base_offset=base_offset)
        self._log.pwrite(records, self.progress.size_bytes)
        self.progress = self._indexed(header)._replace(
            size_bytes=self.progress.size_bytes + len(records)
        )
        self._note_producer(header)
        if self.first_append_ms < 0:
            self.first_append_ms = now_ms
        self._end_offset = header.next_offset
        if self.terms.is_sole_replica and not self._has_ended:
            self._raise(header.next_offset)
        for at, count in ((0, 1), (2, len(records)), (3, header.record_count)):
            self._counts[at] += count
        return base_offset, append_ms

    def failed(self) -> None:
        """Count an append that has failed."""
        self._counts[0] += 1
        self._counts[1] += 1

    def fetched(self, size_bytes: int) -> None:
        """Count a fetch."""
        self._counts[4] += 1
        self._counts[5] += size_bytes

    def _indexed(self, header: BatchHeader) -> SegmentProgress:
        """Write the index entries that are due before a batch; return the progress with it."""
        now, base = self.progress, self.terms.base_offset
        if header.max_timestamp > now.max_timestamp:
            now = now._replace(
                max_timestamp=header.max_timestamp, max_timestamp_offset=header.last_offset
            )
        if now.bytes_since_index_entry > self.terms.limits[2]:
            entry = _OFFSET_ENTRY.pack(header.last_offset - base, now.size_bytes)
            self._offset_index.pwrite(entry, now.offset_entries * _OFFSET_ENTRY.size)
            now = now._replace(
                offset_entries=now.offset_entries + 1,
                last_entry_offset=header.last_offset,
                last_entry_position=now.size_bytes,
            )
            if now.max_timestamp > now.last_entry_timestamp:
                entry = _TIME_ENTRY.pack(now.max_timestamp, now.max_timestamp_offset - base)
                self._time_index.pwrite(entry, now.time_entries * _TIME_ENTRY.size)
                now = now._replace(
                    time_entries=now.time_entries + 1,
                    last_entry_timestamp=now.max_timestamp,
                    last_entry_timestamp_offset=now.max_timestamp_offset,
                )
            now = now._replace(bytes_since_index_entry=0)
        return now._replace(bytes_since_index_entry=now.bytes_since_index_entry + header.size_bytes)

    def _note_producer(self, header: BatchHeader) -> None:
        known = self._producers.get(header.producer_id)
        if known is None:
            return
        last_offset = header.last_offset
        batch = header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp
        cached = [*known[1], batch][-_CACHED_BATCHES:]
        self._producers[header.producer_id] = known[0], cached
        self._changed_producers[header.producer_id] = None

    def locate(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> LaneRecords:
        """Find whole batches of one segment below the high watermark, from the one of `offset`."""
        limit = min(self._high_watermark, self._end_offset)
        nothing = LaneRecords(self._log, 0, 0)
        if offset >= limit:
            return nothing
        for file, size_bytes in self._segments_from(offset):
            first, end = -1, 0
            for position, header in batches(file.pread(size_bytes, 0)):
                if header.last_offset < offset:
                    continue
                first = position if first < 0 else first
                after = position + header.size_bytes
                must_show = min_one_batch and position == first
                if header.base_offset >= limit or (after - first > max_bytes and not must_show):
                    break
                end = after
            if first >= 0:
                return LaneRecords(file, first, max(end - first, 0))
        return nothing

    def _segments_from(self, offset: int) -> Sequence[tuple[File, int]]:
        bases = [segment.base_offset for segment in self._older] + [self.terms.base_offset]
        first = max([at for at, base in enumerate(bases) if base <= offset], default=0)
        older = [(self.lane.disks.open(s.path), s.size_bytes) for s in self._older[first:]]
        return [*older, (self._log, self.progress.size_bytes)]


@contextmanager
def up_to_date(log: Log) -> Iterator[None]:
    """Let the simulation read what a lane has appended, before Python has taken it over."""
    lease, segment = log.lease, log.segments.active
    native = lease.native if isinstance(lease, GrantedLease) else None
    known_bytes = segment.size_bytes
    if isinstance(native, LeaseModel):
        segment.size_bytes = max(known_bytes, native.progress.size_bytes)
    try:
        yield
    finally:
        segment.size_bytes = known_bytes


def check_client_batch(records: bytes, version: int) -> BatchHeader | None:
    """Return the header of a client's batch; None if only Python has an answer."""
    try:
        header = read_header(records)
        check_crc(records, 0, header)
    except (CorruptRecords, IndexError):
        return None
    is_fine = (
        header.size_bytes == len(records)
        and header.codec <= 4
        and (header.codec != 4 or version >= 7)
        and header.record_count > 0
        and header.last_offset_delta == header.record_count - 1
        and header.base_offset == 0
        and not header.is_control
        and not header.is_transactional
        and (not header.has_producer_id or header.base_sequence >= 0)
    )
    return header if is_fine else None
