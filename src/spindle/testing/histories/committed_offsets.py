"""Rules about the committed offsets of groups: none is lost, goes back, or was never committed."""

from spindle.common.ids import TopicPartition
from spindle.testing.histories.client_history import ClientHistory
from spindle.testing.histories.events import (
    CommitAsked,
    OffsetCommitted,
    OffsetRead,
    OffsetsAsked,
    OffsetSent,
    TransactionEnded,
)
from spindle.testing.histories.findings import FaultKind, HistoryFault
from spindle.testing.histories.sent_records import SentRecords


class CommittedOffsets:
    """Compares the committed offsets that clients read with those that were committed.

    Attributes:
        faults: the broken rules.
        last_read: the last answer for each group and partition.
        floors: the highest offset that is certainly committed.
    """

    def __init__(self, history: ClientHistory, sent_records: SentRecords) -> None:
        self.faults: list[HistoryFault] = []
        self.last_read: dict[tuple[str, TopicPartition], int] = {}
        self.floors: dict[tuple[str, TopicPartition], int] = {}
        self._sent_records = sent_records
        self._sent: dict[tuple[str, TopicPartition], dict[int, list[str | None]]] = {}
        self._floors_at: dict[tuple[str, int], dict[TopicPartition, int]] = {}
        self._of_group: dict[str, dict[TopicPartition, int]] = {}
        self._asked: set[str] = set()
        offsets_of: dict[str, list[OffsetSent]] = {}
        # Clients in other processes report their commits only afterwards.
        for event in history.events:
            if isinstance(event, OffsetSent):
                by_offset = self._sent.setdefault((event.group, event.partition), {})
                by_offset.setdefault(event.offset, []).append(event.transaction)
                if event.transaction is not None:
                    offsets_of.setdefault(event.transaction, []).append(event)
        self._groups_with_sent_offsets = {group for group, _ in self._sent}
        for event in history.events:
            match event:
                case OffsetCommitted():
                    self._raise(event.group, event.partition, event.offset)
                case CommitAsked():
                    self._asked.add(event.transaction)
                case TransactionEnded(is_committed=True):
                    self._asked.add(event.transaction)
                    for sent in offsets_of.get(event.transaction, ()):
                        self._raise(sent.group, sent.partition, sent.offset)
                case OffsetsAsked():
                    now = dict(self._of_group.get(event.group, {}))
                    self._floors_at[event.group, event.question] = now
                case OffsetRead():
                    self._read(event)

    def _raise(self, group: str, partition: TopicPartition, offset: int) -> None:
        of_group = self._of_group.setdefault(group, {})
        of_group[partition] = max(of_group.get(partition, -1), offset)
        self.floors[group, partition] = of_group[partition]

    def _read(self, event: OffsetRead) -> None:
        group, question, partition, offset = event
        self.last_read[group, partition] = offset
        what = f"{group} has committed {offset} of {partition}"
        floor = self._floors_at.get((group, question), {}).get(partition, -1)
        if offset < floor:
            self._add(FaultKind.TAKEN_BACK, f"{what}, where {floor} was committed before")
        elif offset >= 0 and group in self._groups_with_sent_offsets:
            self._check_sent(event, what)
        # An offset that was seen once is committed.
        if offset >= 0:
            self._raise(group, partition, offset)

    def _check_sent(self, event: OffsetRead, what: str) -> None:
        senders = self._sent.get((event.group, event.partition), {}).get(event.offset)
        if senders is None:
            self._add(FaultKind.INVENTED_OFFSET, f"{what}, which nobody has sent")
            return
        names = [name for name in senders if name is not None]
        if len(names) < len(senders):
            return
        if not any(self._sent_records.transaction(name).may_be_visible for name in names):
            self._add(FaultKind.ABORTED_OFFSET, f"{what}, but {names[0]} was not committed")
        elif not any(name in self._asked for name in names):
            self._add(FaultKind.ABORTED_OFFSET, f"{what} before anybody asked to commit {names[0]}")

    def _add(self, kind: FaultKind, text: str) -> None:
        self.faults.append(HistoryFault(kind, text))
