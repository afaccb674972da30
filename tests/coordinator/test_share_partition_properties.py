"""Random work of a share group: at least once, never after an acknowledgement, counts rise."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spindle.common.errors import ApiError
from spindle.coordinator.share.delivery import AcknowledgeType, StateBatch, combine
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    AcquisitionRequest,
    DeliverySettings,
    FetchedBatch,
    SharePartition,
    StateWrite,
)

SETTINGS = DeliverySettings(lock_duration_ms=100, delivery_count_limit=3, max_record_locks=40)
LOG_END = 200
MEMBERS = ("a", "b", "c")

members = st.sampled_from(MEMBERS)
offsets = st.integers(0, 60)


@dataclass
class Store:
    """The state of the share coordinator."""

    start_offset: int = 0
    batches: list[StateBatch] = field(default_factory=list)

    def write(self, write: StateWrite) -> None:
        self.start_offset = max(self.start_offset, write.start_offset)
        self.batches = combine(self.batches, write.batches, self.start_offset)


class Work(RuleBasedStateMachine):
    """One share partition with three members, a clock and a store that may fail.

    Attributes:
        done: offsets whose final acknowledgement is stored.
        counts: the delivery count that members have seen.
        rejected: offsets whose rejection is stored.
        letters: offsets with a dead letter.
    """

    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.core = SharePartition(0, 0)
        self.now_ms = 0
        self.log_start = 0
        self.done: dict[int, None] = {}
        self.acknowledged: dict[int, AcknowledgeType] = {}
        self.counts: dict[int, int] = {}
        self.holders: dict[int, str] = {}
        self.write: StateWrite | None = None
        self.in_write: dict[int, AcknowledgeType] = {}
        self.rejected: dict[int, None] = {}
        self.letters: dict[int, None] = {}

    @rule(member=members, count=st.integers(1, 20), size=st.integers(1, 7), strict=st.booleans())
    def fetch(self, member: str, count: int, size: int, strict: bool) -> None:
        offset = self.core.next_fetch_offset(self.settings)
        if offset is None or offset >= LOG_END:
            return
        first = offset - offset % size
        batches = [
            FetchedBatch(at, at + size - 1, is_hidden=at % 5 == 4)
            for at in range(first, min(first + 4 * size, LOG_END - size), size)
        ]
        request = AcquisitionRequest(member, count, strict)
        acquired = self.core.acquire(request, batches, offset, self.settings, self.now_ms)
        total = 0
        for start, last, delivery_count in acquired:
            for at in range(start, last + 1):
                total += 1
                assert at not in self.done, at
                assert at not in self.holders, at
                assert at >= self.log_start
                assert self.counts.get(at, 0) < delivery_count <= self.settings.delivery_count_limit
                self.counts[at] = delivery_count
                self.holders[at] = member
        assert not strict or total <= count
        assert self.core.acquired_count <= self.settings.max_record_locks

    @rule(
        member=members, first=offsets, size=st.integers(1, 9), kind=st.sampled_from(AcknowledgeType)
    )
    def acknowledge(self, member: str, first: int, size: int, kind: AcknowledgeType) -> None:
        batch = AcknowledgedBatch(first, first + size - 1, (kind,))
        asked = range(max(first, self.core.start_offset), first + size)
        is_valid = all(
            self.holders.get(at) == member and at not in self.acknowledged for at in asked
        )
        try:
            self.core.acknowledge(member, [batch], self.settings, self.now_ms)
        except ApiError:
            assert not is_valid or not asked
            return
        assert is_valid
        if kind is not AcknowledgeType.RENEW:
            self.acknowledged |= dict.fromkeys(asked, kind)

    @rule(member=members, kind=st.sampled_from(AcknowledgeType), at_start=st.booleans())
    def answer(self, member: str, kind: AcknowledgeType, at_start: bool) -> None:
        """Fetch, acknowledge and store at once, which single steps seldom do in this order."""
        self.fetch(member, 10, 3, strict=False)
        held = sorted(at for at in self.holders if at not in self.acknowledged)
        if held and self.write is None:
            at = held[0 if at_start else -1]
            self.acknowledge(self.holders[at], at, 1, kind)
            self.begin_write()
            self.end_write(is_stored=True, is_answered=True)

    @rule()
    def begin_write(self) -> None:
        write = self.core.begin_write()
        if write is not None:
            self.write = write
            self.in_write = dict(self.acknowledged)

    @rule(is_stored=st.booleans(), is_answered=st.booleans())
    def end_write(self, is_stored: bool, is_answered: bool) -> None:
        if self.write is None:
            return
        if is_stored:
            self.store.write(self.write)
        self.write = None
        self.core.end_write(is_stored=is_stored and is_answered)
        for at, kind in self.in_write.items():
            self.acknowledged.pop(at, None)
            if is_stored and is_answered:
                self.holders.pop(at, None)
                if kind is not AcknowledgeType.RELEASE:
                    self.done[at] = None
                if kind is AcknowledgeType.REJECT:
                    self.rejected[at] = None
        self.in_write = {}

    @rule()
    def write_dead_letters(self) -> None:
        """Archive what became dead letters; a next leader may write them once more."""
        for letters in self.core.dead_letters(self.settings):
            offsets_of_letters = range(letters.first_offset, letters.last_offset + 1)
            for at in offsets_of_letters:
                is_exhausted = letters.delivery_count >= self.settings.delivery_count_limit
                assert is_exhausted or letters.is_rejected
                self.letters[at] = self.done[at] = None
            self.core.end_dead_letters(letters)

    @rule(passed_ms=st.sampled_from([10, 100]))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.core.expire(self.settings, self.now_ms)
        self._forget_released()

    @rule(member=members)
    def leave(self, member: str) -> None:
        self.core.release(member, self.settings)
        self._forget_released()

    def _forget_released(self) -> None:
        held = {
            at
            for first, last, state, _ in self.core.state_batches()
            if state == 1
            for at in range(first, last + 1)
        }
        self.holders = {at: member for at, member in self.holders.items() if at in held}

    @rule(by=st.integers(1, 5))
    def delete_old_records(self, by: int) -> None:
        self.log_start = min(self.log_start + by, LOG_END)
        self.core.advance_log_start(self.log_start)
        for known in (self.holders, self.acknowledged, self.in_write):
            for at in [at for at in known if at < self.core.start_offset]:
                del known[at]

    @rule()
    def change_leader(self) -> None:
        """The next leader has what is stored; a write under way may still arrive."""
        self.core = SharePartition(self.store.start_offset, 0, self.store.batches)
        self.core.advance_log_start(self.log_start)
        self.write, self.in_write, self.acknowledged, self.holders = None, {}, {}, {}
        stored = {
            at: count
            for first, last, _, count in self.core.state_batches()
            for at in range(first, last + 1)
        }
        # Deliveries to members that have answered nothing are not stored.
        self.counts = stored

    @invariant()
    def runs_are_whole(self) -> None:
        self.core.check()
        done_below = self.core.start_offset
        assert all(at >= done_below for at in self.holders), (done_below, self.holders)
        if self.settings.has_dead_letters:
            passed = [at for at in self.rejected if self.log_start <= at < done_below]
            assert all(at in self.letters for at in passed), (passed, self.letters)


class WorkWithDeadLetters(Work):
    """The same with a dead-letter topic: no rejected record is passed without a dead letter."""

    settings = SETTINGS._replace(has_dead_letters=True)


TestWork = Work.TestCase
TestWorkWithDeadLetters = WorkWithDeadLetters.TestCase
