"""StreamsGroupHeartbeat: joining, staying and leaving, and the target assignment (KIP-1071).

Every operation is exclusive: it decides on committed state, and its records are committed before
the next decision.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.coordinator_result import Client, GroupRequest, GroupResult, TimerKey
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.records import GroupRecord
from spindle.coordinator.streams.endpoints import endpoints_of
from spindle.coordinator.streams.group_update import GroupUpdate, topology_after
from spindle.coordinator.streams.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    StreamsMember,
    StreamsMemberState,
    Tasks,
    TaskSet,
)
from spindle.coordinator.streams.records import (
    current_record,
    member_record,
    removal_records,
    tasks_of,
)
from spindle.coordinator.streams.streams_group import StreamsGroup
from spindle.coordinator.streams.topology import (
    InternalTopic,
    StatusLine,
    StreamsStatus,
    configure,
)
from spindle.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

STREAMS_TIMERS: Final = frozenset({"streams_session", "streams_revocation", "streams_assignment"})
_NO_GROUP_TEXT: Final = "Group {} is not a streams group."
_TaskIds = StreamsGroupHeartbeatResponse.TaskIds
_Sent = Sequence[StreamsGroupHeartbeatRequest.TaskIds] | None


def check_streams_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise ApiError INVALID_REQUEST unless the fields of a heartbeat agree with each other.

    A changelog topic with a number of partitions has STREAMS_INVALID_TOPOLOGY.
    """
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch, topology = request.member_epoch, request.topology
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in zip(("Active", "Standby", "Warmup"), kinds, strict=True):
            if tasks:
                raise _invalid(f"{name}Tasks must be empty when (re-)joining.")
        if topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
        _check_topology(topology)
    elif epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if any(tasks is not None for tasks in kinds) and any(tasks is None for tasks in kinds):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOINING_EPOCH and topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_topology(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    for subtopology in topology.subtopologies:
        if subtopology.source_topic_regex:
            raise _invalid("Regular expressions for source topics are not supported yet.")
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it "
                    f"is set to {topic.partitions}.",
                )
        sources, repartition = subtopology.source_topics, subtopology.repartition_source_topics
        for group in subtopology.copartition_groups:
            for indexes, names in (
                (group.source_topics, sources),
                (group.repartition_source_topics, repartition),
            ):
                if any(not 0 <= index < len(names) for index in indexes):
                    raise ApiError(
                        ErrorCode.STREAMS_INVALID_TOPOLOGY,
                        f"A copartition group of subtopology {subtopology.subtopology_id} names a "
                        f"topic with index {max(indexes)}; there are {len(names)}.",
                    )


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


