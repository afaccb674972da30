"""Topics: list, describe with eligible leaders (KIP-966), create, extend, delete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spindle.client.admin.refusals import optional_error, raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import TopicView
from spindle.common.errors import ApiError
from spindle.common.uuids import Uuid
from spindle.protocol import versions
from spindle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from spindle.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

_DESCRIBE_TOPIC_PARTITIONS = DescribeTopicPartitionsRequest.API_KEY


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition. `leader` is -1 for none.

    The lists of eligible leaders are None if the broker does not report them.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions in order. `topic_id` is zero if brokers have no topic ids."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. None leaves the choice to the broker; `assignment` is per partition."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


def list_topics(client: WireClient) -> dict[str, TopicView]:
    """Return all topics by name, in order of the names."""
    return dict(sorted(client.metadata().topics.items()))


def describe_topics(
    client: WireClient, names: Sequence[str], *, page_size: int = 2000
) -> tuple[list[TopicDescription], dict[str, ApiError]]:
    """Return the topics in order of their names, and the refusals of the others.

    Args:
        page_size: The most partitions in one answer.
    """
    if not names:
        return [], {}
    served = client.retrying(client.versions).served(_DESCRIBE_TOPIC_PARTITIONS)
    if served is None:
        return _describe_from_metadata(client, names)
    descriptions: dict[str, TopicDescription] = {}
    refused: dict[str, ApiError] = {}
    cursor: DescribeTopicPartitionsRequest.Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=n) for n in sorted(names)],
            response_partition_limit=page_size,
            cursor=cursor,
        )
        answer = client.retrying(
            lambda request=request: client.ask(  # type: ignore[misc]
                request, DescribeTopicPartitionsResponse
            )
        )
        for topic in answer.topics:
            name = topic.name or ""
            error = optional_error(topic.error_code)
            if error is not None:
                refused[name] = error
            else:
                descriptions[name] = _joined(descriptions.get(name), topic)
        if answer.next_cursor is None:
            return [descriptions[name] for name in sorted(descriptions)], refused
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )


def _joined(
    known: TopicDescription | None,
    topic: DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic,
) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            p.partition_index,
            p.leader_id,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.eligible_leader_replicas or ()),
            tuple(p.last_known_elr or ()),
            tuple(p.offline_replicas),
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    )
    earlier = known.partitions if known is not None else ()
    return TopicDescription(
        topic.name or "", topic.topic_id, topic.is_internal, earlier + partitions
    )


def _describe_from_metadata(
    client: WireClient, names: Sequence[str]
) -> tuple[list[TopicDescription], dict[str, ApiError]]:
    view = client.metadata(sorted(names))
    descriptions = [
        TopicDescription(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            tuple(
                PartitionDescription(
                    p.partition, p.leader, p.replicas, p.isr, offline=p.offline_replicas
                )
                for p in topic.partitions.values()
            ),
        )
        for _, topic in sorted(view.topics.items())
    ]
    refused = {name: optional_error(code) for name, code in view.refused.items()}
    return descriptions, {name: error for name, error in refused.items() if error is not None}


def create_topic(client: WireClient, topic: NewTopic, *, validate_only: bool = False) -> None:
    """Create a topic.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    creatable = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            creatable(
                name=topic.name,
                num_partitions=-1 if topic.partitions is None else topic.partitions,
                replication_factor=(
                    -1 if topic.replication_factor is None else topic.replication_factor
                ),
                assignments=[
                    creatable.CreatableReplicaAssignment(
                        partition_index=partition, broker_ids=list(brokers)
                    )
                    for partition, brokers in topic.assignment.items()
                ],
                configs=[
                    creatable.CreatableTopicConfig(name=key, value=value)
                    for key, value in topic.configs.items()
                ],
            )
        ],
        timeout_ms=client.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    answer = client.retrying(
        lambda: client.ask(
            request, CreateTopicsResponse, first_version=versions.CREATE_TOPICS_DEFAULTS
        )
    )
    for result in answer.topics:
        raise_refusal(result.error_code, result.error_message)


def create_partitions(
    client: WireClient, counts: Mapping[str, int], new: Mapping[str, Sequence[Sequence[int]]]
) -> None:
    """Add partitions to topics, up to a number of partitions.

    Args:
        new: Replicas of the new partitions, for topics whose assignment the caller chooses.

    Raises:
        ApiError: the first topic that was refused.
        ClientError: no broker could be asked.
    """
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[
            topic(
                name=name,
                count=count,
                assignments=(
                    [
                        topic.CreatePartitionsAssignment(broker_ids=list(brokers))
                        for brokers in new[name]
                    ]
                    if name in new
                    else None
                ),
            )
            for name, count in counts.items()
        ],
        timeout_ms=client.settings.request_timeout_ms,
    )
    answer = client.retrying(lambda: client.ask(request, CreatePartitionsResponse))
    for result in answer.results:
        raise_refusal(result.error_code, result.error_message)


def delete_topics(client: WireClient, names: Sequence[str]) -> None:
    """Delete topics by name.

    Raises:
        ApiError: the first topic that was refused.
        ClientError: no broker could be asked.
    """
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=client.settings.request_timeout_ms,
    )
    answer = client.retrying(lambda: client.ask(request, DeleteTopicsResponse))
    for result in answer.responses:
        raise_refusal(result.error_code, result.error_message)
