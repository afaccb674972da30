"""RebuildReplicas: replicas of a broker are copied again from their leaders."""

from collections.abc import Iterable, Mapping

from spindle.client.admin.refusals import optional_error
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.rebuild_replicas import (
    RebuildReplicasRequest,
    RebuildReplicasResponse,
)


def rebuild_replicas(
    client: WireClient,
    broker_id: int,
    replicas: Iterable[TopicPartition],
    *,
    is_cancellation: bool = False,
) -> Mapping[TopicPartition, ApiError | None]:
    """Begin to rebuild replicas of a broker, or cancel that; return the refusals.

    Raises:
        ApiError: the broker refused all; there is no such broker.
        ClientError: the broker could not be asked, or is not a Spindle broker.
    """
    broker = client.metadata(()).broker(str(broker_id))
    topics: dict[str, RebuildReplicasRequest.Topic] = {}
    for name, index in replicas:
        topic = topics.setdefault(name, RebuildReplicasRequest.Topic(name=name))
        topic.partitions.append(index)
    request = RebuildReplicasRequest(is_cancellation=is_cancellation, topics=list(topics.values()))
    answer = client.ask_spindle(broker, request, RebuildReplicasResponse)
    error = optional_error(answer.error_code, answer.error_message)
    if error is not None:
        raise error
    return {
        TopicPartition(topic.name, partition.partition_index): optional_error(
            partition.error_code, partition.error_message
        )
        for topic in answer.topics
        for partition in topic.partitions
    }
