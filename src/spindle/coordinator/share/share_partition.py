"""The records of one partition that are in flight in one share group (KIP-932).

The leader of the partition keeps them in `SharePartition`, a state machine without I/O. The records
from the start offset to the next offset are in runs: neighbouring records in the same state. All
records below the start offset are done, those from the next offset on were never delivered.

A change by an acknowledgement is pending until it is stored: `begin_write` returns what has to be
stored, `end_write` applies or reverts it. Locks that expire and members that leave release records
at once, and the next write stores that.

Records for a dead-letter topic are ARCHIVING until they are written there: once this state is
stored, `dead_letters` returns them, and `end_dead_letters` archives them.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.share.delivery import AcknowledgeType, DeliveryState, StateBatch

_NO_DEADLINE: Final = 0
_AVAILABLE, _ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
_ACKNOWLEDGED, _ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
_ARCHIVING: Final = DeliveryState.ARCHIVING


class DeliverySettings(NamedTuple):
    """The settings of a share group that apply to its records in flight."""

    lock_duration_ms: int = 30_000
    """`share.record.lock.duration.ms`."""
    delivery_count_limit: int = 5
    """`share.delivery.count.limit`."""
    max_record_locks: int = 2_000
    """`share.partition.max.record.locks`: maximum number of records from the start offset to the
    next offset."""
    may_renew: bool = True
    """`share.renew.acknowledge.enable`."""
    has_dead_letters: bool = False
    """Records that are rejected, or delivered too often, go to a dead-letter topic (KIP-1191)."""


class FetchedBatch(NamedTuple):
    """A batch of the log that was read: its offsets (inclusive), and whether nobody may see it."""

    first_offset: int
    last_offset: int
    is_hidden: bool = False
    """True for a marker, and for records of an aborted transaction that the group must not see."""


class AcquisitionRequest(NamedTuple):
    """How many records a member wants."""

    member_id: str
    max_records: int
    is_record_limit: bool = False
    """True: never more than `max_records` (KIP-1206). False: whole batches of the log."""


class AcquiredRange(NamedTuple):
    """Records that a member has acquired; the count includes this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcknowledgedBatch(NamedTuple):
    """The acknowledgement of a range (inclusive): one type for all, or one for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class DeadLetterRange(NamedTuple):
    """Neighbouring records (inclusive) to write to the dead-letter topic, for the same reason."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool
    """True if a member has rejected them, False if they were delivered too often."""


class StateWrite(NamedTuple):
    """A change to store."""

    start_offset: int
    delivery_complete_count: int
    """Number of records at or above the start offset that are done."""
    batches: list[StateBatch]


@dataclass(slots=True)
class _Run:
    """Neighbouring records in the same state; `end` is exclusive.

    Attributes:
        target: the state that an acknowledgement wants and that is not stored yet; None: no change.
        is_in_write: `target` belongs to the write that is running.
        is_unsaved: the state has changed at once and is not stored yet.
        is_rejected: the records are archived, or going to be, because a member has rejected them.
    """

    first: int
    end: int
    state: DeliveryState
    delivery_count: int
    member_id: str = ""
    deadline_ms: int = _NO_DEADLINE
    target: DeliveryState | None = None
    is_in_write: bool = False
    is_unsaved: bool = False
    is_rejected: bool = False

    def continues(self, before: "_Run") -> bool:
        """Return True if the run can be joined to the one before it."""
        return (
            before.state is self.state
            and before.delivery_count == self.delivery_count
            and before.member_id == self.member_id
            and before.deadline_ms == self.deadline_ms
            and before.target is self.target
            and before.is_in_write == self.is_in_write
            and before.is_unsaved == self.is_unsaved
            and before.is_rejected == self.is_rejected
        )


_RunFilter: TypeAlias = Callable[[_Run], bool]


def _invalid_state(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD_STATE, reason)


