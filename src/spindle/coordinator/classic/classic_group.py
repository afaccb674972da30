"""One group of the classic protocol: its members, generation and state, and its rules.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
    PreparingRebalance -> Empty                  (no member joined)
    CompletingRebalance, Stable -> PreparingRebalance
    every state -> Dead                          (another broker now leads the shard)

A group without a protocol type is *simple*: it only stores offsets that clients without membership
committed.

KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member ids).
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.coordinator.classic.member import ClassicMember, Protocols, protocol_names
from spindle.coordinator.coordinator_result import AssignmentStored, Token
from spindle.protocol.codec import decode
from spindle.protocol.messages.group_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class GroupState(Enum):
    """The states, by the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES: Final[dict[GroupState, tuple[GroupState, ...]]] = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
    GroupState.PREPARING_REBALANCE: (
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    ),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.DEAD: tuple(GroupState),
}
"""The states from which each state may be entered."""


class ClassicGroup:
    """A group and its rules. `ClassicRebalance` decides about time and sets the timers.

    Invariants: 1. `awaiting_join_count` is the number of members whose join is parked.
    2. `supported_protocols` counts, per protocol, the members that speak it.
    3. `static_members` maps the instance ids of members to their member ids.
    4. A group with members has a leader, and the leader is a member.
    5. An Empty group has no members. 6. No pending member id is a member.
    7. Only in CompletingRebalance is a sync parked or an assignment being stored.
    """

    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "initial_delay",
        "is_rebalance_due",
        "is_stored",
        "leader_id",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "storing",
        "subscribed_topics",
        "supported_protocols",
    )

    def __init__(self, group_id: str, now_ms: int | None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms
        """When the state was entered; None if the group's record does not contain this time."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, None] = {}
        """Pending members: ids that the coordinator gave out and that have not joined yet."""
        self.pending_syncs: dict[str, None] = {}
        """Members that have not yet sent SyncGroup in this generation."""
        self.awaiting_join_count = 0
        self.supported_protocols: dict[str, int] = {}
        self.subscribed_topics: frozenset[str] | None = None
        """Topics that the members subscribe to; None if the coordinator cannot know them."""
        self.storing: AssignmentStored | None = None
        """The assignment of this generation, while its record is being appended."""
        self.new_member_added = False
        self.initial_delay: tuple[int, int] | None = None
        """(ms of the running step, ms left after it) of the initial delay (KIP-134), or None."""
        self.is_stored = False
        """True once a record of the group is committed."""
        self.is_rebalance_due = False
        """True if the group was loaded from a record that names no leader: see `group_record`."""

    @property
    def is_simple(self) -> bool:
        """True if no member ever joined, so that the group has nothing but offsets."""
        return (
            self.protocol_type is None and self.state is GroupState.EMPTY and not self.pending_joins
        )

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    @property
    def has_all_members_joined(self) -> bool:
        """True if every member's join is parked and no pending member is missing."""
        return len(self.members) == self.awaiting_join_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members, at least 0."""
        return max([0, *[m.rebalance_timeout_ms for m in self.members.values()]])

    def takes_assignment_of(self, member_id: str) -> bool:
        """Return True for the leader while no assignment of this generation is being stored."""
        return self.leader_id == member_id and self.storing is None

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter a state from one of its `PREVIOUS_STATES`."""
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms
        self.storing = None

    # ------------------------------------------------------------ members

    def add(self, member: ClassicMember, join: Token | None = None) -> None:
        """Add a member; its join stays parked under `join`."""
        instance_id = member.group_instance_id
        if instance_id is not None:
            assert instance_id not in self.static_members, instance_id
            self.static_members[instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        self.park_join(member, join)
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member; if it was the leader, another member becomes leader.

        Answer the member's parked requests first (`ClassicRebalance.remove_member`).
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, -1)
            self.park_join(member, None)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def update_member(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        join: Token | None,
    ) -> None:
        """Update a member's protocols and timeouts from its new JoinGroup, and park that join."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.park_join(member, join)

    def replace_static_member(self, instance_id: str, member_id: str) -> ClassicMember:
        """Give the member of an instance id a new member id.

        Answer the parked requests of the old id first.
        """
        old_member_id = self.static_members[instance_id]
        old = self.members.pop(old_member_id)
        self.park_join(old, None)
        new = ClassicMember(
            member_id=member_id,
            group_instance_id=instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[member_id] = new
        if self.leader_id == old_member_id:
            self.leader_id = member_id
        self.static_members[instance_id] = member_id
        if old_member_id in self.pending_syncs:
            del self.pending_syncs[old_member_id]
        return new

    def park_join(self, member: ClassicMember, join: Token | None) -> None:
        """Set or clear the parked join of a member."""
        self.awaiting_join_count += (join is not None) - (member.awaiting_join is not None)
        member.awaiting_join = join

    def elect_joined_leader(self) -> bool:
        """Choose a leader among the members whose join is parked; return False if there is none.

        The present leader stays if its join is parked.
        """
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # ------------------------------------------------------------ protocols

    def supports(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Return True if a member with these protocols can join the present members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self.supported_protocols.get(name, 0) == len(self.members)
            for name in protocol_names(protocols)
        )

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all members speak.

        If two protocols have the same number of votes, the one that got the first vote wins.
        """
        count = len(self.members)
        candidates = [name for name, n in self.supported_protocols.items() if n == count]
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation: CompletingRebalance if there are members, otherwise Empty."""
        self.generation_id += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now_ms)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics in the members' subscriptions, or None if they cannot be known."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: list[str] = []
        for member in self.members.values():
            try:
                # Version 0 is a prefix of every version of the subscription.
                metadata = member.metadata(self.protocol_name)
                topics += decode(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics
            except ProtocolViolation:
                return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic, or if subscriptions are not known."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    # ------------------------------------------------------------ checks

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise ApiError unless the member belongs to the group.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another member has the instance id.
        """
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_id != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Raise ApiError unless this caller may commit offsets now.

        Transactional commits of old clients name no member, and no transactional commit depends on
        the group's state (KIP-447).
        """
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return
        if generation_id >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation_id != self.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional:
            # A client without membership may commit only while the group has no members.
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_delete(self) -> None:
        """Raise ApiError if the group's state allows no deletion of offsets of any topic."""
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {self.group_id} is dead")
        if self.state is not GroupState.EMPTY and not self.uses_consumer_protocol:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        """Raise ApiError unless the group is Empty."""
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {self.group_id} is dead")
        if self.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check(self) -> None:
        """Assert the invariants (tests and the simulator)."""
        members = self.members.values()
        parked = [m for m in members if m.awaiting_join is not None]
        assert self.awaiting_join_count == len(parked)
        counts: dict[str, int] = {}
        for member in members:
            for name in protocol_names(member.protocols):
                counts[name] = counts.get(name, 0) + 1
        assert counts == {n: c for n, c in self.supported_protocols.items() if c}
        static = {m.group_instance_id: m.member_id for m in members if m.is_static}
        assert static == self.static_members
        assert (self.leader_id in self.members) if self.members else self.leader_id is None
        assert self.state is not GroupState.EMPTY or not self.members
        if self.state is not GroupState.COMPLETING_REBALANCE:
            assert all(m.awaiting_sync is None for m in members)
            assert self.storing is None
        assert all(member_id not in self.members for member_id in self.pending_joins)
        assert all(member_id in self.members for member_id in self.pending_syncs)

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        for name in protocol_names(protocols):
            self.supported_protocols[name] = self.supported_protocols.get(name, 0) + change
