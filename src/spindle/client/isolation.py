"""Batches that a consumer shows to its application (KIP-98): no markers, no aborted data."""

from collections.abc import Iterable, Iterator

from spindle.client.fetching import AbortedProducer
from spindle.common.ports import Bytes
from spindle.protocol.records.batch import BatchHeader, batches, check_crc
from spindle.protocol.records.control import ControlType, read_control_type
from spindle.protocol.records.record import decode_records


def shown_batches(
    data: Bytes, aborted: Iterable[AbortedProducer]
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield each batch of an answer to Fetch: its position, header, and whether it is shown.

    Args:
        aborted: those that the answer names; none under read_uncommitted.

    Raises:
        CorruptRecords: a batch is damaged.
    """
    waiting = sorted(aborted, key=lambda each: -each.first_offset)
    open_aborted: set[int] = set()
    for at, header in batches(data):
        check_crc(data, at, header)
        while waiting and waiting[-1].first_offset <= header.last_offset:
            open_aborted.add(waiting.pop().producer_id)
        if header.is_control:
            # Compaction may leave a control batch without its marker.
            markers = decode_records(data, at, header)
            if markers and read_control_type(markers[0].key) == ControlType.ABORT:
                open_aborted.discard(header.producer_id)
        is_aborted = header.is_transactional and header.producer_id in open_aborted
        yield at, header, not header.is_control and not is_aborted
