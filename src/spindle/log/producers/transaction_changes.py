"""The changes of an append, or of a replay of the log, to a partition's producers."""

import logging
from collections.abc import Sequence

from spindle.common.errors import ApiError, CorruptLog, CorruptRecords, ErrorCode
from spindle.common.ports import Bytes
from spindle.log.producers.append import CompletedTransaction, ProducerAppendInfo
from spindle.log.producers.entry import BatchMetadata
from spindle.log.producers.state import ProducerState
from spindle.log.producers.verification import TransactionContext
from spindle.log.segments.segment import Segment
from spindle.log.segments.segment_list import Segments
from spindle.protocol.records.batch import BatchHeader, check_crc
from spindle.protocol.records.control import read_end_transaction
from spindle.protocol.records.record import decode_bounded
from spindle.protocol.records.validation import AppendOrigin

logger = logging.getLogger(__name__)


def find_duplicate(
    producers: ProducerState, found: Sequence[tuple[int, BatchHeader]]
) -> tuple[BatchMetadata, BatchHeader] | None:
    """Return (earlier batch, this batch) for the first batch that is already in the log."""
    for _, header in found:
        if header.producer_id < 0:
            continue
        entry = producers.get(header.producer_id)
        earlier = entry.duplicate_of(header) if entry is not None else None
        if earlier is not None:
            return earlier, header
    return None


def producer_changes(
    producers: ProducerState,
    records: Bytes,
    placed: Sequence[tuple[int, BatchHeader]],
    origin: AppendOrigin,
    terms: TransactionContext,
    *,
    must_be_verified: bool,
) -> tuple[list[ProducerAppendInfo], list[CompletedTransaction]]:
    """Return the changes of the batches and the transactions that they end; apply nothing.

    Args:
        must_be_verified: transactional records need an open transaction or the verification of
            the terms (KIP-890).

    Raises:
        ApiError: a sequence, an epoch or the state of a transaction forbids the append.
    """
    changes: dict[int, ProducerAppendInfo] = {}
    completed: list[CompletedTransaction] = []
    for position, header in placed:
        producer_id = header.producer_id
        if producer_id < 0:
            continue
        change = changes.get(producer_id)
        if change is None:
            change = changes[producer_id] = producers.prepare(producer_id, origin)
        if not header.is_control:
            if must_be_verified and header.is_transactional:
                _check_verified(producers, header, terms)
            change.add_data(header, header.base_offset)
            continue
        control_records = decode_bounded(records, position, header)
        marker = read_end_transaction(control_records[0]) if control_records else None
        if marker is not None:
            transaction = change.add_marker(
                marker, header, header.base_offset, terms.transaction_version
            )
            if transaction is not None:
                completed.append(transaction)
    return list(changes.values()), completed


def _check_verified(
    producers: ProducerState, header: BatchHeader, terms: TransactionContext
) -> None:
    producer_id = header.producer_id
    if producers.has_open_transaction(producer_id, header.producer_epoch):
        return
    producers.check_epoch(producer_id, header.producer_epoch)
    if terms.verification is None or (
        producers.verification_of(producer_id) is not terms.verification
    ):
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")


def replay_producers(segments: Segments, producers: ProducerState, end_offset: int) -> None:
    """Bring the state from its `map_end_offset` to `end_offset` by reading the batches between.

    Batches after damage in a segment are skipped, up to the next segment. The state then has a note
    that it is not complete (`ProducerState.note_unread`).
    """
    start_offset = producers.map_end_offset
    if start_offset < end_offset:
        for segment in segments.from_offset(start_offset):
            if segment.base_offset >= end_offset:
                break  # it may have a torn end, which is not cut off yet
            _replay_segment(segments, segment, producers, start_offset, end_offset)
    producers.map_end_offset = end_offset


def _replay_segment(
    segments: Segments,
    segment: Segment,
    producers: ProducerState,
    start_offset: int,
    end_offset: int,
) -> None:
    limit = min(end_offset, segments.next_base(segment) or end_offset)
    next_offset = max(start_offset, segment.base_offset)
    reason = "a batch is not whole, or its offset does not ascend"
    position = segment.position_near(start_offset)
    has_begun = False
    try:
        for at, header, data in segment.scan(position):
            if header.next_offset > start_offset or has_begun:
                has_begun = True
                # The log may begin inside a batch.
                if not next_offset <= max(header.base_offset, start_offset) < limit:
                    break
                check_crc(data, 0, header)
                producers.replay(data, 0, header)
                next_offset = header.next_offset
            position = at + header.size_bytes
            if next_offset >= limit:
                return
        if position >= segment.size_bytes:
            return  # compaction may have removed the last batches before `limit`
    except (CorruptLog, CorruptRecords) as error:
        reason = str(error)
    logger.warning(
        "%s: the producers of offsets %d to %d are not known, and read_committed consumers do not "
        "read beyond %d until these records are deleted or the log is rebuilt from its leader: %s",
        segment.path,
        next_offset,
        limit - 1,
        next_offset,
        reason,
    )
    producers.note_unread(next_offset, limit)
