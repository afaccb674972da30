"""The sent records with their transactions, and the entries of logs that come from them.

An application that is repeated after an abort may send the same record in several transactions; so
a sending is a record and a transaction.
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

    __slots__ = ("is_asked", "is_committed", "name", "sendings")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_asked = False
        self.is_committed: bool | None = None
        self.sendings: list[Sending] = []

    @property
    def may_be_visible(self) -> bool:
        """False if it was aborted, or if nobody has asked to commit it."""
        return self.is_asked and self.is_committed is not False


class Sending:
    """A record that was sent in a transaction, or in none.

    Attributes:
        is_acknowledged, partition, offset: from the response to the producer.
        found: where the record is in the logs; None if it is in none.
        is_ambiguous: it cannot be distinguished from another sending of the same record.
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


class Sendings:
    """All sendings of a history, by topic and record.

    Attributes:
        transactions: by name.
        all: in their order.
        acknowledged: how many records were acknowledged, `without_offset` of them at no offset.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.transactions: dict[str, TransactionOutcome] = {}
        self.all: list[Sending] = []
        self.acknowledged = 0
        self.without_offset = 0
        self._by_record: dict[tuple[str, NumberedRecord], list[Sending]] = {}
        self._tellers: set[tuple[str, str]] = set()
        for event in events:
            kind = type(event)
            if kind is RecordSent:
                assert isinstance(event, RecordSent)
                self._tellers.add((event.topic, event.record.producer))
                self._sending(event.record, event.topic, event.transaction)
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

    def of(self, topic: str, record: NumberedRecord) -> Sequence[Sending]:
        """Return the sends of a record to a topic."""
        return self._by_record.get((topic, record), ())

    def tells(self, topic: str, producer: str) -> bool:
        """Return whether the history has all records that the producer sent to the topic."""
        return (topic, producer) in self._tellers

    def transaction(self, name: str) -> TransactionOutcome:
        """Return a transaction by its name."""
        known = self.transactions.get(name)
        if known is None:
            known = self.transactions[name] = TransactionOutcome(name)
        return known

    def _sending(self, record: NumberedRecord, topic: str, name: str | None) -> Sending:
        """Return the sending of a record in a transaction; a second one is a retry of the first."""
        transaction = None if name is None else self.transaction(name)
        others = self._by_record.setdefault((topic, record), [])
        for other in others:
            if other.transaction is transaction:
                return other
        sending = Sending(record, topic, transaction)
        others.append(sending)
        self.all.append(sending)
        if transaction is not None:
            transaction.sendings.append(sending)
        return sending

    def _acknowledge(self, event: Acknowledged) -> None:
        sending = self._sending(event.record, event.partition.topic, event.transaction)
        sending.is_acknowledged = True
        sending.partition = event.partition
        sending.offset = event.offset
        self.acknowledged += 1
        self.without_offset += event.offset is None


def source_of(
    sendings: Sequence[Sending], partition: TopicPartition, offset: int
) -> tuple[Sending | None, Sequence[Sending]]:
    """Return the sending that an entry of a log comes from, and all that it may come from.

    The first is None if there is more than one, or none. Only sendings that may be visible count,
    unless an acknowledgement names just this place.
    """
    for sending in sendings:
        if sending.offset == offset and sending.partition == partition:
            return sending, (sending,)
    possible = [s for s in sendings if s.may_be_visible and s.may_be_at(partition, offset)]
    return (possible[0] if len(possible) == 1 else None), possible
