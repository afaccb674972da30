"""DescribeTopicPartitions: topics with paging, ELR included (KIP-966)."""

from spindle.common.errors import ErrorCode
from spindle.common.ids import INTERNAL_TOPICS
from spindle.controller.topic_names import is_topic_name
from spindle.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from spindle.serving.authorized_operations import TOPIC_OPERATIONS
from spindle.serving.context import RequestContext
from spindle.serving.services import BrokerServices
from spindle.serving.topology import leader_error, offline_replicas

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Cursor = DescribeTopicPartitionsResponse.Cursor


def describe_topic_partitions(
    services: BrokerServices, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics in order of their names, up to the limit; `next_cursor` says where to go on."""
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
    for name in sorted(n for n in asked if n >= first_name):
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if is_topic_name(name)
                else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            response.topics.append(
                Topic(error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS)
            )
            continue
        answer = Topic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )
        start = first_partition if name == first_name else 0
        for index in sorted(i for i in topic.partitions if i >= start):
            if room == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=index)
                break
            room -= 1
            partition = topic.partitions[index]
            answer.partitions.append(
                Topic.DescribeTopicPartitionsResponsePartition(
                    error_code=leader_error(image, partition, context.listener, True),
                    partition_index=index,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=list(partition.replicas),
                    isr_nodes=list(partition.isr),
                    eligible_leader_replicas=list(partition.elr),
                    last_known_elr=list(partition.last_known_elr),
                    offline_replicas=offline_replicas(image, partition, context.listener),
                )
            )
        if answer.partitions or response.next_cursor is None:
            response.topics.append(answer)
        if response.next_cursor is not None:
            break
    return response
