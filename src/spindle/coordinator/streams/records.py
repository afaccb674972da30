"""Records of streams groups in `__consumer_offsets` (KIP-1071).

Kafka's key types: 17 group epoch, 19 member, 20 epoch of the target assignment, 21 target of a
member, 22 present assignment of a member, 23 topology. Values have version 0.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from spindle.coordinator.streams.member import (
    StreamsMember,
    StreamsMemberState,
    TaskId,
    Tasks,
    TaskSet,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.other_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)
from spindle.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

_Current = StreamsGroupCurrentMemberAssignmentValue
_Target = StreamsGroupTargetAssignmentMemberValue
_Subtopology = StreamsGroupTopologyValue.Subtopology
_SentTopology = StreamsGroupHeartbeatRequest.Topology


class StreamsRecordKind(IntEnum):
    """The subject of a streams group's record, by the type in its key."""

    GROUP = 17
    MEMBER = 19
    TARGET_EPOCH = 20
    TARGET = 21
    CURRENT = 22
    TOPOLOGY = 23


STREAMS_VALUE_CLASSES: Final[Mapping[StreamsRecordKind, type[Message]]] = {
    StreamsRecordKind.GROUP: StreamsGroupMetadataValue,
    StreamsRecordKind.MEMBER: StreamsGroupMemberMetadataValue,
    StreamsRecordKind.TARGET_EPOCH: StreamsGroupTargetAssignmentMetadataValue,
    StreamsRecordKind.TARGET: StreamsGroupTargetAssignmentMemberValue,
    StreamsRecordKind.CURRENT: StreamsGroupCurrentMemberAssignmentValue,
    StreamsRecordKind.TOPOLOGY: StreamsGroupTopologyValue,
}

STREAMS_KINDS_WITH_ITEM: Final = (
    StreamsRecordKind.MEMBER,
    StreamsRecordKind.TARGET,
    StreamsRecordKind.CURRENT,
)
"""Kinds whose key names a member after the group."""


class StreamsGroupRecord(NamedTuple):
    """A record of a streams group; `item` is a member id or empty. None is a tombstone."""

    group_id: str
    kind: StreamsRecordKind
    item: str
    value: Message | None


class GroupEpoch(NamedTuple):
    """The epoch of a group, and the facts that it stands for.

    Attributes:
        topics_hash: the topics of the topology.
        validated_topology_epoch: the topology whose topics were all there; -1 for none.
        assignment_configs: the settings of the assignor.
    """

    epoch: int = 0
    topics_hash: int = 0
    validated_topology_epoch: int = -1
    assignment_configs: Mapping[str, str] = {}


def epoch_record(group_id: str, epoch: GroupEpoch) -> StreamsGroupRecord:
    """Return the record of the group's epoch."""
    value = StreamsGroupMetadataValue(
        epoch=epoch.epoch,
        metadata_hash=epoch.topics_hash,
        validated_topology_epoch=epoch.validated_topology_epoch,
        last_assignment_configs=[
            StreamsGroupMetadataValue.LastAssignmentConfig(key=key, value=text)
            for key, text in sorted(epoch.assignment_configs.items())
        ],
    )
    return StreamsGroupRecord(group_id, StreamsRecordKind.GROUP, "", value)


def group_epoch_of(value: StreamsGroupMetadataValue) -> GroupEpoch:
    """Return the epoch of a group from its record."""
    return GroupEpoch(
        value.epoch,
        value.metadata_hash,
        value.validated_topology_epoch,
        {config.key: config.value for config in value.last_assignment_configs or ()},
    )


def topology_record(group_id: str, topology: _SentTopology) -> StreamsGroupRecord:
    """Return the record of a topology as a member has sent it."""
    return StreamsGroupRecord(group_id, StreamsRecordKind.TOPOLOGY, "", stored_topology(topology))


