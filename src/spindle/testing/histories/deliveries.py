"""Rules about the records that members of groups get, in the order of the events."""

from bisect import bisect_left
from collections.abc import Iterator

from spindle.common.ids import TopicPartition
from spindle.testing.histories.client_history import ClientHistory
from spindle.testing.histories.events import (
    Assigned,
    CommitAsked,
    Delivered,
    NumberedRecord,
    OffsetCommitted,
    OffsetSent,
    TransactionEnded,
)
from spindle.testing.histories.findings import FaultKind, HistoryFault
from spindle.testing.histories.sent_records import SentRecords, source_of


class Deliveries:
    """The deliveries to members of groups.

    Attributes:
        faults: the broken rules.
        count: how many there were.
    """

    def __init__(self, history: ClientHistory, sent_records: SentRecords) -> None:
        self.faults: list[HistoryFault] = []
        self.count = 0
        self._history = history
        self._sent_records = sent_records
        self._offsets = {partition: sorted(log) for partition, log in history.logs.items()}
        self._got: dict[tuple[str, TopicPartition], set[int]] = {}
        self._seen: dict[tuple[TopicPartition, int], NumberedRecord] = {}
        self._positions: dict[tuple[str, str, TopicPartition], int | None] = {}
        self._floors: dict[tuple[str, str, TopicPartition], int] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._offsets_of: dict[str, list[OffsetSent]] = {}
        self._asked: set[str] = set()
        for event in history.events:
            match event:
                case Delivered():
                    self._deliver(event)
                case Assigned():
                    self._assign(event)
                case OffsetCommitted():
                    self._commit(event.group, event.partition, event.offset)
                case OffsetSent(transaction=str(transaction)):
                    self._offsets_of.setdefault(transaction, []).append(event)
                case CommitAsked():
                    self._asked.add(event.transaction)
                case TransactionEnded(is_committed=True):
                    self._asked.add(event.transaction)
                    for sent in self._offsets_of.pop(event.transaction, ()):
                        self._commit(sent.group, sent.partition, sent.offset)

    @property
    def repeated(self) -> int:
        """The number of deliveries to a group that already had the record."""
        return self.count - sum(map(len, self._got.values()))

    def _commit(self, group: str, partition: TopicPartition, offset: int) -> None:
        where = (group, partition)
        self._committed[where] = max(self._committed.get(where, 0), offset)

    def _assign(self, event: Assigned) -> None:
        member = (event.group, event.member, event.partition)
        self._positions[member] = None
        self._floors[member] = self._committed.get((event.group, event.partition), 0)

    def _fault(self, kind: FaultKind, event: Delivered, text: str) -> None:
        self.faults.append(
            HistoryFault(
                kind,
                f"{event.member} of {event.group} got {event.record} at offset {event.offset} of "
                f"{event.partition}, {text}",
            )
        )

    def _deliver(self, event: Delivered) -> None:
        group, member_name, partition, offset, record, is_read_committed = event
        member = (group, member_name, partition)
        if member not in self._positions:
            self._fault(FaultKind.NOT_ASSIGNED, event, "which it was not given")
        expected = self._positions.get(member)
        if expected is None:
            floor = self._floors.get(member, 0)
            if offset < floor:
                self._fault(FaultKind.TAKEN_BACK, event, f"where {floor} was committed")
        elif offset < expected:
            self._fault(FaultKind.NOT_MONOTONIC, event, f"where {expected} was next")
        elif offset > expected:
            self._check_passed(event, expected)
        self._positions[member] = offset + 1
        self.count += 1
        self._got.setdefault((group, partition), set()).add(offset)
        if self._seen.setdefault((partition, offset), record) != record:
            self._fault(
                FaultKind.INCONSISTENT, event, f"where {self._seen[partition, offset]} was read"
            )
        stored = self._history.logs.get(partition, {}).get(offset)
        if stored is not None and stored != record:
            self._fault(FaultKind.INCONSISTENT, event, f"where {stored} is at the end")
        if is_read_committed:
            self._check_committed(event, is_stored=stored is not None)
        elif stored is None and not self._sent_records.of(partition.topic, record):
            self._check_sent(event)

    def _check_passed(self, event: Delivered, expected: int) -> None:
        offsets = self._offsets.get(event.partition, ())
        at = bisect_left(offsets, expected)
        if at < len(offsets) and offsets[at] < event.offset:
            self._fault(FaultKind.SKIPPED, event, f"and did not get offset {offsets[at]} before")

    def _check_committed(self, event: Delivered, *, is_stored: bool) -> None:
        """Check a delivery under read_committed by the transaction of its record."""
        candidates = self._sent_records.of(event.partition.topic, event.record)
        source, possible = source_of(candidates, event.partition, event.offset)
        sources = (source,) if source is not None else (possible or candidates)
        owners = [one.transaction for one in sources if one.transaction is not None]
        if owners and len(owners) == len(sources):
            if not any(owner.may_be_visible for owner in owners):
                self._fault(
                    FaultKind.ABORTED_READ, event, f"and {owners[0].name} was not committed"
                )
                return
            if not any(owner.name in self._asked for owner in owners):
                self._fault(
                    FaultKind.UNCOMMITTED_READ,
                    event,
                    f"before anybody asked to commit {owners[0].name}",
                )
        if not candidates:
            self._check_sent(event)
        elif not is_stored:
            self._fault(FaultKind.LOST, event, "where nothing is at the end")

    def _check_sent(self, event: Delivered) -> None:
        if self._sent_records.has_all_of(event.partition.topic, event.record.producer):
            self._fault(FaultKind.PHANTOM, event, "and it was never sent")
        elif event.is_read_committed and event.offset not in self._history.logs.get(
            event.partition, {}
        ):
            self._fault(FaultKind.LOST, event, "where nothing is at the end")

    def never_delivered(self) -> Iterator[HistoryFault]:
        """Yield the records that a group had to get and did not."""
        for group, topics in self._history.must_read.items():
            for partition, offsets in sorted(self._offsets.items()):
                if partition.topic not in topics:
                    continue
                got = self._got.get((group, partition), ())
                for offset in offsets:
                    if offset not in got:
                        record = self._history.logs[partition][offset]
                        yield HistoryFault(
                            FaultKind.NEVER_DELIVERED,
                            f"{group} did not get {record} at offset {offset} of {partition}",
                        )
