"""InitProducerId: producer ids for idempotent and transactional producers (KIP-98, KIP-360)."""

from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol import versions
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.records.batch import NO_PRODUCER_EPOCH
from spindle.serving.context import RequestContext
from spindle.serving.handlers.fenced_producers import fencing_code
from spindle.serving.permissions import (
    check_cluster,
    check_transactional_id,
    may_use_any_topic,
)
from spindle.serving.services import BrokerServices

_NO_ID: Final = -1


async def init_producer_id(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a new producer id with epoch 0, or the next epoch of a transactional id."""
    try:
        _check_sender(services, context, request.transactional_id)
        if (request.producer_id == _NO_ID) != (request.producer_epoch == _NO_ID):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            return await services.transactions.init_producer_id(request)
        producer_id = await services.producer_ids.take()
    except ApiError as error:
        code = fencing_code(context, error.code, versions.INIT_PRODUCER_ID_PRODUCER_FENCED)
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _check_sender(
    services: BrokerServices, context: RequestContext, transactional_id: str | None
) -> None:
    """Raise unless the sender may be such a producer; an idempotent one needs any topic."""
    if transactional_id is not None:
        check_transactional_id(services, context, Operation.WRITE, transactional_id)
    elif not may_use_any_topic(services, context, Operation.WRITE):
        check_cluster(services, context, Operation.IDEMPOTENT_WRITE)
