"""The checker passes histories in which all is well, and finds each defect that is put into one."""

from collections.abc import Callable
from copy import deepcopy
from random import Random

import pytest

from spindle.testing.rehearsal.checker import check
from spindle.testing.rehearsal.history import (
    Acknowledged,
    Assigned,
    ClientHistory,
    CommitSent,
    Committed,
    Delivered,
    NumberedRecord,
    OffsetRead,
    OffsetsAsked,
)

PARTITIONS = 3
GROUP = "readers"


def good_history(seed: int) -> ClientHistory:
    """Return a history with lost acknowledgements, a rebalance and commits in between."""
    random = Random(seed)
    history = ClientHistory(groups=[GROUP], sent={"p": 60, "q": 60})
    history.logs = {partition: {} for partition in range(PARTITIONS)}
    for number in range(60):
        for producer in history.sent:
            partition = random.randrange(PARTITIONS)
            log = history.logs[partition]
            offset, record = len(log), NumberedRecord(producer, number)
            if random.random() < 0.1:
                continue  # never stored, never acknowledged
            log[offset] = record
            if random.random() < 0.9:
                history.events.append(Acknowledged(record, partition, offset))
    for partition, log in history.logs.items():
        half = len(log) // 2
        read(history, "first", partition, 0, half)
        commit(history, partition, half - 3)
        history.events.append(OffsetsAsked(GROUP, partition))
        commit(history, partition, half - 2)
        history.events.append(OffsetRead(GROUP, partition, partition, half - 2))
        read(history, "second", partition, half - 2, len(log))
    return history


def read(history: ClientHistory, member: str, partition: int, start: int, end: int) -> None:
    history.events.append(Assigned(GROUP, member, partition))
    for offset in range(start, end):
        record = history.logs[partition][offset]
        history.events.append(Delivered(GROUP, member, partition, offset, record))


def commit(history: ClientHistory, partition: int, offset: int) -> None:
    history.events.append(CommitSent(GROUP, partition, offset))
    history.events.append(Committed(GROUP, partition, offset))


def index_of(history: ClientHistory, kind: type, number: int = 0) -> int:
    return [at for at, event in enumerate(history.events) if isinstance(event, kind)][number]


@pytest.mark.parametrize("seed", range(10))
def test_a_good_history_has_no_faults(seed: int) -> None:
    verdict = check(good_history(seed))
    assert verdict.faults == ()
    assert verdict.acknowledged > 80
    assert verdict.delivered - verdict.redelivered == verdict.stored
    assert verdict.redelivered == 2 * PARTITIONS


def test_an_acknowledgement_without_an_offset_is_no_fault() -> None:
    history = good_history(1)
    forget_offset(history)
    verdict = check(history)
    assert verdict.faults == ()
    assert verdict.without_offset == 1
    assert "(1 without an offset)" in verdict.text


def drop_from_log(history: ClientHistory) -> None:
    event = history.events[index_of(history, Acknowledged, 3)]
    assert isinstance(event, Acknowledged)
    del history.logs[event.partition][event.offset]


def forget_offset(history: ClientHistory, number: int = 3) -> Acknowledged:
    """Let an acknowledgement come without its offset; return it as it was."""
    at = index_of(history, Acknowledged, number)
    event = history.events[at]
    assert isinstance(event, Acknowledged)
    history.events[at] = event._replace(offset=None)
    return event


def drop_what_has_no_offset(history: ClientHistory) -> None:
    event = forget_offset(history)
    assert event.offset is not None
    del history.logs[event.partition][event.offset]


def store_elsewhere_without_offset(history: ClientHistory) -> None:
    event = forget_offset(history)
    assert event.offset is not None
    log = history.logs[(event.partition + 1) % PARTITIONS]
    log[len(log)] = history.logs[event.partition].pop(event.offset)


def store_twice_without_offset(history: ClientHistory) -> None:
    event = forget_offset(history)
    log = history.logs[event.partition]
    log[len(log)] = event.record


def store_twice(history: ClientHistory) -> None:
    log = history.logs[0]
    log[len(log)] = log[len(log) - 1]


def store_twice_elsewhere(history: ClientHistory) -> None:
    log = history.logs[1]
    log[len(log)] = history.logs[0][2]


def exchange(history: ClientHistory) -> None:
    log = history.logs[2]
    same = [offset for offset, record in log.items() if record.producer == "p"]
    log[same[4]], log[same[5]] = log[same[5]], log[same[4]]


def invent(history: ClientHistory) -> None:
    log = history.logs[0]
    log[len(log)] = NumberedRecord("p", 60)


def drop_delivery(history: ClientHistory) -> None:
    del history.events[index_of(history, Delivered, 4)]


def drop_last_delivery(history: ClientHistory) -> None:
    del history.events[index_of(history, Delivered, -1)]


def repeat_delivery(history: ClientHistory) -> None:
    at = index_of(history, Delivered, 4)
    history.events.insert(at, history.events[at])


def deliver_another(history: ClientHistory) -> None:
    at = index_of(history, Delivered, 4)
    event = history.events[at]
    assert isinstance(event, Delivered)
    history.events[at] = event._replace(record=NumberedRecord("p", 59))


def forget_commit(history: ClientHistory) -> None:
    at = index_of(history, OffsetRead)
    event = history.events[at]
    assert isinstance(event, OffsetRead)
    history.events[at] = event._replace(offset=event.offset - 2)


def lose_all_commits(history: ClientHistory) -> None:
    at = index_of(history, OffsetRead)
    event = history.events[at]
    assert isinstance(event, OffsetRead)
    history.events[at] = event._replace(offset=-1)


def commit_too_much(history: ClientHistory) -> None:
    at = index_of(history, OffsetRead)
    event = history.events[at]
    assert isinstance(event, OffsetRead)
    history.events[at] = event._replace(offset=event.offset + 1)


def begin_below_the_commit(history: ClientHistory) -> None:
    commit(history, 0, 20)
    read(history, "third", 0, 15, 18)


def deliver_without_assignment(history: ClientHistory) -> None:
    history.events.insert(0, Delivered(GROUP, "stranger", 0, 0, history.logs[0][0]))


DEFECTS: tuple[tuple[Callable[[ClientHistory], None], str], ...] = (
    (drop_from_log, "lost: "),
    (drop_what_has_no_offset, "lost: "),
    (store_elsewhere_without_offset, "lost: "),
    (store_twice_without_offset, "duplicated: "),
    (store_twice, "duplicated: "),
    (store_twice_elsewhere, "duplicated: "),
    (exchange, "out of order: "),
    (invent, "invented: "),
    (drop_delivery, "not in order: "),
    (drop_last_delivery, "never delivered: "),
    (repeat_delivery, "not in order: "),
    (deliver_another, "not stored: "),
    (forget_commit, "taken back: "),
    (lose_all_commits, "taken back: "),
    (commit_too_much, "invented: "),
    (begin_below_the_commit, "taken back: "),
    (deliver_without_assignment, "not assigned: "),
)


@pytest.mark.parametrize(("spoil", "fault"), DEFECTS)
def test_a_defect_is_found(spoil: Callable[[ClientHistory], None], fault: str) -> None:
    for seed in range(5):
        history = deepcopy(good_history(seed))
        spoil(history)
        faults = check(history).faults
        assert any(found.startswith(fault) for found in faults), faults


def test_many_faults_of_a_kind_are_counted() -> None:
    history = good_history(1)
    history.logs = {partition: {} for partition in history.logs}
    assert any(fault.startswith("... and ") for fault in check(history).faults)