class SharePartition:
    """The records in flight of one partition in one share group.

    Attributes:
        start_offset: all records below it are acknowledged or archived.
        state_epoch: the epoch of the state, which rises when it is reset.
    """

    __slots__ = ("_end", "_runs", "_saved_start", "_writing", "start_offset", "state_epoch")

    def __init__(
        self, start_offset: int, state_epoch: int, batches: Iterable[StateBatch] = ()
    ) -> None:
        """Begin with a stored state, whose batches do not overlap.

        Records between the batches were delivered at most to members whose locks are gone, so they
        are available again.
        """
        self.start_offset = start_offset
        self.state_epoch = state_epoch
        self._saved_start = start_offset
        self._end = start_offset
        self._runs: list[_Run] = []
        self._writing: list[StateBatch] | None = None
        for first, last, state, count in sorted(batches):
            if last < self._end:
                continue
            first = max(first, self._end)
            if first > self._end:
                self._runs.append(_Run(self._end, first, _AVAILABLE, 0))
            self._runs.append(_Run(first, last + 1, DeliveryState(state), count))
            self._end = last + 1
        self._advance_start()

    @property
    def next_offset(self) -> int:
        """The first offset that was never delivered."""
        return self._end

    @property
    def in_flight(self) -> int:
        """Number of records from the start offset to the next offset."""
        return self._end - self.start_offset

    @property
    def run_count(self) -> int:
        """Number of runs of neighbouring records in the same state."""
        return len(self._runs)

    @property
    def acquired_count(self) -> int:
        """Number of records that members hold."""
        return sum(run.end - run.first for run in self._runs if run.state is _ACQUIRED)

    @property
    def delivery_complete_count(self) -> int:
        """Number of records at or above the start offset that are done."""
        return sum(run.end - run.first for run in self._runs if run.state.is_terminal)

    # ------------------------------------------------------------ acquire

    def next_fetch_offset(self, settings: DeliverySettings) -> int | None:
        """Return the offset of the first record to deliver; None if the group has all it may."""
        for run in self._runs:
            if run.state is _AVAILABLE:
                return run.first
        return self._end if self.in_flight < settings.max_record_locks else None

    def acquire(
        self,
        request: AcquisitionRequest,
        batches: Sequence[FetchedBatch],
        fetch_offset: int,
        settings: DeliverySettings,
        now_ms: int,
    ) -> list[AcquiredRange]:
        """Give available records of batches that were read from `fetch_offset` on to a member.

        The log has no records between the batches: these offsets are archived. A record on its last
        delivery is delivered alone, so that a bad record does not use up the deliveries of others.
        """
        acquired: list[AcquiredRange] = []
        left = request.max_records
        at = max(fetch_offset, self.start_offset)
        for batch in batches:
            if batch.last_offset < at:
                continue
            if left <= 0:
                break
            self._skip(at, batch.first_offset)
            at = max(at, batch.first_offset)
            end = min(batch.last_offset + 1, self.start_offset + settings.max_record_locks)
            end = max(end, min(batch.last_offset + 1, self._end))
            if batch.is_hidden:
                self._skip(at, batch.last_offset + 1)
            elif at < end:
                self._extend(end)
                count = self._acquire_range(at, end, left, request, settings, now_ms, acquired)
                if count < 0:
                    break
                left -= count
            at = batch.last_offset + 1
            if self._end < at:
                break  # the group may hold no more
        self._tidy()
        return _joined(acquired)

    def _extend(self, end: int) -> None:
        """Add never delivered records up to `end`."""
        if end > self._end:
            self._runs.append(_Run(self._end, end, _AVAILABLE, 0))
            self._end = end

    def _skip(self, first: int, end: int) -> None:
        """Archive offsets at which there is nothing to deliver."""
        if first >= end or end <= self.start_offset:
            return
        self._extend(end)
        for run in self._cut(max(first, self.start_offset), end):
            if run.state is _AVAILABLE:
                run.state, run.is_unsaved = _ARCHIVED, True

    def _acquire_range(
        self,
        first: int,
        end: int,
        left: int,
        request: AcquisitionRequest,
        settings: DeliverySettings,
        now_ms: int,
        acquired: list[AcquiredRange],
    ) -> int:
        """Acquire the available records of a range; return their number, -1 to end the request."""
        total = 0
        last_delivery = settings.delivery_count_limit - 1
        for run in self._cut(first, end):
            if run.state is not _AVAILABLE:
                continue
            is_last = run.delivery_count >= last_delivery > 0 and run.delivery_count > 0
            if is_last and acquired:
                return -1
            limit = run.end
            if is_last:
                limit = run.first + 1
            elif request.is_record_limit:
                limit = min(run.end, run.first + left - total)
            if limit <= run.first:
                return -1
            is_end = is_last or limit < run.end
            for part in self._cut(run.first, limit):
                part.state, part.member_id = _ACQUIRED, request.member_id
                part.delivery_count += 1
                part.deadline_ms = now_ms + settings.lock_duration_ms
                part.is_unsaved = False
                total += part.end - part.first
                acquired.append(AcquiredRange(part.first, part.end - 1, part.delivery_count))
            if is_end:
                return -1
        return total

    # ------------------------------------------------------------ acknowledge

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgedBatch],
        settings: DeliverySettings,
        now_ms: int,
    ) -> bool:
        """Take a member's acknowledgements, all or none; return True if they have to be stored.

        Offsets below the start offset are done already and are ignored. The batches have passed
        `check_acknowledgements`.

        Raises:
            ApiError: INVALID_RECORD_STATE if the member does not hold a record; INVALID_REQUEST if
                the offsets were never delivered.
        """
        parts: list[tuple[int, int, AcknowledgeType]] = []
        for batch in batches:
            if batch.last_offset < self.start_offset:
                continue
            self._check_range(batch)
            parts += [
                (max(first, self.start_offset), end, kind)
                for first, end, kind in _same_types(batch)
                if end > self.start_offset
            ]
        for first, end, kind in parts:
            self._check_acquired(member_id, first, end)
            if kind is AcknowledgeType.RENEW and not settings.may_renew:
                raise _invalid_state("Renewing acquisition locks is not enabled for the group.")
        is_stored = False
        for first, end, kind in parts:
            for run in self._cut(first, end):
                if kind is AcknowledgeType.RENEW:
                    run.deadline_ms = now_ms + settings.lock_duration_ms
                else:
                    run.target = _target(kind, run.delivery_count, settings)
                    is_reject = kind is AcknowledgeType.REJECT
                    run.is_rejected = is_reject and run.target is _ARCHIVING
                    is_stored = True
        self._tidy()
        return is_stored

    def _check_range(self, batch: AcknowledgedBatch) -> None:
        if not self._runs:
            raise _invalid_state(
                "Batch record not found. The request batch offsets are not found in the cache."
            )
        if batch.first_offset >= self._end:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if batch.last_offset >= self._end:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )

    def _check_acquired(self, member_id: str, first: int, end: int) -> None:
        for run in self._overlapping(first, end):
            if run.state is not _ACQUIRED:
                raise _invalid_state(
                    "The batch cannot be acknowledged. The batch is not in the acquired state."
                )
            if run.member_id != member_id:
                raise _invalid_state("Member is not the owner of batch record")
            if run.target is not None:
                raise _invalid_state(
                    "The record state is invalid. The acknowledgement of delivery could not be "
                    "completed."
                )

    # ------------------------------------------------------------ locks

    def release(self, member_id: str, settings: DeliverySettings) -> bool:
        """Release the records that a member holds; return True if there are any.

        An acknowledgement that is being stored stays.
        """
        return self._release(settings, lambda run: run.member_id == member_id)

    def expire(self, settings: DeliverySettings, now_ms: int) -> bool:
        """Release the records whose locks have expired; return True if there are any."""
        return self._release(settings, lambda run: run.deadline_ms <= now_ms)

    def _release(self, settings: DeliverySettings, is_due: _RunFilter) -> bool:
        is_changed = False
        for run in self._runs:
            if run.state is _ACQUIRED and run.target is None and is_due(run):
                run.state = _after_release(run.delivery_count, settings)
                run.member_id, run.deadline_ms, run.is_unsaved = "", _NO_DEADLINE, True
                is_changed = True
        if is_changed:
            self._tidy()
        return is_changed

    def next_deadline_ms(self) -> int | None:
        """Return the time at which the next lock expires; None if nothing is locked."""
        deadlines = [
            run.deadline_ms for run in self._runs if run.state is _ACQUIRED and run.target is None
        ]
        return min(deadlines, default=None)

    def advance_log_start(self, log_start_offset: int) -> bool:
        """Drop records that the log no longer has; return True if there were any."""
        if log_start_offset <= self.start_offset:
            return False
        if log_start_offset > self._end:
            self._end = log_start_offset
            self._runs.clear()
        else:
            self._cut(self.start_offset, log_start_offset)
            self._runs = [run for run in self._runs if run.first >= log_start_offset]
        self.start_offset = log_start_offset
        self._tidy()
        return True

    # ------------------------------------------------------------ storing

    @property
    def is_writing(self) -> bool:
        """True between `begin_write` and `end_write`."""
        return self._writing is not None

    @property
    def has_unsaved(self) -> bool:
        """True if something is not stored yet, or is being stored."""
        return (
            self._writing is not None
            or self.start_offset > self._saved_start
            or any(run.is_unsaved or run.target is not None for run in self._runs)
        )

    @property
    def must_write(self) -> bool:
        """True if there is something to store and no write is running."""
        return self._writing is None and self.has_unsaved

    def begin_write(self) -> StateWrite | None:
        """Return what has to be stored now; None if there is nothing, or a write is running."""
        if self._writing is not None:
            return None
        batches = []
        start, complete = self.start_offset, 0
        is_leading = True
        for run in self._runs:
            state = run.state
            if run.target is not None:
                run.is_in_write = True
                state = run.target
            is_leading = is_leading and state.is_terminal
            if is_leading:
                start = run.end
            elif state.is_terminal:
                complete += run.end - run.first
            if run.target is not None or run.is_unsaved:
                batches.append(StateBatch(run.first, run.end - 1, state, run.delivery_count))
        if not batches and start == self._saved_start:
            return None
        self._writing = batches
        self._saved_start = start
        kept = [batch for batch in batches if batch.last_offset >= start]
        return StateWrite(start, complete, kept)

    def end_write(self, *, is_stored: bool) -> None:
        """Apply the write that `begin_write` returned, or revert what depends on it."""
        assert self._writing is not None
        written, self._writing = self._writing, None
        if is_stored:
            for batch in written:
                for run in self._cut(batch.first_offset, batch.last_offset + 1):
                    if run.is_unsaved and run.state == batch.delivery_state:
                        run.is_unsaved = False
        else:
            self._saved_start = -1  # unknown: the next write sends it again
        for run in self._runs:
            if not run.is_in_write:
                continue
            run.is_in_write = False
            if is_stored and run.target is not None:
                run.state, run.member_id, run.deadline_ms = run.target, "", _NO_DEADLINE
            else:
                run.is_rejected = False
            run.target = None
        self._tidy()

    # ------------------------------------------------------------ dead letters

    @property
    def has_dead_letters(self) -> bool:
        """True if records are on their way to the dead-letter topic."""
        return any(run.state is _ARCHIVING or run.target is _ARCHIVING for run in self._runs)

    def dead_letters(self, settings: DeliverySettings) -> list[DeadLetterRange]:
        """Return the records to write to the dead-letter topic whose state is stored.

        After a restart the reason of a record at its last delivery is not known any more: it counts
        as delivered too often, as in Kafka.
        """
        return [
            DeadLetterRange(
                run.first,
                run.end - 1,
                run.delivery_count,
                run.is_rejected or run.delivery_count < settings.delivery_count_limit,
            )
            for run in self._runs
            if run.state is _ARCHIVING and not run.is_unsaved
        ]

    def end_dead_letters(self, done: DeadLetterRange) -> None:
        """Archive records that were written to the dead-letter topic, or cannot be."""
        first, end = max(done.first_offset, self.start_offset), done.last_offset + 1
        if first >= end:
            return  # the log has deleted them
        for run in self._cut(first, end):
            if run.state is _ARCHIVING:
                run.state, run.is_unsaved, run.is_rejected = _ARCHIVED, True, False
        self._tidy()

    # ------------------------------------------------------------ runs

    def _index(self, offset: int) -> int:
        """Return the index of the run that holds the offset."""
        return bisect_right(self._runs, offset, key=lambda run: run.first) - 1

    def _overlapping(self, first: int, end: int) -> list[_Run]:
        if first >= end or not self._runs:
            return []
        low = max(self._index(first), 0)
        high = self._index(end - 1) + 1
        return self._runs[low:high]

    def _cut(self, first: int, end: int) -> list[_Run]:
        """Return the runs of a range, which is within the records in flight; split others."""
        for offset in (first, end):
            at = self._index(offset)
            if at >= 0 and self._runs[at].first < offset < self._runs[at].end:
                run = self._runs[at]
                self._runs.insert(at + 1, replace(run, first=offset))
                run.end = offset
        return self._overlapping(first, end)

    def _tidy(self) -> None:
        """Join neighbours in the same state, and advance the start offset."""
        joined: list[_Run] = []
        for run in self._runs:
            if joined and run.continues(joined[-1]):
                joined[-1].end = run.end
            else:
                joined.append(run)
        self._runs = joined
        self._advance_start()

    def _advance_start(self) -> None:
        """Drop the records at the start that are done.

        A range that is being written stays until the write ends.
        """
        count = 0
        for run in self._runs:
            if not run.state.is_terminal:
                break
            count += 1
            self.start_offset = run.end
        del self._runs[:count]
        if not self._runs:
            self.start_offset = max(self.start_offset, self._end)

    def state_batches(self) -> list[StateBatch]:
        """Return all runs as batches, those that members hold included."""
        return [StateBatch(r.first, r.end - 1, r.state, r.delivery_count) for r in self._runs]

    def check(self) -> None:
        """Assert the invariants: runs without gaps, owners of exactly the acquired records."""
        at = self.start_offset
        for run in self._runs:
            assert run.first == at < run.end, self._runs
            assert (run.state is _ACQUIRED) == bool(run.member_id), run
            assert run.target is None or run.state is _ACQUIRED, run
            at = run.end
        assert at == self._end, (at, self._end)


