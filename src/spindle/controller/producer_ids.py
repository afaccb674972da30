"""AllocateProducerIds: blocks of ids for idempotent producers (KIP-730)."""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.broker_heartbeat import check_broker_epoch
from spindle.controller.decision import Decision, OperationContext
from spindle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from spindle.protocol.messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_MAX_ID: Final = (1 << 63) - 1


def allocate_producer_ids(
    given: OperationContext, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """Give the broker the next block of 1,000 ids.

    Raises:
        ApiError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when all ids are used up.
    """
    check_broker_epoch(given.image, request.broker_id, request.broker_epoch)
    start = max(0, given.image.producer_ids.next_producer_id)
    if start > _MAX_ID - BLOCK_SIZE:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Exhausted all producer ids: the next block would start at {start}, "
            f"and ids end at {_MAX_ID}",
        )
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE)
    return Decision(response, [record])
