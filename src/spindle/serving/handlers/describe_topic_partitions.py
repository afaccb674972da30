"""DescribeTopicPartitions: topics with paging, ELR included (KIP-966)."""

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode
from spindle.common.ids import INTERNAL_TOPICS, NO_LEADER
from spindle.controller.topic_names import is_topic_name
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import may_use_topic, topic_operations
from spindle.serving.services import BrokerServices
from spindle.serving.topology import has_endpoint, offline_replicas

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Cursor = DescribeTopicPartitionsResponse.Cursor


def describe_topic_partitions(
    services: BrokerServices, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe topics in the order of their names, up to the limit.

    `next_cursor` names the partition with which the next page begins.
    """
    image = services.metadata.image
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
    asked = {t.name: None for t in request.topics} or image.topics.by_name
    if request.cursor is not None and (
        first_partition < 0 or (request.topics and first_name not in asked)
    ):
        return DescribeTopicPartitionsResponse(
            topics=[
                Topic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                for topic in request.topics
            ]
        )
    limit = services.config.integer("max.request.partition.size.limit")
    room = max(1, min(request.response_partition_limit, limit))
    response = DescribeTopicPartitionsResponse()
    denied = []
    for name in sorted(n for n in asked if n >= first_name):
        if not may_use_topic(services, context, Operation.DESCRIBE, name):
            if request.topics:
                denied.append(Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
            continue
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        answer = Topic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
        )
        start = first_partition if name == first_name else 0
        for index in sorted(i for i in topic.partitions if i >= start):
            if room == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=index)
                break
            room -= 1
            answer.partitions.append(
                _partition(image, context.listener, index, topic.partitions[index])
            )
        if answer.partitions or response.next_cursor is None:
            response.topics.append(answer)
        if response.next_cursor is not None:
            break
    for answer in response.topics:
        answer.topic_authorized_operations = topic_operations(services, context, answer.name or "")
    response.topics += denied
    return response


def _missing(name: str) -> Topic:
    """Return the result for a topic that does not exist."""
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    if is_topic_name(name):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Topic(error_code=code, name=name)


def _partition(
    image: MetadataImage, listener: str, index: int, partition: PartitionRegistration
) -> Topic.DescribeTopicPartitionsResponsePartition:
    """Describe a partition; one without a leader is no error here, unlike in Metadata."""
    has_leader = has_endpoint(image, partition.leader, listener)
    return Topic.DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener),
    )
