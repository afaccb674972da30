"""The transaction indexes of a log must have its aborted transactions, and no committed one."""

from collections.abc import Iterable, Iterator

from spindle.log.log import Log
from spindle.protocol.records.batch import batches
from spindle.protocol.records.control import read_end_transaction
from spindle.protocol.records.record import decode_bounded


def wrong_answers(log: Log, content: Iterable[bytes]) -> Iterator[str]:
    """Yield the transactions that a read_committed reader would take for what they are not.

    Each is looked up for its first record alone: the search ends as early as it ever does then.

    Args:
        content: all batches of the log, in order.
    """
    opened: dict[int, int] = {}
    for data in content:
        view = memoryview(data)
        for position, header in batches(view):
            if not header.is_transactional:
                continue
            producer_id = header.producer_id
            if not header.is_control:
                if header.record_count:  # compaction keeps batches without records, too
                    opened.setdefault(producer_id, header.base_offset)
                continue
            first_offset = opened.pop(producer_id, None)
            records = decode_bounded(view, position, header)
            # Compaction removes a marker and keeps its batch, which stores the producer's state.
            marker = read_end_transaction(records[0]) if records else None
            if marker is None or first_offset is None:
                continue
            is_found = any(
                entry.producer_id == producer_id and entry.last_offset == header.base_offset
                for entry in log.aborted_transactions(first_offset, first_offset + 1)
            )
            if is_found == marker.is_commit:
                ending = "committed" if marker.is_commit else "aborted"
                yield (
                    f"the transaction of producer {producer_id} from offset {first_offset} to "
                    f"{header.base_offset} was {ending}, and its index says otherwise"
                )
