"""Random operations of members, tools and the clock: invariants hold, and the log suffices.

`Scenario` checks the invariants of the groups after every operation. At the end, a second shard
that replays the log must have every offset and every stored generation.
"""

from dataclasses import replace
from typing import Any

from group_scenario import DELAY_MS, GROUP, REBALANCE_MS, SESSION_MS, Scenario, subscription
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic.classic_group import GroupState
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.coordinator.coordinator_result import TimerKey

PROTOCOLS = [
    (("range", subscription("t")),),
    (("range", subscription("t")), ("sticky", subscription("u"))),
    (("sticky", b"?"), ("range", subscription("t", "u"))),
]
FAILURES = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
]
CONFIG = replace(GroupCoordinatorConfig(), max_size=4, offsets_retention_ms=700_000)

members = st.integers(0, 5)
instances = st.sampled_from([None, "a", "b"])


class Groups(RuleBasedStateMachine):
    """Random operations on one group."""

    def __init__(self) -> None:
        super().__init__()
        self.s = Scenario(CONFIG)
        self.generation = 0

    @initialize(count=st.integers(0, 3))
    def group_is_stable(self, count: int) -> None:
        if count:
            self.s.stable_group(count)

    def member(self, index: int) -> str:
        """Return the id of a present member, or an unknown id."""
        group = self.s.shard.groups.get(GROUP)
        known = [] if group is None else [*group.members, *group.pending_joins]
        return known[index] if index < len(known) else "app-gone"

    def current_generation(self) -> int:
        group = self.s.shard.groups.get(GROUP)
        return 0 if group is None else group.generation_id

    @rule(
        index=st.none() | members,
        instance=instances,
        protocols=st.sampled_from(PROTOCOLS),
        version=st.sampled_from([3, 8, 9]),
        rebalance_ms=st.sampled_from([-(2**31), 0, 1_000, REBALANCE_MS]),
    )
    def join(self, index: int | None, instance: str | None, **arguments: Any) -> None:
        member_id = "" if index is None else self.member(index)
        self.s.ask_join(member_id, instance_id=instance, **arguments)

    @rule(protocols=st.sampled_from(PROTOCOLS))
    def new_member_joins(self, protocols: Any) -> None:
        first = self.s.joined(self.s.ask_join(protocols=protocols))
        if first.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.s.ask_join(first.member_id, protocols=protocols)

    @rule()
    def rebalance_ends_well(self) -> None:
        self.s.commit()
        self.everybody_joins()
        self.s.advance(DELAY_MS)
        self.leader_syncs()

    @rule()
    def everybody_joins(self) -> None:
        group = self.s.shard.groups.get(GROUP)
        if group is None:
            return
        for member in list(group.members.values()):
            if member.member_id in group.members and member.awaiting_join is None:
                self.s.ask_join(
                    member.member_id,
                    instance_id=member.group_instance_id,
                    protocols=member.protocols,
                )

    @rule(index=members, off=st.sampled_from([0, 0, 0, 1]), share=st.binary(max_size=2))
    def sync(self, index: int, off: int, share: bytes) -> None:
        group = self.s.shard.groups.get(GROUP)
        given = {} if group is None else {m: share + m.encode() for m in group.members}
        self.s.ask_sync(self.member(index), self.current_generation() - off, given)

    @rule()
    def leader_syncs(self) -> None:
        group = self.s.shard.groups.get(GROUP)
        if group is not None and group.leader_id is not None:
            given = {m: m.encode() for m in group.members}
            self.s.ask_sync(group.leader_id, group.generation_id, given)

    @rule()
    def followers_sync(self) -> None:
        self.s.commit()
        self.everybody_joins()
        self.s.advance(DELAY_MS)
        group = self.s.shard.groups.get(GROUP)
        if group is not None:
            for member_id in [m for m in group.members if m != group.leader_id]:
                self.s.ask_sync(member_id, group.generation_id)

    @rule(index=members, instance=instances)
    def heartbeat(self, index: int, instance: str | None) -> None:
        self.s.heartbeat(self.member(index), self.current_generation(), instance_id=instance)

    @rule(index=members)
    def leave(self, index: int) -> None:
        if self.s.shard.groups.get(GROUP) is not None:
            self.s.ask_leave(self.member(index))

    @rule(instance=instances)
    def administrator_removes_an_instance(self, instance: str | None) -> None:
        if self.s.shard.groups.get(GROUP) is not None:
            self.s.ask_leave(("", instance))

    @rule(index=st.none() | members, partition=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, index: int | None, partition: int, offset: int) -> None:
        offsets = {("t", partition): offset}
        if self.s.held is not None:
            return
        if index is None:
            self.s.commit_offsets(offsets)
        else:
            self.s.commit_offsets(
                offsets, member_id=self.member(index), generation=self.current_generation()
            )

    @rule(partition=st.integers(0, 2))
    def delete_offset(self, partition: int) -> None:
        if self.s.held is None:
            self.s.delete_offsets(("t", partition))

    @rule(chance=st.integers(0, 4))
    def delete_group(self, chance: int) -> None:
        if self.s.held is None and chance == 4:
            self.s.delete_groups(GROUP)

    @rule(
        duration_ms=st.sampled_from([1, DELAY_MS, DELAY_MS, SESSION_MS, REBALANCE_MS, 600_000]),
    )
    def wait(self, duration_ms: int) -> None:
        # The expiry of offsets is exclusive: it never runs while an append is under way.
        if self.s.held is None:
            self.s.advance(duration_ms)

    @rule()
    def hold(self) -> None:
        if self.s.held is None:
            self.s.hold()

    @rule()
    def commit_appends(self) -> None:
        self.s.commit()

    @rule(code=st.sampled_from(FAILURES))
    def fail_appends(self, code: ErrorCode) -> None:
        self.s.fail(code)

    @rule(chance=st.integers(0, 2))
    def coordinator_moves(self, chance: int) -> None:
        if chance < 2:
            return
        self.s.commit()
        self.s.start()

    @invariant()
    def generation_never_falls_while_the_group_lives(self) -> None:
        group = self.s.shard.groups.get(GROUP)
        assert group is None or group.generation_id >= 0

    @invariant()
    def every_request_is_answered_or_kept(self) -> None:
        assert not self.s.lost_requests()

    @invariant()
    def every_member_has_a_session_or_a_parked_request(self) -> None:
        for group in self.s.shard.groups:
            for member_id, member in group.members.items():
                session = TimerKey("heartbeat", group.group_id, member_id)
                assert session in self.s.timers or member.has_satisfied_heartbeat

    @invariant()
    def parked_requests_belong_to_the_phase(self) -> None:
        for group in self.s.shard.groups:
            for member in group.members.values():
                if member.awaiting_sync is not None:
                    assert group.state is GroupState.COMPLETING_REBALANCE
                if group.state is GroupState.COMPLETING_REBALANCE:
                    assert member.awaiting_join is None

    @invariant()
    def somebody_will_end_every_wait(self) -> None:
        kinds = {key.kind for key in self.s.timers._deadlines}
        group = self.s.shard.groups.get(GROUP)
        if group is not None and group.state is GroupState.PREPARING_REBALANCE:
            assert "join" in kinds
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
            assert "sync" in kinds or not group.pending_syncs

    def teardown(self) -> None:
        self.s.commit()
        live = self.s.shard
        self.s.start()
        loaded = self.s.shard
        assert loaded.offsets._offsets == live.offsets._offsets
        stored = [group.group_id for group in live.groups if group.is_stored]
        assert sorted(stored) == sorted(group.group_id for group in loaded.groups)
        for group in live.groups:
            if group.state not in (GroupState.STABLE, GroupState.EMPTY) or not group.is_stored:
                continue
            again = loaded.groups.get(group.group_id)
            assert again is not None
            assert again.state is group.state
            assert again.generation_id == group.generation_id
            assert again.leader_id == group.leader_id
            assert again.static_members == group.static_members
            assert again.subscribed_topics == group.subscribed_topics or not group.members
            assert {m: v.assignment for m, v in again.members.items()} == {
                m: v.assignment for m, v in group.members.items()
            }


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
