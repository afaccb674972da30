"""The changes of one request to a streams group: its epoch, its target and a member's next step."""

from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.config import StreamsGroupConfig
from spindle.coordinator.consumer.subscriptions import existing, hash_of_topics
from spindle.coordinator.coordinator_result import GroupResult, TimerKey
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.streams.assignor import AssignorMember, AssignorTopology, assign
from spindle.coordinator.streams.member import NO_TASKS, StreamsMember, TaskSet, ids_of
from spindle.coordinator.streams.reconciliation import TaskHolders, reconcile
from spindle.coordinator.streams.records import (
    GroupEpoch,
    current_record,
    epoch_record,
    stored_topology,
    target_epoch_record,
    target_record,
    topology_record,
)
from spindle.coordinator.streams.streams_group import FIRST_EPOCH, StreamsGroup
from spindle.coordinator.streams.topology import (
    ConfiguredTopology,
    StatusLine,
    StreamsStatus,
    configure,
    required_topics,
)
from spindle.protocol.messages.other_group_records import StreamsGroupTopologyValue
from spindle.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

_NOT_VALIDATED: Final = -1


def topology_after(
    group: StreamsGroup, sent: StreamsGroupHeartbeatRequest.Topology | None, out: GroupResult
) -> StreamsGroupTopologyValue:
    """Return the group's topology; the first member sets it.

    Raises:
        ApiError: INVALID_REQUEST if a member has another topology of the same or a newer epoch.
    """
    topology = group.topology
    if sent is None:
        if topology is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Group {group.group_id} has no topology yet."
            )
        return topology
    if topology is None:
        out.records.append(topology_record(group.group_id, sent))
        return stored_topology(sent)
    if topology.epoch <= sent.epoch and topology != stored_topology(sent):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return topology