def _target(
    kind: AcknowledgeType, delivery_count: int, settings: DeliverySettings
) -> DeliveryState:
    if kind is AcknowledgeType.ACCEPT:
        return _ACKNOWLEDGED
    if kind is AcknowledgeType.RELEASE:
        return _after_release(delivery_count, settings)
    if kind is AcknowledgeType.REJECT:
        return _undeliverable(settings)
    return _ARCHIVED


def _after_release(delivery_count: int, settings: DeliverySettings) -> DeliveryState:
    is_last = delivery_count >= settings.delivery_count_limit
    return _undeliverable(settings) if is_last else _AVAILABLE


def _undeliverable(settings: DeliverySettings) -> DeliveryState:
    return _ARCHIVING if settings.has_dead_letters else _ARCHIVED


def _same_types(batch: AcknowledgedBatch) -> Iterable[tuple[int, int, AcknowledgeType]]:
    """Yield (first, end, type) of neighbouring offsets with the same type."""
    if len(batch.types) == 1:
        yield batch.first_offset, batch.last_offset + 1, AcknowledgeType(batch.types[0])
        return
    first = batch.first_offset
    for offset, kind in enumerate(batch.types, batch.first_offset):
        is_end = offset == batch.last_offset
        if is_end or batch.types[offset + 1 - batch.first_offset] != kind:
            yield first, offset + 1, AcknowledgeType(kind)
            first = offset + 1


