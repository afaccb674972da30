"""Reassignments, leader elections, moves between log directories (KIP-455, KIP-460, KIP-113)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from spindle.client.admin.refusals import optional_error, raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.protocol import versions
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from spindle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from spindle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


class ElectionType(IntEnum):
    """The kinds of leader election, by the numbers of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A running reassignment."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def list_reassignments(
    client: WireClient, partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the running reassignments, of these partitions or of all, in order.

    Raises:
        ApiError: the controller refused.
        ClientError: no broker could be asked.
    """
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                name=name, partition_indexes=indexes
            )
            for name, indexes in _by_topic(partitions).items()
        ]
    request = ListPartitionReassignmentsRequest(
        timeout_ms=client.settings.request_timeout_ms, topics=topics
    )
    answer = client.retrying(lambda: client.ask(request, ListPartitionReassignmentsResponse))
    raise_refusal(answer.error_code, answer.error_message)
    reassignments = {
        TopicPartition(topic.name, p.partition_index): Reassignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in answer.topics
        for p in topic.partitions
    }
    return dict(sorted(reassignments.items()))


def alter_reassignments(
    client: WireClient,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_change_replication_factor: bool = True,
) -> dict[TopicPartition, ApiError | None]:
    """Begin reassignments, or cancel them with None; return the refusal of each partition, or None.

    Args:
        may_change_replication_factor: if not, the controller refuses a partition that would get
            another number of replicas.

    Raises:
        ApiError: the controller refused all of it.
        ClientError: no broker could be asked, or none knows `may_change_replication_factor`.
    """
    topic_class = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics: dict[str, AlterPartitionReassignmentsRequest.ReassignableTopic] = {}
    for (name, partition), replicas in targets.items():
        topics.setdefault(name, topic_class(name=name)).partitions.append(
            topic_class.ReassignablePartition(
                partition_index=partition, replicas=None if replicas is None else list(replicas)
            )
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=client.settings.request_timeout_ms,
        allow_replication_factor_change=may_change_replication_factor,
        topics=list(topics.values()),
    )
    must_keep = not may_change_replication_factor
    first_version = versions.ALTER_PARTITION_REASSIGNMENTS_FACTOR if must_keep else 0
    answer = client.retrying(
        lambda: client.ask(
            request, AlterPartitionReassignmentsResponse, first_version=first_version
        )
    )
    raise_refusal(answer.error_code, answer.error_message)
    return {
        TopicPartition(topic.name, p.partition_index): optional_error(p.error_code, p.error_message)
        for topic in answer.responses
        for p in topic.partitions
    }


def elect_leaders(
    client: WireClient, kind: ElectionType, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, ApiError | None]:
    """Elect leaders of these partitions, or of all; return the refusal of each, or None.

    Raises:
        ApiError: the controller refused all of it.
        ClientError: no broker could be asked.
    """
    topics = None
    if partitions is not None:
        topics = [
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in _by_topic(partitions).items()
        ]
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=topics,
        timeout_ms=client.settings.request_timeout_ms,
    )
    answer = client.retrying(lambda: client.ask(request, ElectLeadersResponse))
    raise_refusal(answer.error_code)
    return {
        TopicPartition(topic.topic, p.partition_id): optional_error(p.error_code, p.error_message)
        for topic in answer.replica_election_results
        for p in topic.partition_result
    }


def move_replicas(
    client: WireClient, broker_id: int, directories: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ApiError | None]:
    """Move replicas of a broker to other log directories; return the refusal of each, or None.

    Raises:
        ApiError: there is no such broker now.
        ClientError: the broker could not be asked.
    """
    paths: dict[str, list[TopicPartition]] = {}
    for partition, path in directories.items():
        paths.setdefault(path, []).append(partition)
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    request = AlterReplicaLogDirsRequest(
        dirs=[
            directory(
                path=path,
                topics=[
                    directory.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in _by_topic(partitions).items()
                ],
            )
            for path, partitions in paths.items()
        ]
    )

    def attempt() -> AlterReplicaLogDirsResponse:
        broker = client.current_view(()).broker(str(broker_id))
        return client.ask(request, AlterReplicaLogDirsResponse, broker=broker)

    return {
        TopicPartition(topic.topic_name, p.partition_index): optional_error(p.error_code)
        for topic in client.retrying(attempt).results
        for p in topic.partitions
    }


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, partition in partitions:
        topics.setdefault(name, []).append(partition)
    return topics