class GroupUpdate:
    """A group with the records that this request has added so far applied to it.

    Attributes:
        members: with the one of this request.
        status: why the member has fewer tasks than it could have.
    """

    def __init__(
        self,
        groups: GroupTable,
        group: StreamsGroup,
        out: GroupResult,
        members: Mapping[str, StreamsMember],
        topology: StreamsGroupTopologyValue | None,
    ) -> None:
        self._group = group
        self._out = out
        self._topology = topology
        self._topics = groups.view.topics
        self._delays_ms = groups.streams_delays_ms
        self._config = groups.streams_config_of(group.group_id)
        self._targets = {m: t for m, t in group.targets.items() if m in members}
        self._stored = group.stored
        self._assignment_epoch = group.assignment_epoch
        self._configured: ConfiguredTopology | None = None
        self.members = members
        self.status: list[StatusLine] = []

    def take_over(self, replaced: str, member_id: str) -> None:
        """Give the target of a static member that was away to the one that replaces it."""
        target = self._group.targets.get(replaced)
        if target is not None:
            self._targets[member_id] = target
            self._out.records.append(target_record(self._group.group_id, member_id, target))

    def check_tasks(self, owned: TaskSet | None) -> None:
        """Raise ApiError INVALID_REQUEST if a member says that it has a task that cannot exist."""
        configured = self._configure()
        if owned is None or not configured.is_ready:
            return
        counts = configured.task_counts
        for tasks in (owned.active, owned.standby, owned.warmup):
            for task in ids_of(tasks):
                count = counts.get(task.subtopology_id)
                if count is None:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST,
                        f"Subtopology {task.subtopology_id} does not exist in the topology.",
                    )
                if not 0 <= task.partition < count:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {task.partition} for subtopology {task.subtopology_id} is invalid. "
                        f"Number of tasks for this subtopology: {count}",
                    )

    def refresh(self, *, is_changed: bool) -> None:
        """Begin the next epoch if something has changed; compute the target if it is due."""
        configured, stored, out = self._configure(), self._stored, self._out
        validated = configured.epoch if configured.is_ready else _NOT_VALIDATED
        after = GroupEpoch(
            stored.epoch, self._topics_hash(), validated, _assignment_configs(self._config)
        )
        if is_changed or after != stored:
            if stored.epoch == 0:
                delay_ms = self._config.initial_rebalance_delay_ms
                self._delays_ms[self._group.group_id] = out.now_ms + delay_ms
            self._begin(after)
        self.assign_if_due()
        if configured.problem is not None:
            self.status.append(configured.problem)

    def assign_if_due(self) -> None:
        """Compute the target of the group's epoch.

        The first one waits for more members, until a timer fires; a later one, until an interval
        has passed, for the next heartbeat.
        """
        config, now_ms = self._config, self._out.now_ms
        if self._stored.epoch <= self._assignment_epoch:
            return
        first_ms = self._delays_ms.get(self._group.group_id, 0)
        if now_ms < first_ms:
            self._out.set_timer(TimerKey("streams_assignment", self._group.group_id), first_ms)
            self._delay("initial rebalance delay")
        elif self._group.may_assign(config.assignment_interval_ms, now_ms):
            self._assign()
        else:
            self._delay("assignment interval")

    def begin_epoch(self) -> None:
        """Begin the next epoch after a member has gone, and assign its tasks if that is due."""
        self._begin(self._stored)
        if self._topology is not None:
            self.assign_if_due()

    def _begin(self, after: GroupEpoch) -> None:
        self._stored = after._replace(epoch=max(self._stored.epoch, FIRST_EPOCH) + 1)
        self._out.records.append(epoch_record(self._group.group_id, self._stored))

    def _delay(self, setting: str) -> None:
        self.status.append(
            StatusLine(
                StreamsStatus.ASSIGNMENT_DELAYED,
                f"Assignment delayed due to the configured {setting}.",
            )
        )

    def _topics_hash(self) -> int:
        assert self._topology is not None
        return hash_of_topics(existing(required_topics(self._topology), self._topics).values())

    def _configure(self) -> ConfiguredTopology:
        if self._configured is None:
            assert self._topology is not None
            self._configured = configure(self._topology, self._topics)
        return self._configured

    def _assign(self) -> None:
        group, out, topology = self._group, self._out, self._topology
        assert topology is not None
        self._delays_ms.pop(group.group_id, None)
        configured = self._configure()
        members = {
            member_id: AssignorMember(member.process_id, self._targets.get(member_id, NO_TASKS))
            for member_id, member in self.members.items()
        }
        stateful = frozenset(
            s.subtopology_id for s in topology.subtopologies if s.state_changelog_topics
        )
        tasks = configured.task_counts if configured.is_ready else {}
        targets = assign(
            members, AssignorTopology(tasks, stateful), self._config.num_standby_replicas
        )
        for member_id, target in targets.items():
            if self._targets.get(member_id) != target:
                out.records.append(target_record(group.group_id, member_id, target))
        self._targets = targets
        self._assignment_epoch = self._stored.epoch
        out.records.append(target_epoch_record(group.group_id, self._stored.epoch, out.now_ms))

    def reconcile(self, member: StreamsMember, owned: TaskSet | None) -> StreamsMember:
        """Return the member after its next step, and add the record of it."""
        moved = reconcile(
            member,
            self._targets.get(member.member_id, NO_TASKS),
            max(self._assignment_epoch, FIRST_EPOCH),
            owned,
            TaskHolders(self.members.values()),
        )
        known = self._group.members.get(member.member_id)
        if known is None or _progress(moved) != _progress(known):
            self._out.records.append(current_record(self._group.group_id, moved))
        return moved


def _progress(member: StreamsMember) -> tuple[object, ...]:
    """Return what the record of a member's tasks holds."""
    return (
        member.epoch,
        member.previous_epoch,
        member.state,
        member.assigned,
        member.revoking,
        member.active_since,
    )


def _assignment_configs(config: StreamsGroupConfig) -> dict[str, str]:
    """Return the settings whose change makes a new assignment, by Kafka's names."""
    return {"num.standby.replicas": str(config.num_standby_replicas)}