def stored_topology(topology: _SentTopology) -> StreamsGroupTopologyValue:
    """Return a topology as its record holds it."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=sent.subtopology_id,
                source_topics=list(sent.source_topics),
                source_topic_regex=list(sent.source_topic_regex),
                state_changelog_topics=_topic_infos(sent.state_changelog_topics),
                repartition_sink_topics=list(sent.repartition_sink_topics),
                repartition_source_topics=_topic_infos(sent.repartition_source_topics),
                copartition_groups=[
                    _Subtopology.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in sent.copartition_groups
                ],
            )
            for sent in topology.subtopologies
        ],
    )


def _topic_infos(
    topics: Iterable[_SentTopology.Subtopology.TopicInfo],
) -> list[_Subtopology.TopicInfo]:
    return [
        _Subtopology.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                _Subtopology.TopicInfo.TopicConfig(key=config.key, value=config.value)
                for config in topic.topic_configs
            ],
        )
        for topic in topics
    ]


def member_record(group_id: str, member: StreamsMember) -> StreamsGroupRecord:
    """Return the record of a member, without its tasks."""
    endpoint = None
    if member.endpoint is not None:
        host, port = member.endpoint
        endpoint = StreamsGroupMemberMetadataValue.Endpoint(host=host, port=port)
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[
            StreamsGroupMemberMetadataValue.KeyValue(key=key, value=text)
            for key, text in sorted(member.client_tags.items())
        ],
    )
    return StreamsGroupRecord(group_id, StreamsRecordKind.MEMBER, member.member_id, value)


def current_record(group_id: str, member: StreamsMember) -> StreamsGroupRecord:
    """Return the record of a member's epoch and tasks."""

    def task_ids(tasks: Tasks, *, with_epochs: bool = False) -> list[_Current.TaskIds]:
        return [
            _Current.TaskIds(
                subtopology_id=subtopology_id,
                partitions=sorted(partitions),
                assignment_epochs=[
                    member.active_since.get(TaskId(subtopology_id, index), member.epoch)
                    for index in sorted(partitions)
                ]
                if with_epochs
                else None,
            )
            for subtopology_id, partitions in sorted(tasks.items())
        ]

    value = _Current(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=task_ids(member.assigned.active, with_epochs=True),
        standby_tasks=task_ids(member.assigned.standby),
        warmup_tasks=task_ids(member.assigned.warmup),
        active_tasks_pending_revocation=task_ids(member.revoking.active, with_epochs=True),
        standby_tasks_pending_revocation=task_ids(member.revoking.standby),
        warmup_tasks_pending_revocation=task_ids(member.revoking.warmup),
    )
    return StreamsGroupRecord(group_id, StreamsRecordKind.CURRENT, member.member_id, value)


def target_record(group_id: str, member_id: str, target: TaskSet) -> StreamsGroupRecord:
    """Return the record of a member's part of the target assignment."""

    def task_ids(tasks: Tasks) -> list[_Target.TaskIds]:
        return [
            _Target.TaskIds(subtopology_id=subtopology_id, partitions=sorted(partitions))
            for subtopology_id, partitions in sorted(tasks.items())
        ]

    value = _Target(
        active_tasks=task_ids(target.active),
        standby_tasks=task_ids(target.standby),
        warmup_tasks=task_ids(target.warmup),
    )
    return StreamsGroupRecord(group_id, StreamsRecordKind.TARGET, member_id, value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> StreamsGroupRecord:
    """Return the record that completes a target assignment."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return StreamsGroupRecord(group_id, StreamsRecordKind.TARGET_EPOCH, "", value)


def removal_records(group_id: str, member_id: str) -> list[StreamsGroupRecord]:
    """Return the tombstones of a member; its assignment goes before the member itself."""
    return [
        StreamsGroupRecord(group_id, kind, member_id, None)
        for kind in (StreamsRecordKind.CURRENT, StreamsRecordKind.TARGET, StreamsRecordKind.MEMBER)
    ]


def tasks_of(task_ids: Iterable[Any] | None) -> dict[str, frozenset[int]]:
    """Return tasks from a list of `TaskIds` of a record or a request."""
    return {
        tasks.subtopology_id: frozenset(tasks.partitions)
        for tasks in task_ids or ()
        if tasks.partitions
    }


def target_of(value: StreamsGroupTargetAssignmentMemberValue) -> TaskSet:
    """Return a member's target from its record."""
    return TaskSet(
        tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
    )


def member_fields(value: StreamsGroupMemberMetadataValue) -> dict[str, Any]:
    """Return the fields of a member from its record, without its tasks."""
    endpoint = value.user_endpoint
    return {
        "instance_id": value.instance_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "rebalance_timeout_ms": value.rebalance_timeout_ms,
        "topology_epoch": value.topology_epoch,
        "process_id": value.process_id,
        "endpoint": None if endpoint is None else (endpoint.host, endpoint.port),
        "client_tags": {tag.key: tag.value for tag in value.client_tags},
    }


def current_fields(value: StreamsGroupCurrentMemberAssignmentValue) -> dict[str, Any]:
    """Return the epoch and the tasks of a member from its record.

    An unknown state counts as STABLE: the member then gets its target in the next epoch.
    """
    known = {state.value for state in StreamsMemberState}
    since = {
        TaskId(tasks.subtopology_id, index): epoch
        for task_ids in (value.active_tasks, value.active_tasks_pending_revocation)
        for tasks in task_ids
        for index, epoch in zip(
            tasks.partitions,
            tasks.assignment_epochs or [value.member_epoch] * len(tasks.partitions),
            strict=False,
        )
    }
    return {
        "epoch": value.member_epoch,
        "previous_epoch": value.previous_member_epoch,
        "state": StreamsMemberState(value.state)
        if value.state in known
        else StreamsMemberState.STABLE,
        "assigned": TaskSet(
            tasks_of(value.active_tasks),
            tasks_of(value.standby_tasks),
            tasks_of(value.warmup_tasks),
        ),
        "revoking": TaskSet(
            tasks_of(value.active_tasks_pending_revocation),
            tasks_of(value.standby_tasks_pending_revocation),
            tasks_of(value.warmup_tasks_pending_revocation),
        ),
        "active_since": since,
    }
