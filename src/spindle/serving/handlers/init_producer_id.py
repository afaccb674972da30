"""InitProducerId for idempotent producers (KIP-98, KIP-360)."""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.refusal_log import quoted, warn_of_transactions
from spindle.serving.services import BrokerServices

_NO_ID: Final = -1


async def init_producer_id(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a new producer id with epoch 0; refuse transactional producers (LIMITATIONS)."""
    if request.transactional_id == "":
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        warn_of_transactions(
            services.refusals,
            context,
            f"InitProducerId with transactional.id {quoted(request.transactional_id)}",
        )
        return InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1
        )
    if (request.producer_id == _NO_ID) != (request.producer_epoch == _NO_ID):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        producer_id = await services.producer_ids.take()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