class StreamsGroups:
    """Decides on StreamsGroupHeartbeat and on the sessions of members of streams groups."""

    __slots__ = ("_groups",)

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups

    # ------------------------------------------------------------ members

    def heartbeat(
        self, request: GroupRequest[StreamsGroupHeartbeatRequest]
    ) -> StreamsGroupHeartbeatResponse:
        """Let a member join, stay or leave (exclusive).

        Raises:
            ApiError: the member is not known, fenced, or its group is full.
        """
        message, out = request.message, request.out
        if message.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
            return self._leave(message, out)
        group = self._group_of(message, out)
        config = self._groups.streams_config_of(group.group_id)
        owned = _owned(message)
        old, replaced = self._member_before(group, message, owned, config.max_size, out)
        member = _member_after(old, message, request.client)
        topology = topology_after(group, message.topology, out)
        members = {m: known for m, known in group.members.items() if m != replaced}
        update = GroupUpdate(
            self._groups, group, out, {**members, member.member_id: member}, topology
        )
        if replaced is not None:
            update.take_over(replaced, member.member_id)
        known = group.members.get(member.member_id)
        if member != known:
            out.records.append(member_record(group.group_id, member))
        is_changed = known is None or _without_client(member) != _without_client(known)
        update.check_tasks(owned)
        update.refresh(is_changed=is_changed and not _is_same_instance(old, member, replaced))
        moved = update.reconcile(member, owned)
        self._start_timers(group, moved, out)
        if message.shutdown_application:
            group.shutdown_by = member.member_id
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            task_offset_interval_ms=config.task_offset_interval_ms,
            acceptable_recovery_lag=config.acceptable_recovery_lag,
        )
        is_new = message.member_epoch == JOINING_EPOCH or moved.assigned != old.assigned
        if is_new:
            response.active_tasks = _task_ids(moved.assigned.active)
            response.standby_tasks = _task_ids(moved.assigned.standby)
            response.warmup_tasks = _task_ids(moved.assigned.warmup)
            group.endpoint_epoch += moved.endpoint is not None or old.endpoint is not None
        self._add_endpoints(group, message, response, {**update.members, moved.member_id: moved})
        lines = [*_stale(topology.epoch, member), *update.status]
        if group.shutdown_by is not None:
            lines.append(_shutdown(group.shutdown_by))
        response.status = [
            StreamsGroupHeartbeatResponse.Status(status_code=line.code, status_detail=line.detail)
            for line in lines
        ]
        return response

    def _group_of(self, message: StreamsGroupHeartbeatRequest, out: GroupResult) -> StreamsGroup:
        """Return the group; an empty classic one becomes a streams group."""
        group_id, groups = message.group_id, self._groups
        group = groups.streams.get(group_id)
        if group is not None:
            return group
        classic = groups.get(group_id)
        if group_id in groups.consumer or group_id in groups.share:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, _NO_GROUP_TEXT.format(group_id))
        if message.member_epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        if classic is not None:
            if classic.members or classic.pending_joins:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, _NO_GROUP_TEXT.format(group_id))
            if not classic.is_simple:
                out.records.append(GroupRecord(group_id, None))
        return StreamsGroup(group_id)

    def _member_before(
        self,
        group: StreamsGroup,
        message: StreamsGroupHeartbeatRequest,
        owned: TaskSet | None,
        max_size: int,
        out: GroupResult,
    ) -> tuple[StreamsMember, str | None]:
        """Return the member before this heartbeat, and the id of the static member it replaces."""
        received, member_id = message.member_epoch, message.member_id
        if received != JOINING_EPOCH:
            member = group.member(member_id, message.instance_id)
            _check_epoch(member, received, owned)
            return member, None
        static = group.static_member(message.instance_id)
        if static is not None and static.member_id != member_id:
            if static.epoch != LEAVING_STATIC_EPOCH:
                raise ApiError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {message.instance_id} cannot join "
                    f"the group because the instance id is owned by {static.member_id} member.",
                )
            out.records += removal_records(group.group_id, static.member_id)
            out.cancel_timer(TimerKey("streams_session", group.group_id, static.member_id))
            out.cancel_timer(TimerKey("streams_revocation", group.group_id, static.member_id))
            fresh = replace(
                static, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
            )
            return fresh, static.member_id
        if len(group.members) >= max_size and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {max_size} members.",
            )
        return group.members.get(member_id) or StreamsMember(member_id), None

    def _start_timers(self, group: StreamsGroup, member: StreamsMember, out: GroupResult) -> None:
        self._start_session(group, member.member_id, out)
        key = TimerKey("streams_revocation", group.group_id, member.member_id)
        before = group.members.get(member.member_id)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            if before is None or (before.state, before.epoch) != (member.state, member.epoch):
                out.start_timer(key, member.rebalance_timeout_ms)
        elif before is not None and before.state is StreamsMemberState.UNREVOKED_TASKS:
            out.cancel_timer(key)

    def _add_endpoints(
        self,
        group: StreamsGroup,
        message: StreamsGroupHeartbeatRequest,
        response: StreamsGroupHeartbeatResponse,
        members: Mapping[str, StreamsMember],
    ) -> None:
        if group.endpoint_epoch != message.endpoint_information_epoch:
            topics = self._groups.view.topics
            response.partitions_by_user_endpoint = endpoints_of(group, members.values(), topics)
        # A group that this request creates has no epoch of endpoints yet.
        is_known = group.group_id in self._groups.streams
        response.endpoint_information_epoch = group.endpoint_epoch if is_known else 0

    def _leave(
        self, message: StreamsGroupHeartbeatRequest, out: GroupResult
    ) -> StreamsGroupHeartbeatResponse:
        group = self._groups.streams.get(message.group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {message.group_id} not found.")
        member = group.member(message.member_id, message.instance_id)
        if message.member_epoch == LEAVING_STATIC_EPOCH:
            away = replace(member, epoch=LEAVING_STATIC_EPOCH)
            out.records.append(current_record(group.group_id, away))
        else:
            self._remove(group, member.member_id, out)
        return StreamsGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=message.member_epoch
        )

    def _remove(self, group: StreamsGroup, member_id: str, out: GroupResult) -> None:
        out.records += removal_records(group.group_id, member_id)
        left = {name: member for name, member in group.members.items() if name != member_id}
        GroupUpdate(self._groups, group, out, left, group.topology).begin_epoch()
        out.cancel_timer(TimerKey("streams_session", group.group_id, member_id))
        out.cancel_timer(TimerKey("streams_revocation", group.group_id, member_id))

    # ------------------------------------------------------------ time

    def on_timer(self, key: TimerKey, out: GroupResult) -> None:
        """Compute a target that is due, or remove a member.

        It was silent, or has not given up its tasks, for too long.
        """
        group = self._groups.streams.get(key.group_id)
        if key.kind == "streams_assignment":
            if group is not None and group.members and group.topology is not None:
                GroupUpdate(self._groups, group, out, group.members, group.topology).assign_if_due()
            return
        if group is None or key.member_id not in group.members:
            return
        member = group.members[key.member_id]
        if (
            key.kind == "streams_revocation"
            and member.state is not StreamsMemberState.UNREVOKED_TASKS
        ):
            return
        self._remove(group, key.member_id, out)
        # If the removal is not committed, the session timer tries again.
        self._start_session(group, key.member_id, out)

    def loaded(self, out: GroupResult) -> None:
        """Begin the sessions of all members."""
        for group in self._groups.streams.values():
            for member in group.members.values():
                self._start_session(group, member.member_id, out)
                if member.state is StreamsMemberState.UNREVOKED_TASKS:
                    key = TimerKey("streams_revocation", group.group_id, member.member_id)
                    out.start_timer(key, member.rebalance_timeout_ms)

    def _start_session(self, group: StreamsGroup, member_id: str, out: GroupResult) -> None:
        config = self._groups.streams_config_of(group.group_id)
        key = TimerKey("streams_session", group.group_id, member_id)
        out.start_timer(key, config.session_timeout_ms)

    # ------------------------------------------------------------ internal topics

    def missing_topics(self, group_id: str) -> Sequence[InternalTopic]:
        """Return the internal topics of a group that do not exist."""
        group = self._groups.streams.get(group_id)
        if group is None or group.topology is None:
            return ()
        return configure(group.topology, self._groups.view.topics).missing


