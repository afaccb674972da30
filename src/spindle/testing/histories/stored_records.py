"""Rules about the logs: lost, duplicated, phantom, out of order, aborted, fractured."""

from collections import Counter
from collections.abc import Iterator

from spindle.common.ids import TopicPartition
from spindle.testing.histories.client_history import ClientHistory
from spindle.testing.histories.events import NumberedRecord
from spindle.testing.histories.findings import FaultKind, HistoryFault
from spindle.testing.histories.sent_records import (
    SentRecord,
    SentRecords,
    TransactionOutcome,
    source_of,
)


def check_logs(history: ClientHistory, sent_records: SentRecords) -> Iterator[HistoryFault]:
    """Check the entries of the logs, then the records that must or must not be there."""
    copies = {copy.target for copy in history.copies}
    stored: Counter[tuple[str, NumberedRecord]] = Counter()
    for partition, log in sorted(history.logs.items()):
        yield from _entries(partition, log, sent_records, stored, is_copy=partition.topic in copies)
    for sent in sent_records.all:
        yield from _missing(sent, history, stored)
    for transaction in sent_records.transactions.values():
        yield from _fractured(transaction)


def _entries(
    partition: TopicPartition,
    log: dict[int, NumberedRecord],
    sent_records: SentRecords,
    stored: Counter[tuple[str, NumberedRecord]],
    *,
    is_copy: bool,
) -> Iterator[HistoryFault]:
    newest: dict[str, int] = {}
    topic = partition.topic
    for offset, record in sorted(log.items()):
        where = f"{record} at offset {offset} of {partition}"
        candidates = sent_records.of(topic, record)
        source, possible = source_of(candidates, partition, offset)
        stored[topic, record] += 1
        if source is not None:
            source.found = source.found or (partition, offset)
        else:
            for one in possible:
                one.is_ambiguous = True
        if source is not None and not source.may_be_visible:
            yield _aborted(source, where)
        elif candidates and not any(one.may_be_visible for one in candidates):
            yield _aborted(candidates[-1], where)
        elif not candidates and sent_records.has_all_of(topic, record.producer):
            yield HistoryFault(FaultKind.PHANTOM, f"{where} was never sent")
        # Records of an unknown sender may be copies that were made of several partitions.
        if is_copy:
            continue
        often = max(1, sum(one.may_be_visible for one in candidates))
        if stored[topic, record] > often:
            yield HistoryFault(
                FaultKind.DUPLICATED,
                f"{where} is there {stored[topic, record]} times, and was sent {often} times",
            )
        if len(candidates) > 1:
            continue
        before = newest.get(record.producer, -1)
        if record.number < before:
            yield HistoryFault(
                FaultKind.OUT_OF_ORDER, f"{where} is behind number {before} of its producer"
            )
        newest[record.producer] = max(before, record.number)


def _aborted(sent: SentRecord, where: str) -> HistoryFault:
    assert sent.transaction is not None
    how = "was aborted" if sent.transaction.is_asked else "nobody has asked to commit"
    return HistoryFault(
        FaultKind.ABORTED_READ, f"{where} belongs to {sent.transaction.name}, which {how}"
    )


def _missing(
    sent: SentRecord, history: ClientHistory, stored: Counter[tuple[str, NumberedRecord]]
) -> Iterator[HistoryFault]:
    """Yield a fault if a record must be in a log and is not, or not where it was acknowledged."""
    transaction = sent.transaction
    is_certain = sent.is_acknowledged if transaction is None else transaction.is_committed
    if not is_certain:
        return
    record, partition, offset = sent.record, sent.partition, sent.offset
    what = f"{record}, sent in {transaction.name}," if transaction is not None else f"{record}"
    told = "committed" if transaction is not None else "acknowledged"
    if partition is None:
        if not stored[sent.topic, record]:
            yield HistoryFault(FaultKind.LOST, f"{what} was {told}, and is not in {sent.topic}")
        return
    log = history.logs.get(partition, {})
    if offset is None:
        if sent.found is None and not sent.is_ambiguous:
            yield HistoryFault(FaultKind.LOST, f"{what} was {told}, and is not in {partition}")
        return
    there = log.get(offset)
    if there == record:
        return
    if there is not None:
        yield HistoryFault(
            FaultKind.INCONSISTENT,
            f"{what} was acknowledged at offset {offset} of {partition}, where {there} is",
        )
    if there is None or not stored[sent.topic, record]:
        yield HistoryFault(
            FaultKind.LOST, f"{what} was {told} at offset {offset} of {partition}, and is not there"
        )


def _fractured(transaction: TransactionOutcome) -> Iterator[HistoryFault]:
    """Yield a fault if a transaction of unknown outcome is only partly visible."""
    if transaction.is_committed is not None or not transaction.is_asked:
        return
    known = [sent for sent in transaction.records if not sent.is_ambiguous]
    visible = [sent for sent in known if sent.found is not None]
    if visible and len(visible) < len(known):
        missing = next(one for one in known if one.found is None)
        yield HistoryFault(
            FaultKind.FRACTURED,
            f"{transaction.name}: {len(visible)} of {len(known)} records are visible, such as "
            f"{visible[0].record}, but not {missing.record} in {missing.topic}",
        )
