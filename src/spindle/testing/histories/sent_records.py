"""The sent records with their transactions, and the entries of logs that come from them.

An application that is repeated after an abort may send the same record in several transactions; so
a `SentRecord` is a record and a transaction.
"""

from collections.abc import Iterable, Sequence

from spindle.common.ids import TopicPartition
from spindle.testing.histories.events import (
    Acknowledged,
    CommitAsked,
    Event,
    NumberedRecord,
    RecordSent,
    TransactionEnded,
)


class TransactionOutcome:
    """One transaction.

    Attributes:
        is_asked: a client has asked to commit it.
        is_committed: None while the outcome is not known.
    """

    __slots__ = ("is_asked", "is_committed", "name", "records")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_asked = False
        self.is_committed: bool | None = None
        self.records: list[SentRecord] = []

    @property
    def may_be_visible(self) -> bool:
        """False if it was aborted, or if nobody has asked to commit it."""
        return self.is_asked and self.is_committed is not False


class SentRecord:
    """A record that was sent in a transaction, or in none.

    Attributes:
        is_acknowledged, partition, offset: from the response to the producer.
        found: where the record is in the logs; None if it is in none.
        is_ambiguous: it cannot be distinguished from the same record of another transaction.
    """

    __slots__ = (
        "found",
        "is_acknowledged",
        "is_ambiguous",
        "offset",
        "partition",
        "record",
        "topic",
        "transaction",
    )

    def __init__(
        self, record: NumberedRecord, topic: str, transaction: TransactionOutcome | None
    ) -> None:
        self.record = record
        self.topic = topic
        self.transaction = transaction
        self.is_acknowledged = False
        self.partition: TopicPartition | None = None
        self.offset: int | None = None
        self.found: tuple[TopicPartition, int] | None = None
        self.is_ambiguous = False

    @property
    def may_be_visible(self) -> bool:
        """False if its transaction certainly was not committed."""
        return self.transaction is None or self.transaction.may_be_visible

    def may_be_at(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether the acknowledgement allows this place."""
        if self.partition is not None and self.partition != partition:
            return False
        return self.offset is None or self.offset == offset


class SentRecords:
    """All sent records of a history, by topic and record.

    Attributes:
        transactions: by name.
        all: in their order.
        acknowledged: how many records were acknowledged, `without_offset` of them at no offset.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.transactions: dict[str, TransactionOutcome] = {}
        self.all: list[SentRecord] = []
        self.acknowledged = 0
        self.without_offset = 0
        self._by_record: dict[tuple[str, NumberedRecord], list[SentRecord]] = {}
        self._known_producers: set[tuple[str, str]] = set()
        for event in events:
            kind = type(event)
            if kind is RecordSent:
                assert isinstance(event, RecordSent)
                self._known_producers.add((event.topic, event.record.producer))
                self._sent(event.record, event.topic, event.transaction)
            elif kind is Acknowledged:
                assert isinstance(event, Acknowledged)
                self._acknowledge(event)
            elif kind is CommitAsked:
                assert isinstance(event, CommitAsked)
                self.transaction(event.transaction).is_asked = True
            elif kind is TransactionEnded:
                assert isinstance(event, TransactionEnded)
                transaction = self.transaction(event.transaction)
                transaction.is_committed = event.is_committed
                transaction.is_asked |= event.is_committed

    def of(self, topic: str, record: NumberedRecord) -> Sequence[SentRecord]:
        """Return how a record was sent to a topic: once for each transaction."""
        return self._by_record.get((topic, record), ())

    def has_all_of(self, topic: str, producer: str) -> bool:
        """Return whether the history has all records that the producer sent to the topic."""
        return (topic, producer) in self._known_producers

    def transaction(self, name: str) -> TransactionOutcome:
        """Return a transaction by its name."""
        known = self.transactions.get(name)
        if known is None:
            known = self.transactions[name] = TransactionOutcome(name)
        return known

    def _sent(self, record: NumberedRecord, topic: str, name: str | None) -> SentRecord:
        """Return the record as sent in a transaction; sending it again there is a retry."""
        transaction = None if name is None else self.transaction(name)
        others = self._by_record.setdefault((topic, record), [])
        for other in others:
            if other.transaction is transaction:
                return other
        sent = SentRecord(record, topic, transaction)
        others.append(sent)
        self.all.append(sent)
        if transaction is not None:
            transaction.records.append(sent)
        return sent

    def _acknowledge(self, event: Acknowledged) -> None:
        sent = self._sent(event.record, event.partition.topic, event.transaction)
        sent.is_acknowledged = True
        sent.partition = event.partition
        sent.offset = event.offset
        self.acknowledged += 1
        self.without_offset += event.offset is None


def source_of(
    candidates: Sequence[SentRecord], partition: TopicPartition, offset: int
) -> tuple[SentRecord | None, Sequence[SentRecord]]:
    """Return the sent record that an entry of a log comes from, and all that it may come from.

    The first is None if there is more than one, or none. Only those that may be visible count,
    unless an acknowledgement names just this place.
    """
    for sent in candidates:
        if sent.offset == offset and sent.partition == partition:
            return sent, (sent,)
    possible = [s for s in candidates if s.may_be_visible and s.may_be_at(partition, offset)]
    return (possible[0] if len(possible) == 1 else None), possible