def _check_epoch(member: StreamsMember, received: int, owned: TaskSet | None) -> None:
    """Raise ApiError FENCED_MEMBER_EPOCH unless the member is in this epoch.

    Its former epoch is accepted if it has no other tasks: the response may have been lost.
    """
    if received == member.epoch:
        return
    if (
        received < member.epoch
        and received == member.previous_epoch
        and owned is not None
        and owned.is_subset_of(member.assigned)
    ):
        return
    size = "greater" if received > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {size} member epoch ({received}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _owned(message: StreamsGroupHeartbeatRequest) -> TaskSet | None:
    if message.active_tasks is None:
        return None
    return TaskSet(
        tasks_of(message.active_tasks),
        tasks_of(message.standby_tasks),
        tasks_of(message.warmup_tasks),
    )


def _member_after(
    member: StreamsMember, message: StreamsGroupHeartbeatRequest, client: Client
) -> StreamsMember:
    """Return the member with the fields that the request sets; null means that nothing changed."""
    endpoint, tags, topology = message.user_endpoint, message.client_tags, message.topology
    timeout_ms = message.rebalance_timeout_ms
    kept = None if message.member_epoch == JOINING_EPOCH else member.endpoint
    return replace(
        member,
        instance_id=message.instance_id or member.instance_id,
        rack_id=message.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if topology is None else topology.epoch,
        client_id=client.client_id,
        client_host=client.client_host,
        process_id=message.process_id or member.process_id,
        client_tags=member.client_tags if tags is None else {tag.key: tag.value for tag in tags},
        endpoint=kept if endpoint is None else (endpoint.host, endpoint.port),
    )


def _without_client(member: StreamsMember) -> StreamsMember:
    return replace(member, client_id="", client_host="")


def _is_same_instance(old: StreamsMember, member: StreamsMember, replaced: str | None) -> bool:
    """Return True if a static member has returned as it was."""
    return replaced is not None and _without_client(old) == _without_client(member)


def _task_ids(tasks: Tasks) -> list[_TaskIds]:
    return [
        _TaskIds(subtopology_id=subtopology_id, partitions=sorted(partitions))
        for subtopology_id, partitions in sorted(tasks.items())
    ]


def _stale(topology_epoch: int, member: StreamsMember) -> Iterable[StatusLine]:
    if member.topology_epoch < topology_epoch:
        yield StatusLine(
            StreamsStatus.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
            f"epoch {topology_epoch}.",
        )


def _shutdown(member_id: str) -> StatusLine:
    return StatusLine(
        StreamsStatus.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for "
        "the entire application.",
    )
