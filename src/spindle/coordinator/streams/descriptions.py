"""The answers of StreamsGroupDescribe and ListGroups about streams groups."""

from collections.abc import Iterable
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.streams.assignor import STICKY
from spindle.coordinator.streams.member import StreamsMember, Tasks, TaskSet
from spindle.coordinator.streams.streams_group import StreamsGroup
from spindle.coordinator.streams.topology import TopicInfo, configure
from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.list_groups import ListGroupsResponse
from spindle.protocol.messages.streams_group_describe import StreamsGroupDescribeResponse

STREAMS_TYPE: Final = "streams"
_PROTOCOL_TYPE: Final = "streams"

DescribedStreamsGroup = StreamsGroupDescribeResponse.DescribedGroup
_Topology = DescribedStreamsGroup.Topology
_Subtopology = _Topology.Subtopology
_Member = DescribedStreamsGroup.Member


def describe_streams_group(groups: GroupTable, group_id: str) -> DescribedStreamsGroup:
    """Describe a group with its members; one of another type has GROUP_ID_NOT_FOUND."""
    group = groups.streams.get(group_id)
    if group is None:
        is_other = (
            groups.get(group_id) is not None
            or group_id in groups.consumer
            or group_id in groups.share
        )
        reason = "is not a streams group" if is_other else "not found"
        return streams_description_error(
            group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}."
        )
    return DescribedStreamsGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_described_topology(group, groups.view.topics),
        members=[_described_member(group, member) for member in group.members.values()],
        assignor_name=STICKY,
    )


def streams_description_error(
    group_id: str, code: ErrorCode, reason: str | None = None
) -> DescribedStreamsGroup:
    """Return the description of a group that could not be looked up."""
    return DescribedStreamsGroup(group_id=group_id, error_code=code, error_message=reason)


def listed_streams_group(group: StreamsGroup) -> ListGroupsResponse.ListedGroup:
    """Return the line of a group in ListGroups."""
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=_PROTOCOL_TYPE,
        group_state=group.state.value,
        group_type=STREAMS_TYPE,
    )


def _described_topology(group: StreamsGroup, topics: TopicsImage) -> _Topology | None:
    topology = group.topology
    if topology is None:
        return None
    counts = configure(topology, topics).partition_counts

    def infos(topics: Iterable[TopicInfo]) -> list[_Subtopology.TopicInfo]:
        return [
            _Subtopology.TopicInfo(
                name=topic.name,
                partitions=counts.get(topic.name, topic.partitions),
                replication_factor=topic.replication_factor,
                topic_configs=[
                    _Subtopology.TopicInfo.KeyValue(key=config.key, value=config.value)
                    for config in topic.topic_configs
                ],
            )
            for topic in sorted(topics, key=lambda topic: topic.name)
        ]

    return _Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=stored.subtopology_id,
                source_topics=sorted(stored.source_topics),
                repartition_sink_topics=sorted(stored.repartition_sink_topics),
                state_changelog_topics=infos(stored.state_changelog_topics),
                repartition_source_topics=infos(stored.repartition_source_topics),
            )
            for stored in sorted(topology.subtopologies, key=lambda s: s.subtopology_id)
        ],
    )


def _described_member(group: StreamsGroup, member: StreamsMember) -> _Member:
    endpoint = None
    if member.endpoint is not None:
        endpoint = _Member.Endpoint(host=member.endpoint[0], port=member.endpoint[1])
    return _Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[
            _Member.KeyValue(key=key, value=value)
            for key, value in sorted(member.client_tags.items())
        ],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(group.targets.get(member.member_id, TaskSet())),
    )


def _assignment(tasks: TaskSet) -> _Member.Assignment:
    def ids(kind: Tasks) -> list[_Member.Assignment.TaskIds]:
        return [
            _Member.Assignment.TaskIds(subtopology_id=s, partitions=sorted(partitions))
            for s, partitions in sorted(kind.items())
        ]

    return _Member.Assignment(
        active_tasks=ids(tasks.active),
        standby_tasks=ids(tasks.standby),
        warmup_tasks=ids(tasks.warmup),
    )
