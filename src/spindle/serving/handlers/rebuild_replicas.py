"""RebuildReplicas, one of Spindle's own APIs: copy replicas again from their leaders."""

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.rebuild_replicas import (
    RebuildReplicasRequest,
    RebuildReplicasResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import check_cluster
from spindle.serving.services import BrokerServices

_Topic = RebuildReplicasResponse.TopicResult


async def rebuild_replicas(
    services: BrokerServices, context: RequestContext, request: RebuildReplicasRequest
) -> RebuildReplicasResponse:
    """Begin or cancel rebuilds; the response does not wait for their end."""
    try:
        check_cluster(services, context, Operation.ALTER)
    except ApiError as error:
        return RebuildReplicasResponse(error_code=error.code, error_message=error.message)
    response = RebuildReplicasResponse()
    for topic in request.topics:
        results = _Topic(name=topic.name)
        for index in topic.partitions:
            partition_result = _Topic.PartitionResult(partition_index=index)
            where = TopicPartition(topic.name, index)
            try:
                if request.is_cancellation:
                    services.cancel_rebuild(where)
                else:
                    await services.begin_rebuild(where)
            except ApiError as error:
                partition_result.error_code = error.code
                partition_result.error_message = error.message
            results.partitions.append(partition_result)
        response.topics.append(results)
    return response