def acknowledged_types(
    batches: Iterable[AcknowledgedBatch],
) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """Yield first offset, end offset (exclusive) and type of neighbours with the same type."""
    for batch in batches:
        yield from _same_types(batch)


def _joined(acquired: list[AcquiredRange]) -> list[AcquiredRange]:
    """Join neighbours with the same delivery count."""
    joined: list[AcquiredRange] = []
    for item in acquired:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.last_offset + 1 == item.first_offset
            and before.delivery_count == item.delivery_count
        ):
            joined[-1] = before._replace(last_offset=item.last_offset)
        else:
            joined.append(item)
    return joined


def check_acknowledgements(batches: Sequence[AcknowledgedBatch], *, allows_renew: bool) -> None:
    """Check that the batches of one partition are well formed.

    Raises:
        ApiError: INVALID_REQUEST; INVALID_RECORD_STATE if two batches name the same offset.
    """
    last = -1
    for batch in batches:
        if batch.first_offset == last >= 0:
            raise _invalid_state("The offset cannot be acknowledged. The offset is not acquired.")
        if batch.first_offset > batch.last_offset or batch.first_offset < last:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the offsets {batch.first_offset} to {batch.last_offset} are not in ascending "
                "order",
            )
        last = batch.last_offset
        size = batch.last_offset - batch.first_offset + 1
        if not batch.types or (len(batch.types) > 1 and len(batch.types) != size):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{len(batch.types)} acknowledge types for {size} offsets; send one for all, or "
                "one for each",
            )
        for kind in batch.types:
            if not AcknowledgeType.GAP <= kind <= AcknowledgeType.RENEW:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown acknowledge type {kind}")
            if kind == AcknowledgeType.RENEW and not allows_renew:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "the request does not say that it renews locks"
                )
