"""The APIs of the share coordinator, which brokers use among themselves (KIP-932)."""

from typing import Any, TypeVar, cast

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError
from spindle.coordinator.share.delivery import UNINITIALIZED_OFFSET, UNKNOWN_COUNT, StateBatch
from spindle.coordinator.share.state_records import ShareKey
from spindle.coordinator.share.state_shard import WrittenState
from spindle.protocol.message import Message
from spindle.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from spindle.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from spindle.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from spindle.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from spindle.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import check_cluster
from spindle.serving.services import BrokerServices

ResponseT = TypeVar("ResponseT", bound=Message)


async def initialize_share_group_state(
    services: BrokerServices, context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Begin or reset the states of share partitions."""

    async def one(key: ShareKey, asked: Any, result: Any) -> None:
        await services.share_coordinator.initialize(key, asked.state_epoch, asked.start_offset)

    return await _each(services, context, request, InitializeShareGroupStateResponse(), one)


async def read_share_group_state(
    services: BrokerServices, context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Return the states of share partitions to their leader."""
    result_class = ReadShareGroupStateResponse.ReadStateResult.PartitionResult

    async def one(key: ShareKey, asked: Any, result: Any) -> None:
        state = await services.share_coordinator.read(key, asked.leader_epoch)
        result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
        result.state_batches = [
            result_class.StateBatch(**batch._asdict()) for batch in state.batches
        ]

    return await _each(services, context, request, ReadShareGroupStateResponse(), one)


async def write_share_group_state(
    services: BrokerServices, context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Store changes of share partitions."""

    async def one(key: ShareKey, asked: Any, result: Any) -> None:
        batches = [
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
            for b in asked.state_batches
        ]
        written = WrittenState(
            asked.state_epoch,
            asked.leader_epoch,
            asked.start_offset,
            asked.delivery_complete_count,
            batches,
        )
        await services.share_coordinator.write(key, written)

    return await _each(services, context, request, WriteShareGroupStateResponse(), one)


async def delete_share_group_state(
    services: BrokerServices, context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Delete the states of share partitions."""

    async def one(key: ShareKey, asked: Any, result: Any) -> None:
        await services.share_coordinator.delete(key)

    return await _each(services, context, request, DeleteShareGroupStateResponse(), one)


async def read_share_group_state_summary(
    services: BrokerServices,
    context: RequestContext,
    request: ReadShareGroupStateSummaryRequest,
) -> ReadShareGroupStateSummaryResponse:
    """Return the start offsets of share partitions."""

    async def one(key: ShareKey, asked: Any, result: Any) -> None:
        state = await services.share_coordinator.summary(key)
        if state is None:
            result.start_offset = UNINITIALIZED_OFFSET
            result.delivery_complete_count = UNKNOWN_COUNT
            return
        result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
        result.start_offset = state.start_offset
        result.delivery_complete_count = state.delivery_complete_count

    return await _each(services, context, request, ReadShareGroupStateSummaryResponse(), one)


async def _each(
    services: BrokerServices, context: RequestContext, request: Any, response: ResponseT, one: Any
) -> ResponseT:
    """Run `one` for all partitions of a request; a refused one has its error in the result.

    The five APIs differ in the fields of a partition only. The partitions are independent of each
    other, so that their records can be appended together.
    """
    (results,) = [field for field in type(response).FIELDS if field.name == "results"]
    (partitions,) = [field for field in results.type.FIELDS if field.name == "partitions"]

    async def run(key: ShareKey, asked: Any, result: Any) -> None:
        try:
            check_cluster(services, context, Operation.CLUSTER_ACTION)
            await one(key, asked, result)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message

    running = []
    for topic in request.topics:
        done = results.type(topic_id=topic.topic_id)
        cast(Any, response).results.append(done)
        for asked in topic.partitions:
            result = partitions.type(partition=asked.partition)
            done.partitions.append(result)
            key = ShareKey(request.group_id, topic.topic_id, asked.partition)
            running.append(services.loop.create_task(run(key, asked, result)))
    for task in running:
        await task
    return response
