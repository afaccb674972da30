"""AlterDisks, one of Spindle's own APIs: add, bring back online and remove log directories."""

from collections.abc import Mapping

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.disks.alter_disks import DirectoryAction, DirectoryInUse, ReplicaState
from spindle.protocol.messages.alter_disks import AlterDisksRequest, AlterDisksResponse
from spindle.serving.context import RequestContext
from spindle.serving.permissions import check_cluster
from spindle.serving.services import BrokerServices

_Topic = AlterDisksResponse.TopicReplicas


async def alter_disks(
    services: BrokerServices, context: RequestContext, request: AlterDisksRequest
) -> AlterDisksResponse:
    """Change the directories of this broker; answer when the change is complete or refused."""
    try:
        check_cluster(services, context, Operation.ALTER)
        try:
            action = DirectoryAction(request.action)
        except ValueError:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"action {request.action} is unknown, 0 to 2 are known"
            ) from None
        accepted = [
            TopicPartition(topic.name, index)
            for topic in request.accepted_losses
            for index in topic.partitions
        ]
        done = await services.alter_disks(action, request.path, accepted)
    except DirectoryInUse as error:
        return AlterDisksResponse(
            error_code=error.code,
            error_message=error.message,
            path=error.path,
            topics=_topics(error.replicas),
        )
    except ApiError as error:
        return AlterDisksResponse(
            error_code=error.code, error_message=error.message, path=request.path
        )
    return AlterDisksResponse(
        path=done.path,
        directory_id=done.directory_id or ZERO_UUID,
        was_formatted=done.was_formatted,
        topics=_topics(done.replicas),
    )


def _topics(replicas: Mapping[TopicPartition, ReplicaState]) -> list[_Topic]:
    topics: dict[str, _Topic] = {}
    for where, state in replicas.items():
        topic = topics.setdefault(where.topic, _Topic(name=where.topic))
        topic.partitions.append(_Topic.ReplicaState(partition_index=where.partition, state=state))
    return list(topics.values())
