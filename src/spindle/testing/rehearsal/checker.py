"""The verdict about a history: what was lost, duplicated, out of order, or taken back.

The rules:

* An acknowledged record is in the log, at the acknowledged partition and offset. If the producer
  was not told the offset, it is anywhere in that partition.
* No record is in the log twice, and none that nobody has sent.
* The records of a producer are in the order of their numbers in each partition.
* A member of a group gets the records of a partition one after the other, without a gap, as they
  are in the log, from where its group has committed.
* At the end each group has got every record of the log.
* The committed offset of a group never goes back: it is at least what was committed when somebody
  asked, and at most the highest that was ever sent.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

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

_SHOWN = 20
"""Faults of one kind that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a check.

    Attributes:
        faults: one sentence for each; empty if all rules hold.
        acknowledged: records that were acknowledged, `without_offset` of them at no known offset.
        stored: records in the log.
        delivered: records that members of groups got, `redelivered` of them not for the first time
            (after a rebalance, from the committed offset on).
    """

    faults: tuple[str, ...]
    acknowledged: int
    stored: int
    delivered: int
    redelivered: int
    without_offset: int = 0

    @property
    def text(self) -> str:
        """One line for people."""
        unknown = f" ({self.without_offset:,} without an offset)" if self.without_offset else ""
        return (
            f"{self.acknowledged:,} records acknowledged{unknown}, {self.stored:,} stored, "
            f"{self.delivered:,} delivered ({self.redelivered:,} again after a rebalance), "
            f"{len(self.faults)} faults"
        )


def check(history: ClientHistory) -> Findings:
    """Apply all rules to a history."""
    deliveries = _Deliveries(history)
    kinds = (
        list(_lost(history)),
        list(_duplicated(history)),
        list(_out_of_order(history)),
        deliveries.faults,
        list(deliveries.never_delivered()),
        list(_taken_back(history)),
    )
    faults: list[str] = []
    for kind in kinds:
        faults += kind[:_SHOWN]
        if len(kind) > _SHOWN:
            faults.append(f"... and {len(kind) - _SHOWN} more of this kind")
    acknowledged = [event for event in history.events if isinstance(event, Acknowledged)]
    return Findings(
        tuple(faults),
        len(acknowledged),
        sum(map(len, history.logs.values())),
        deliveries.count,
        deliveries.repeated,
        sum(event.offset is None for event in acknowledged),
    )


def _lost(history: ClientHistory) -> Iterator[str]:
    stored = {partition: set(log.values()) for partition, log in history.logs.items()}
    for event in history.events:
        if isinstance(event, Acknowledged):
            if event.offset is None:
                if event.record not in stored.get(event.partition, ()):
                    yield (
                        f"lost: {event.record} was acknowledged without an offset in partition "
                        f"{event.partition}, where it is not"
                    )
                continue
            found = history.logs.get(event.partition, {}).get(event.offset)
            if found != event.record:
                yield (
                    f"lost: {event.record} was acknowledged at offset {event.offset} of partition "
                    f"{event.partition}, where {found or 'nothing'} is"
                )


def _duplicated(history: ClientHistory) -> Iterator[str]:
    places: dict[NumberedRecord, tuple[int, int]] = {}
    for partition, log in sorted(history.logs.items()):
        for offset, record in sorted(log.items()):
            if record in places:
                yield (
                    f"duplicated: {record} is at {places[record]} and at {(partition, offset)} "
                    "(partition, offset)"
                )
            places.setdefault(record, (partition, offset))
            sent = history.sent.get(record.producer)
            if sent is not None and not 0 <= record.number < sent:
                yield f"invented: {record} is in the log, but {sent} records were sent"


def _out_of_order(history: ClientHistory) -> Iterator[str]:
    for partition, log in sorted(history.logs.items()):
        newest: dict[str, int] = {}
        for offset, record in sorted(log.items()):
            before = newest.get(record.producer, -1)
            if record.number < before:
                yield (
                    f"out of order: {record} is behind number {before}, at offset {offset} of "
                    f"partition {partition}"
                )
            newest[record.producer] = max(before, record.number)


class _Deliveries:
    """The deliveries to members of groups, one after the other."""

    def __init__(self, history: ClientHistory) -> None:
        self.faults: list[str] = []
        self._history = history
        self._counts: Counter[tuple[str, int, int]] = Counter()
        self._positions: dict[tuple[str, str, int], int | None] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._floors: dict[tuple[str, str, int], int] = {}
        for event in history.events:
            match event:
                case Committed():
                    where = (event.group, event.partition)
                    self._committed[where] = max(self._committed.get(where, 0), event.offset)
                case Assigned():
                    member = (event.group, event.member, event.partition)
                    self._positions[member] = None
                    floor = self._committed.get((event.group, event.partition), 0)
                    self._floors[member] = floor
                case Delivered():
                    self._deliver(event)

    @property
    def count(self) -> int:
        return self._counts.total()

    @property
    def repeated(self) -> int:
        return self.count - len(self._counts)

    def _deliver(self, event: Delivered) -> None:
        member = (event.group, event.member, event.partition)
        who = f"{event.member} of {event.group}"
        what = f"{event.record} at offset {event.offset} of partition {event.partition}"
        if member not in self._positions:
            self.faults.append(f"not assigned: {who} got {what}")
        expected = self._positions.get(member)
        if expected is None:
            floor = self._floors.get(member, 0)
            if event.offset < floor:
                self.faults.append(f"taken back: {who} got {what}, where {floor} was committed")
        elif event.offset != expected:
            self.faults.append(f"not in order: {who} got {what}, where {expected} was next")
        stored = self._history.logs.get(event.partition, {}).get(event.offset)
        if stored != event.record:
            self.faults.append(f"not stored: {who} got {what}, where {stored or 'nothing'} is")
        self._positions[member] = event.offset + 1
        self._counts[event.group, event.partition, event.offset] += 1

    def never_delivered(self) -> Iterator[str]:
        for group in self._history.groups:
            for partition, log in sorted(self._history.logs.items()):
                for offset, record in sorted(log.items()):
                    if (group, partition, offset) not in self._counts:
                        yield (
                            f"never delivered: {group} did not get {record} at offset {offset} of "
                            f"partition {partition}"
                        )


def _taken_back(history: ClientHistory) -> Iterator[str]:
    committed: dict[tuple[str, int], int] = {}
    # Clients in other processes tell what they commit only afterwards.
    sent: dict[tuple[str, int], int] = {}
    for event in history.events:
        if isinstance(event, CommitSent):
            where = (event.group, event.partition)
            sent[where] = max(sent.get(where, -1), event.offset)
    floors: dict[int, dict[tuple[str, int], int]] = {}
    for event in history.events:
        match event:
            case Committed():
                where = (event.group, event.partition)
                committed[where] = max(committed.get(where, -1), event.offset)
            case OffsetsAsked():
                floors[event.question] = dict(committed)
            case OffsetRead():
                where = (event.group, event.partition)
                floor = floors.get(event.question, {}).get(where, -1)
                if event.offset < floor:
                    yield (
                        f"taken back: {event.group} has committed {event.offset} of partition "
                        f"{event.partition}, where {floor} was committed before"
                    )
                elif event.offset > sent.get(where, -1):
                    yield (
                        f"invented: {event.group} has committed {event.offset} of partition "
                        f"{event.partition}, where {sent.get(where, -1)} is the highest sent"
                    )
                # An offset that was seen once is committed.
                committed[where] = max(floor, event.offset, committed.get(where, -1))
