"""Consumer groups: list, describe, their committed offsets, delete.

Groups of the classic protocol and of the new protocol (KIP-848) are described by different
requests: the newer one is sent first if the broker serves it, as by Kafka's clients.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from spindle.client.admin.coordinators import coordinated
from spindle.client.admin.refusals import optional_error, raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.protocol import versions
from spindle.protocol.codec import decode
from spindle.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from spindle.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from spindle.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from spindle.protocol.messages.group_protocol import ConsumerProtocolAssignment
from spindle.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from spindle.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_CONSUMER_MEMBER: Final = 1
_LAST_VERSION_BY_NAME: Final = versions.OFFSET_COMMIT_TOPIC_IDS - 1
CONSUMER_PROTOCOLS: Final = ("", "consumer")
_NOT_OF_THIS_KIND: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as brokers list it; state and type are empty if the broker does not report them."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member. `epoch` and `target` are None in a classic group.

    `uses_consumer_protocol` is None in a classic group, and if the broker does not report it.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    uses_consumer_protocol: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. `epoch` and `target_epoch` are None in a classic group."""

    group_id: str
    group_type: str
    state: str
    assignor: str
    coordinator: BrokerAddress
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    target_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset. `leader_epoch` is -1 if the committer did not know it."""

    offset: int
    leader_epoch: int
    metadata: str


def list_groups(
    client: WireClient, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """Return the consumer groups of all brokers, in order of their ids.

    Args:
        states, types: Return only groups with one of these; an empty sequence means all groups.

    Raises:
        ApiError: a broker refused.
        ClientError: a broker could not be asked, or is too old for the filters.
    """
    all_groups = list_all_groups(client, states=states, types=types)
    return [group for group in all_groups if group.protocol_type in CONSUMER_PROTOCOLS]


def list_all_groups(
    client: WireClient, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """Return the groups of every protocol of all brokers, in order of their ids.

    Args:
        states, types: as in `list_groups`.

    Raises:
        ApiError: a broker refused.
        ClientError: a broker could not be asked, or is too old for the filters.
    """
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    first_version = 5 if types else 4 if states else 0

    def attempt() -> list[GroupListing]:
        listed = []
        for _, broker in sorted(client.current_view(()).brokers.items()):
            answer = client.ask(
                request, ListGroupsResponse, broker=broker, first_version=first_version
            )
            raise_refusal(answer.error_code)
            listed += [
                GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
                for g in answer.groups
            ]
        return listed

    return sorted(client.retrying(attempt), key=lambda group: group.group_id)


def describe_group(client: WireClient, group_id: str) -> GroupDescription:
    """Return a consumer group of either protocol.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, or the coordinator refused.
        ClientError: no broker could be asked.
    """

    def ask(coordinator: BrokerAddress) -> GroupDescription:
        served = client.versions(coordinator).served(ConsumerGroupDescribeRequest.API_KEY)
        if served is not None:
            answer = client.ask(
                ConsumerGroupDescribeRequest(group_ids=[group_id]),
                ConsumerGroupDescribeResponse,
                broker=coordinator,
            ).groups[0]
            error = optional_error(answer.error_code, answer.error_message)
            if error is None:
                return _new_protocol(answer, coordinator)
            if error.code not in _NOT_OF_THIS_KIND:
                raise error
        described = client.ask(
            DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse, broker=coordinator
        ).groups[0]
        raise_refusal(described.error_code, described.error_message)
        return _classic_protocol(described, coordinator)

    return coordinated(client, group_id, ask, if_none_exist=_not_found(group_id))


def _not_found(group_id: str) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    return refuse


def _new_protocol(
    group: ConsumerGroupDescribeResponse.DescribedGroup, coordinator: BrokerAddress
) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        "Consumer",
        group.group_state,
        group.assignor_name,
        coordinator,
        tuple(
            MemberDescription(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                _assigned(m.assignment.topic_partitions),
                m.member_epoch,
                _assigned(m.target_assignment.topic_partitions),
                None if m.member_type < 0 else m.member_type == _CONSUMER_MEMBER,
            )
            for m in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _assigned(
    topics: Iterable[
        ConsumerGroupDescribeResponse.DescribedGroup.Member.Assignment.TopicPartitions
    ],
) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(t.topic_name, p) for t in topics for p in t.partitions)


def _classic_protocol(
    group: DescribeGroupsResponse.DescribedGroup, coordinator: BrokerAddress
) -> GroupDescription:
    if group.protocol_type not in CONSUMER_PROTOCOLS:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} has the protocol {group.protocol_type!r}, "
            "it is not a consumer group",
        )
    return GroupDescription(
        group.group_id,
        "Classic",
        group.group_state,
        group.protocol_data,
        coordinator,
        tuple(
            MemberDescription(
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                read_assignment(m.member_assignment),
            )
            for m in group.members
        ),
    )


def read_assignment(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """Return the partitions in a classic member's assignment; none if it has no assignment.

    Raises:
        ProtocolViolation: the bytes are not an assignment of the consumer protocol.
    """
    if not len(data):
        return ()
    if len(data) < 2:
        raise ProtocolViolation("the assignment of a member has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    # Later versions only append fields, so the fields of this version are read from them, too.
    known = min(version, ConsumerProtocolAssignment.LAST_VERSION)
    assignment, _ = decode(ConsumerProtocolAssignment, known, data, 2)
    return tuple(
        TopicPartition(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions
    )


def committed_offsets(client: WireClient, group_id: str) -> dict[TopicPartition, GroupOffset]:
    """Return all committed offsets of a group, in order of topic and partition.

    Raises:
        ApiError: the coordinator refused, or refused a partition.
        ClientError: no broker could be asked.
    """
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)]
    )

    def ask(coordinator: BrokerAddress) -> dict[TopicPartition, GroupOffset]:
        group = client.ask(
            request,
            OffsetFetchResponse,
            broker=coordinator,
            first_version=versions.OFFSET_FETCH_BATCHED,
            last_version=_LAST_VERSION_BY_NAME,
        ).groups[0]
        raise_refusal(group.error_code)
        offsets = {}
        for topic in group.topics:
            for partition in topic.partitions:
                raise_refusal(partition.error_code)
                offsets[TopicPartition(topic.name, partition.partition_index)] = GroupOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata or "",
                )
        return dict(sorted(offsets.items()))

    return coordinated(client, group_id, ask, if_none_exist=dict)


def commit_offsets(
    client: WireClient,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
) -> None:
    """Commit offsets of a group, as a member or while the group has no members.

    Raises:
        ApiError: the coordinator refused a partition; others may have been committed.
        ClientError: no broker could be asked.
    """
    topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequest.OffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            topic.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata="",
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=list(topics.values()),
    )

    def ask(coordinator: BrokerAddress) -> None:
        answer = client.ask(
            request, OffsetCommitResponse, broker=coordinator, last_version=_LAST_VERSION_BY_NAME
        )
        for topic in answer.topics:
            for partition in topic.partitions:
                raise_refusal(partition.error_code)

    coordinated(client, group_id, ask)


def delete_offsets(
    client: WireClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ApiError | None]:
    """Delete committed offsets of a group; return the refusal of each partition, or None.

    Raises:
        ApiError: the coordinator refused the whole request.
        ClientError: no broker could be asked.
    """
    topics: dict[str, OffsetDeleteRequest.OffsetDeleteRequestTopic] = {}
    for name, partition in partitions:
        topic = topics.setdefault(name, OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name))
        topic.partitions.append(topic.OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))

    def ask(coordinator: BrokerAddress) -> dict[TopicPartition, ApiError | None]:
        answer = client.ask(request, OffsetDeleteResponse, broker=coordinator)
        raise_refusal(answer.error_code)
        return {
            TopicPartition(topic.name, partition.partition_index): optional_error(
                partition.error_code
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    return coordinated(client, group_id, ask, if_none_exist=_not_found(group_id))


def delete_group(client: WireClient, group_id: str) -> None:
    """Delete a group and its offsets.

    Raises:
        ApiError: the coordinator refused.
        ClientError: no broker could be asked.
    """

    def ask(coordinator: BrokerAddress) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        for result in client.ask(request, DeleteGroupsResponse, broker=coordinator).results:
            raise_refusal(result.error_code)

    coordinated(client, group_id, ask, if_none_exist=_not_found(group_id))
