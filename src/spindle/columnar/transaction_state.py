"""Aborted transactions and the last stable offset of a partition, without a broker (KIP-98).

A read_committed reader needs both. The aborted transactions come from the `.txnindex` files. The
last stable offset is the start of the oldest open transaction; it follows from the newest producer
snapshot and the batches after it.
"""

from collections.abc import Iterable, Iterator

from spindle.client.fetching import AbortedProducer
from spindle.columnar.directory_files import FILE_SYSTEM
from spindle.columnar.index_files import read_transaction_index
from spindle.columnar.segment_log import SegmentLog
from spindle.log.formats.producer_snapshot import read_producer_snapshot
from spindle.protocol.records.batch import BatchHeader


def aborted_transactions(log: SegmentLog) -> list[AbortedProducer]:
    """Return the aborted transactions of a log.

    The entry of a transaction is in the index of the segment that holds its abort marker.
    """
    while True:
        aborted_transactions = [
            AbortedProducer(entry.producer_id, entry.first_offset, entry.last_offset)
            for segment in log.segments
            for entry in read_transaction_index(segment.path.with_suffix(".txnindex"))
        ]
        # An index that was removed after the listing looks like one that never was.
        again = SegmentLog(log.path)
        if again.names == log.names:
            return aborted_transactions
        log = again


def overlapping(
    aborted: Iterable[AbortedProducer], start: int, end: int
) -> tuple[AbortedProducer, ...]:
    """Return the transactions with records or markers in the offsets [start, end)."""
    return tuple(
        transaction
        for transaction in aborted
        if transaction.first_offset < end
        and (transaction.last_offset is None or transaction.last_offset >= start)
    )


def last_stable_offset(log: SegmentLog, end: int, *, passes_damage: bool = False) -> int:
    """Return the first offset of the oldest transaction that is open at `end`, or `end` itself.

    Args:
        passes_damage: continue after damaged bytes. A transaction that begins in them is not known,
            so the offset may be too high.

    Raises:
        CorruptLog: a producer snapshot is not in its format, or batches behind it are damaged.
    """
    at, open_transactions = _newest_snapshot(log, end)
    start = log.position_of(at)
    if start is None:
        return end
    headers: Iterator[BatchHeader] = log.undamaged_headers(start, end)
    if passes_damage:
        headers = (header for _, header in log.headers_from(start))
    for header in headers:
        if header.base_offset >= end:
            break
        if header.base_offset < at or not header.is_transactional:
            continue
        if header.is_control:
            open_transactions.pop(header.producer_id, None)
        else:
            open_transactions.setdefault(header.producer_id, header.base_offset)
    return min(open_transactions.values(), default=end)


def _newest_snapshot(log: SegmentLog, end: int) -> tuple[int, dict[int, int]]:
    """Return (offset, first offset of open transactions by producer id) to begin from."""
    snapshots = sorted(
        (int(path.stem), path)
        for path in log.path.glob("*.snapshot")
        if path.stem.isdecimal() and log.first_offset <= int(path.stem) <= end
    )
    for offset, path in reversed(snapshots):
        try:
            producers = read_producer_snapshot(FILE_SYSTEM, str(path))
        except FileNotFoundError:
            continue
        return offset, {
            producer.producer_id: producer.current_transaction_first_offset
            for producer in producers
            if producer.current_transaction_first_offset is not None
        }
    return log.first_offset, {}
