"""The checker passes histories of a correct log, and finds each defect that is put into one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from history_model import COPIERS, INPUT, OUTPUT, PLAIN, READERS, HistoryModel
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.testing.histories import (
    Acknowledged,
    Assigned,
    ClientHistory,
    CommitAsked,
    Copy,
    Delivered,
    FaultKind,
    NumberedRecord,
    OffsetCommitted,
    OffsetRead,
    OffsetsAsked,
    OffsetSent,
    RecordSent,
    TopicPartition,
    TransactionEnded,
    check,
)

P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)
OUT = TopicPartition("out", 0)
A, B, C = (NumberedRecord("a", number) for number in range(3))


def kinds(history: ClientHistory) -> set[FaultKind]:
    return set(check(history).counts)


def of(*events: Any, **logs: dict[int, NumberedRecord]) -> ClientHistory:
    history = ClientHistory(list(events))
    history.logs = {{"p": P, "q": Q, "out": OUT}[name]: log for name, log in logs.items()}
    return history


# -- by hand: a history, and its only fault

BY_HAND: dict[str, tuple[ClientHistory, FaultKind | None]] = {
    "nothing happened": (of(), None),
    "an acknowledged record is stored": (
        of(RecordSent(A, "t"), Acknowledged(A, P, 0), p={0: A}),
        None,
    ),
    "an acknowledged record is gone": (
        of(RecordSent(A, "t"), Acknowledged(A, P, 0), p={}),
        FaultKind.LOST,
    ),
    "a record that was not acknowledged may be gone": (of(RecordSent(A, "t"), p={}), None),
    "an acknowledgement without an offset": (
        of(RecordSent(A, "t"), Acknowledged(A, P, None), p={3: A}),
        None,
    ),
    "without an offset, in another partition": (
        of(RecordSent(A, "t"), Acknowledged(A, P, None), p={}, q={3: A}),
        FaultKind.LOST,
    ),
    "a record is there twice": (
        of(RecordSent(A, "t"), Acknowledged(A, P, 0), p={0: A, 1: A}),
        FaultKind.DUPLICATED,
    ),
    "a record is in two partitions": (
        of(RecordSent(A, "t"), Acknowledged(A, P, 0), p={0: A}, q={0: A}),
        FaultKind.DUPLICATED,
    ),
    "a record that was never sent": (
        of(RecordSent(A, "t"), p={0: A, 1: C}),
        FaultKind.PHANTOM,
    ),
    "a producer whose sent records are unknown": (
        of(Acknowledged(A, P, 0), p={0: A, 1: B}),
        None,
    ),
    "records change places": (
        of(RecordSent(A, "t"), RecordSent(B, "t"), p={0: B, 1: A}),
        FaultKind.OUT_OF_ORDER,
    ),
    "another record at an acknowledged offset": (
        of(Acknowledged(A, P, 0), Acknowledged(B, P, 0), p={0: A, 1: B}),
        FaultKind.INCONSISTENT,
    ),
    "a committed transaction": (
        of(
            RecordSent(A, "t", "x"),
            CommitAsked("x"),
            TransactionEnded("x", True),
            p={0: A},
        ),
        None,
    ),
    "a committed transaction lacks a record": (
        of(
            RecordSent(A, "t", "x"),
            RecordSent(B, "t", "x"),
            CommitAsked("x"),
            TransactionEnded("x", True),
            p={0: A},
        ),
        FaultKind.LOST,
    ),
    "an aborted transaction is visible": (
        of(RecordSent(A, "t", "x"), TransactionEnded("x", False), p={0: A}),
        FaultKind.ABORTED_READ,
    ),
    "a refused commit is visible": (
        of(
            RecordSent(A, "t", "x"),
            Acknowledged(A, P, 0, "x"),
            CommitAsked("x"),
            TransactionEnded("x", False),
            p={0: A},
        ),
        FaultKind.ABORTED_READ,
    ),
    "a transaction that nobody committed is visible": (
        of(RecordSent(A, "t", "x"), p={0: A}),
        FaultKind.ABORTED_READ,
    ),
    "an unknown outcome: all": (
        of(
            RecordSent(A, "t", "x"),
            RecordSent(B, "t", "x"),
            CommitAsked("x"),
            p={0: A},
            q={4: B},
        ),
        None,
    ),
    "an unknown outcome: none": (
        of(RecordSent(A, "t", "x"), RecordSent(B, "t", "x"), CommitAsked("x"), p={}),
        None,
    ),
    "an unknown outcome: a part": (
        of(RecordSent(A, "t", "x"), RecordSent(B, "t", "x"), CommitAsked("x"), p={0: A}),
        FaultKind.FRACTURED,
    ),
    "a record sent again after an abort": (
        of(
            RecordSent(A, "t", "x"),
            Acknowledged(A, P, 0, "x"),
            TransactionEnded("x", False),
            RecordSent(A, "t", "y"),
            Acknowledged(A, P, 2, "y"),
            CommitAsked("y"),
            TransactionEnded("y", True),
            p={2: A},
        ),
        None,
    ),
    "both sent records are visible after an abort": (
        of(
            RecordSent(A, "t", "x"),
            TransactionEnded("x", False),
            RecordSent(A, "t", "y"),
            CommitAsked("y"),
            TransactionEnded("y", True),
            p={0: A, 2: A},
        ),
        FaultKind.DUPLICATED,
    ),
    "a read before the commit": (
        of(
            Assigned("g", "m", P),
            RecordSent(A, "t", "x"),
            Delivered("g", "m", P, 0, A),
            CommitAsked("x"),
            TransactionEnded("x", True),
            p={0: A},
        ),
        FaultKind.UNCOMMITTED_READ,
    ),
    "read_uncommitted may do that": (
        of(
            Assigned("g", "m", P),
            RecordSent(A, "t", "x"),
            Delivered("g", "m", P, 0, A, is_read_committed=False),
            TransactionEnded("x", False),
            p={},
        ),
        None,
    ),
    "an aborted record is read": (
        of(
            Assigned("g", "m", P),
            RecordSent(A, "t", "x"),
            TransactionEnded("x", False),
            Delivered("g", "m", P, 0, A),
            p={},
        ),
        FaultKind.ABORTED_READ,
    ),
    "a record that was never sent is read": (
        of(
            Assigned("g", "m", P),
            RecordSent(A, "t"),
            Delivered("g", "m", P, 0, B, is_read_committed=False),
            p={},
        ),
        FaultKind.PHANTOM,
    ),
    "a record vanishes after it was read": (
        of(Assigned("g", "m", P), RecordSent(A, "t"), Delivered("g", "m", P, 0, A), p={}),
        FaultKind.LOST,
    ),
    "two values at one offset": (
        of(
            Assigned("g", "m", P),
            Assigned("g", "n", P),
            RecordSent(A, "t"),
            RecordSent(B, "t"),
            Delivered("g", "m", P, 0, A, is_read_committed=False),
            Delivered("g", "n", P, 0, B, is_read_committed=False),
        ),
        FaultKind.INCONSISTENT,
    ),
    "a gap where nothing is visible": (
        of(
            Assigned("g", "m", P),
            Delivered("g", "m", P, 0, A),
            Delivered("g", "m", P, 5, B),
            p={0: A, 5: B},
        ),
        None,
    ),
    "a visible record is passed over": (
        of(
            Assigned("g", "m", P),
            Delivered("g", "m", P, 0, A),
            Delivered("g", "m", P, 5, C),
            p={0: A, 3: B, 5: C},
        ),
        FaultKind.SKIPPED,
    ),
    "a poll goes back": (
        of(
            Assigned("g", "m", P),
            Delivered("g", "m", P, 0, A),
            Delivered("g", "m", P, 0, A),
            p={0: A},
        ),
        FaultKind.NOT_MONOTONIC,
    ),
    "a new assignment may go back": (
        of(
            Assigned("g", "m", P),
            Delivered("g", "m", P, 0, A),
            Assigned("g", "m", P),
            Delivered("g", "m", P, 0, A),
            p={0: A},
        ),
        None,
    ),
    "a partition that was not given": (
        of(Delivered("g", "m", P, 0, A), p={0: A}),
        FaultKind.NOT_ASSIGNED,
    ),
    "it begins below the committed offset": (
        of(
            OffsetSent("g", P, 1),
            OffsetCommitted("g", P, 1),
            Assigned("g", "m", P),
            Delivered("g", "m", P, 0, A),
            p={0: A},
        ),
        FaultKind.TAKEN_BACK,
    ),
    "it begins below an offset of a transaction": (
        of(
            OffsetSent("g", P, 1, "x"),
            CommitAsked("x"),
            TransactionEnded("x", True),
            Assigned("g", "m", P),
            Delivered("g", "m", P, 0, A),
            p={0: A},
        ),
        FaultKind.TAKEN_BACK,
    ),
    "a committed offset is lost": (
        of(
            OffsetSent("g", P, 1),
            OffsetCommitted("g", P, 1),
            OffsetsAsked("g", 1),
            OffsetRead("g", 1, P, -1),
        ),
        FaultKind.TAKEN_BACK,
    ),
    "an offset that was read goes back": (
        of(
            OffsetSent("g", P, 1),
            OffsetSent("g", P, 2),
            OffsetsAsked("g", 1),
            OffsetRead("g", 1, P, 2),
            OffsetsAsked("g", 2),
            OffsetRead("g", 2, P, 1),
        ),
        FaultKind.TAKEN_BACK,
    ),
    "an offset committed while somebody asks": (
        of(
            OffsetsAsked("g", 1),
            OffsetSent("g", P, 1),
            OffsetCommitted("g", P, 1),
            OffsetRead("g", 1, P, -1),
        ),
        None,
    ),
    "an offset of an aborted transaction": (
        of(
            OffsetSent("g", P, 1, "x"),
            TransactionEnded("x", False),
            OffsetsAsked("g", 1),
            OffsetRead("g", 1, P, 1),
        ),
        FaultKind.ABORTED_OFFSET,
    ),
    "an offset before its transaction is committed": (
        of(
            OffsetSent("g", P, 1, "x"),
            OffsetsAsked("g", 1),
            OffsetRead("g", 1, P, 1),
            CommitAsked("x"),
            TransactionEnded("x", True),
        ),
        FaultKind.ABORTED_OFFSET,
    ),
    "an offset that nobody has sent": (
        of(OffsetSent("g", P, 1), OffsetsAsked("g", 1), OffsetRead("g", 1, P, 2)),
        FaultKind.INVENTED_OFFSET,
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_history_by_hand(name: str) -> None:
    history, fault = BY_HAND[name]
    assert kinds(history) == (set() if fault is None else {fault}), check(history).lines


COPIES: dict[str, tuple[dict[int, NumberedRecord], int | None, FaultKind | None]] = {
    "every record has its copy": ({0: A, 2: B, 3: C}, 3, None),
    "the committed offset is not known": ({0: A, 2: B, 3: C}, None, None),
    "a committed record has no copy": ({0: A, 2: C}, 3, FaultKind.NOT_COPIED),
    "the last record has no copy": ({0: A, 1: B}, 2, FaultKind.NOT_COPIED),
    "a record has two copies": ({0: A, 1: B, 2: C, 5: B}, 3, FaultKind.COPIED_TWICE),
    "a copy without its offset": ({0: A, 1: B, 2: C}, 2, FaultKind.COPIED_BEFORE_COMMIT),
    "a copy without a source": (
        {0: A, 1: B, 2: C, 3: NumberedRecord("a", 3)},
        3,
        FaultKind.COPY_WITHOUT_SOURCE,
    ),
    "copies in another order": ({0: B, 1: A, 2: C}, 3, FaultKind.COPY_OUT_OF_ORDER),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_compared_with_their_input(name: str) -> None:
    copies, committed, fault = COPIES[name]
    history = of(p={0: A, 1: B, 2: C}, out=copies)
    history.copies = [Copy("g", "t", "out")]
    if committed is not None:
        history.events = [OffsetsAsked("g", 1), OffsetRead("g", 1, P, committed)]
    assert kinds(history) == (set() if fault is None else {fault}), check(history).lines


def test_a_copy_may_be_transformed_and_unfinished() -> None:
    def transform(record: NumberedRecord) -> NumberedRecord | None:
        return None if record == B else NumberedRecord("twice", record.number * 2)

    history = of(p={0: A, 1: B, 2: C}, out={0: NumberedRecord("twice", 0)})
    history.copies = [Copy("g", "t", "out", transform, is_finished=False)]
    history.events = [OffsetsAsked("g", 1), OffsetRead("g", 1, P, 2)]
    assert not kinds(history)
    history.copies = [Copy("g", "t", "out", transform)]
    assert kinds(history) == {FaultKind.NOT_COPIED}


def test_a_group_that_had_to_read_everything() -> None:
    history = of(Assigned("g", "m", P), Delivered("g", "m", P, 0, A), p={0: A, 1: B})
    assert not kinds(history)
    history.must_read = {"g": ["t"]}
    assert kinds(history) == {FaultKind.NEVER_DELIVERED}


def test_many_faults_of_a_kind_are_counted() -> None:
    sent = [NumberedRecord("a", number) for number in range(50)]
    history = of(*(Acknowledged(record, P, at) for at, record in enumerate(sent)))
    findings = check(history)
    assert findings.counts == {FaultKind.LOST: 50}
    assert len(findings.faults) == 20
    assert findings.lines[-1] == "lost: ... and 30 more of this kind"
    assert "50 faults" in findings.text


def test_the_line_for_people_has_what_is_there() -> None:
    findings = check(BY_HAND["an acknowledgement without an offset"][0])
    assert "(1 without an offset)" in findings.text
    assert "transactions" not in findings.text
    assert "1 transactions committed" in check(BY_HAND["a committed transaction"][0]).text


# -- histories of a correct model, and one defect in them


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40))
def test_a_correct_log_has_no_fault(seed: int) -> None:
    findings = check(HistoryModel(seed).run())
    assert not findings.faults, findings.lines
    assert findings.acknowledged > 80
    assert findings.committed > 10
    assert findings.copied > 10


def some(history: ClientHistory, random: Random, kind: type, **wanted: object) -> int:
    """Return the index of an event of a kind, with these attributes."""
    return random.choice(
        [
            at
            for at, event in enumerate(history.events)
            if isinstance(event, kind) and all(getattr(event, k) == v for k, v in wanted.items())
        ]
    )


def ended(history: ClientHistory, *, is_committed: bool) -> list[str]:
    return [
        event.transaction
        for event in history.events
        if isinstance(event, TransactionEnded) and event.is_committed == is_committed
    ]


def drop_acknowledged(history: ClientHistory, random: Random) -> None:
    places = {
        (event.partition, event.offset)
        for event in history.events
        if isinstance(event, Acknowledged) and event.partition.topic == PLAIN
    }
    partition, offset = random.choice(sorted(p for p in places if p[1] is not None))
    assert offset is not None
    del history.logs[partition][offset]


def drop_committed(history: ClientHistory, random: Random) -> None:
    committed = set(ended(history, is_committed=True))
    place = random.choice(
        sorted(
            (event.partition, event.offset or 0)
            for event in history.events
            if isinstance(event, Acknowledged) and event.transaction in committed
        )
    )
    del history.logs[place[0]][place[1]]


def repeat_stored(history: ClientHistory, random: Random) -> None:
    log = history.logs[TopicPartition(PLAIN, random.randrange(2))]
    log[max(log) + 1] = random.choice(sorted(log.values()))


def invent_record(history: ClientHistory, random: Random) -> None:
    log = history.logs[TopicPartition(INPUT, 0)]
    log[max(log, default=0) + 1] = NumberedRecord("t", 10_000)


def exchange(history: ClientHistory, random: Random) -> None:
    log = history.logs[TopicPartition(PLAIN, random.randrange(2))]
    own = [offset for offset, record in sorted(log.items()) if record.producer == "p"]
    first, second = sorted(random.sample(own, 2))
    log[first], log[second] = log[second], log[first]


def show_aborted(history: ClientHistory, random: Random) -> None:
    committed = {e.transaction for e in history.events if isinstance(e, CommitAsked)}
    never = [
        event
        for event in history.events
        if isinstance(event, Acknowledged)
        and event.transaction is not None
        and event.transaction not in committed
        and event.partition.topic == INPUT
    ]
    event = random.choice(never)
    assert event.offset is not None
    history.logs[event.partition][event.offset] = event.record


def deliver_aborted(history: ClientHistory, random: Random) -> None:
    aborted = set(ended(history, is_committed=False))
    events = [
        event
        for event in history.events
        if isinstance(event, Acknowledged)
        and event.transaction in aborted
        and event.partition.topic == INPUT
    ]
    event = random.choice(events)
    assert event.offset is not None
    history.events.append(Assigned("late", "late", event.partition))
    history.events.append(Delivered("late", "late", event.partition, event.offset, event.record))


def ask_too_late(history: ClientHistory, random: Random) -> None:
    """Let a record be read before anybody asks to commit it."""
    asked = {e.transaction: at for at, e in enumerate(history.events) if isinstance(e, CommitAsked)}
    events = [
        (asked[event.transaction], event)
        for event in history.events
        if isinstance(event, Acknowledged)
        and event.transaction in asked
        and event.partition.topic == INPUT
        and event.offset in history.logs[event.partition]
    ]
    at, event = random.choice(events)
    assert event.offset is not None
    early = Delivered("early", "early", event.partition, event.offset, event.record)
    history.events[at:at] = [Assigned("early", "early", event.partition), early]


def hide_a_part(history: ClientHistory, random: Random) -> None:
    """Make the outcome of a committed transaction unknown, and one of its records invisible."""
    committed = set(ended(history, is_committed=True))
    parts: dict[str, list[Acknowledged]] = {}
    for event in history.events:
        if isinstance(event, Acknowledged) and event.partition.topic == INPUT:
            parts.setdefault(event.transaction or "", []).append(event)
    name = random.choice(sorted(n for n, p in parts.items() if n in committed and len(p) > 1))
    history.events.remove(TransactionEnded(name, is_committed=True))
    hidden = random.choice(parts[name])
    del history.logs[hidden.partition][hidden.offset or 0]


def drop_deliveries(history: ClientHistory, random: Random) -> None:
    """Let the readers get one record not at all."""
    gone = history.events[some(history, random, Delivered, group=READERS)]
    assert isinstance(gone, Delivered)
    history.events = [
        event
        for event in history.events
        if not isinstance(event, Delivered)
        or (event.group, event.partition, event.offset) != (gone.group, gone.partition, gone.offset)
    ]


def repeat_delivery(history: ClientHistory, random: Random) -> None:
    at = some(history, random, Delivered, group=READERS)
    history.events.insert(at, history.events[at])


def deliver_another(history: ClientHistory, random: Random) -> None:
    at = some(history, random, Delivered, group=READERS)
    event = history.events[at]
    assert isinstance(event, Delivered)
    history.events[at] = event._replace(record=NumberedRecord("p", 10_000))


def lose_offset(history: ClientHistory, random: Random) -> None:
    at = random.choice(
        [
            at
            for at, event in enumerate(history.events)
            if isinstance(event, OffsetRead) and event.offset > 0 and event.question > 3
        ][-6:]
    )
    event = history.events[at]
    assert isinstance(event, OffsetRead)
    history.events[at] = event._replace(offset=-1)


def invent_offset(history: ClientHistory, random: Random) -> None:
    at = some(history, random, OffsetRead)
    event = history.events[at]
    assert isinstance(event, OffsetRead)
    history.events[at] = event._replace(offset=10_000)


def keep_aborted_offset(history: ClientHistory, random: Random) -> None:
    where = TopicPartition(INPUT, 0)
    history.events += [
        OffsetSent(COPIERS, where, 10_000, "late"),
        TransactionEnded("late", False),
        OffsetsAsked(COPIERS, 10_000),
        OffsetRead(COPIERS, 10_000, where, 10_000),
    ]


def drop_copy(history: ClientHistory, random: Random) -> None:
    log = history.logs[TopicPartition(OUTPUT, 0)]
    del log[random.choice(sorted(log))]


def repeat_copy(history: ClientHistory, random: Random) -> None:
    log = history.logs[TopicPartition(OUTPUT, 0)]
    log[max(log) + 1] = random.choice(sorted(log.values()))


def exchange_copies(history: ClientHistory, random: Random) -> None:
    log = history.logs[TopicPartition(OUTPUT, 0)]
    first, second = random.sample(sorted(log), 2)
    log[first], log[second] = log[second], log[first]


def take_back_copied_offset(history: ClientHistory, random: Random) -> None:
    """Let the last answers say that nothing was committed."""
    for at, event in enumerate(history.events):
        if isinstance(event, OffsetRead) and event.group == COPIERS:
            history.events[at] = event._replace(offset=-1)


DEFECTS: tuple[tuple[Callable[[ClientHistory, Random], None], FaultKind], ...] = (
    (drop_acknowledged, FaultKind.LOST),
    (drop_committed, FaultKind.LOST),
    (repeat_stored, FaultKind.DUPLICATED),
    (invent_record, FaultKind.PHANTOM),
    (exchange, FaultKind.OUT_OF_ORDER),
    (show_aborted, FaultKind.ABORTED_READ),
    (deliver_aborted, FaultKind.ABORTED_READ),
    (ask_too_late, FaultKind.UNCOMMITTED_READ),
    (hide_a_part, FaultKind.FRACTURED),
    (drop_deliveries, FaultKind.NEVER_DELIVERED),
    (repeat_delivery, FaultKind.NOT_MONOTONIC),
    (deliver_another, FaultKind.INCONSISTENT),
    (lose_offset, FaultKind.TAKEN_BACK),
    (invent_offset, FaultKind.INVENTED_OFFSET),
    (keep_aborted_offset, FaultKind.ABORTED_OFFSET),
    (drop_copy, FaultKind.NOT_COPIED),
    (repeat_copy, FaultKind.COPIED_TWICE),
    (exchange_copies, FaultKind.COPY_OUT_OF_ORDER),
    (take_back_copied_offset, FaultKind.TAKEN_BACK),
)


@pytest.mark.parametrize(("spoil", "kind"), DEFECTS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1 << 40))
def test_a_single_defect_is_found(
    spoil: Callable[[ClientHistory, Random], None], kind: FaultKind, seed: int
) -> None:
    history = HistoryModel(seed).run()
    spoil(history, Random(seed))
    findings = check(history)
    assert kind in findings.counts, findings.lines
