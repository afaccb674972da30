"""Groups with members change between the classic and the consumer protocol (KIP-848)."""

from contextlib import suppress
from dataclasses import replace

import pytest
from classic_client import ClassicConsumer, assignment_bytes
from consumer_group_scenario import Consumer, ConsumerScenario
from group_scenario import GROUP
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.config import GroupCoordinatorConfig, MigrationPolicy
from spindle.coordinator.consumer.descriptions import describe_consumer_group
from spindle.coordinator.consumer.records import ConsumerGroupRecord
from spindle.coordinator.records import GroupRecord

QUICK = replace(GroupCoordinatorConfig(), initial_rebalance_delay_ms=0)
Client = ClassicConsumer | Consumer
FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


def scenario(
    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL, **counts: int
) -> ConsumerScenario:
    return ConsumerScenario(replace(QUICK, migration=policy), **counts)


def step(s: ConsumerScenario, clients: list[Client]) -> None:
    for client in clients:
        if isinstance(client, Consumer):
            try:
                s.step(client)
            except ApiError as error:
                # As a client does that was fenced, or whose group is a classic one by now.
                if error.code not in FENCED:
                    raise
                client.owned, client.epoch = {}, 0
                client.owned = s.join_consumer(client.member_id).owned
        else:
            client.step()
    s.advance(100)


def settle(s: ConsumerScenario, *clients: Client, partitions: int = 4) -> None:
    """Let the clients go on until each partition has one reader."""
    everything = [("t", partition) for partition in range(partitions)]
    quiet = 0
    for _ in range(60):
        before = len(s.log)
        step(s, list(clients))
        read = sorted(name for client in clients for name in client.partitions)
        quiet = quiet + 1 if len(s.log) == before and read == everything else 0
        if quiet == 4:
            return
    raise AssertionError(f"no end: {[client.partitions for client in clients]}")


def member_types(s: ConsumerScenario) -> list[int]:
    return sorted(
        member.member_type for member in describe_consumer_group(s.shard.groups, GROUP).members
    )


# ---------------------------------------------------------------- upgrade


@pytest.mark.parametrize("is_eager", [True, False])
def test_the_first_consumer_member_upgrades_a_classic_group(is_eager: bool) -> None:
    s = scenario(t=4)
    old = ClassicConsumer(s, is_eager=is_eager)
    settle(s, old)
    s.commit_offsets({("t", 0): 5}, member_id=old.member_id, generation=old.generation)
    generation = old.generation
    new = s.join_consumer("a")
    assert s.shard.groups.get(GROUP) is None
    assert s.consumer_group().epoch == generation + 1
    assert new.partitions == []
    assert member_types(s) == [0, 1]
    settle(s, old, new)
    assert len(old.partitions) == len(new.partitions) == 2
    assert s.fetch(("t", 0)) == {("t", 0): 5}


def test_an_upgrade_begins_with_the_tombstone_of_the_classic_group() -> None:
    s = scenario(t=4)
    settle(s, ClassicConsumer(s))
    before = len(s.log)
    s.join_consumer("a")
    records = s.log[before:]
    assert records[0] == GroupRecord(GROUP, None)
    kinds = [record.kind.name for record in records[1:] if isinstance(record, ConsumerGroupRecord)]
    assert kinds[:5] == ["MEMBER", "GROUP", "TARGET", "TARGET_EPOCH", "CURRENT"]


def test_another_coordinator_knows_both_kinds_of_members() -> None:
    s = scenario(t=4)
    old = ClassicConsumer(s)
    settle(s, old)
    new = s.join_consumer("a")
    settle(s, old, new)
    partitions = old.partitions
    s.start()
    assert member_types(s) == [0, 1]
    settle(s, old, new)
    assert old.partitions == partitions


def test_parked_joins_are_answered_when_the_group_is_upgraded() -> None:
    s = scenario(t=4)
    old = ClassicConsumer(s)
    settle(s, old)
    _, parked = s.join(protocols=(("cooperative-sticky", old.subscription()),))
    assert s.waits(parked)
    s.join_consumer("a")
    assert s.joined(parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not s.lost_requests()


def test_a_classic_member_joins_a_consumer_group() -> None:
    s = scenario(t=4)
    new = s.join_consumer("a")
    old = ClassicConsumer(s)
    settle(s, new, old)
    assert member_types(s) == [0, 1]


def refusal(s: ConsumerScenario) -> str:
    with pytest.raises(ApiError) as caught:
        s.join_consumer("a")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    return str(caught.value.message)


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_the_policy_may_forbid_upgrades(policy: MigrationPolicy) -> None:
    s = scenario(policy, t=4)
    settle(s, ClassicConsumer(s))
    assert "online upgrade is disabled" in refusal(s)
    assert s.group().members


def test_a_group_of_another_protocol_is_not_upgraded() -> None:
    s = scenario(t=4)
    _, join = s.join(protocol_type="connect")
    s.advance_until_joined(join)
    assert "does not use the consumer embedded protocol" in refusal(s)


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    s = scenario(t=4)
    config = replace(QUICK, consumer=replace(QUICK.consumer, max_size=1))
    s = ConsumerScenario(config, t=4)
    settle(s, ClassicConsumer(s), ClassicConsumer(s))
    assert "exceeds the consumer group maximum size" in refusal(s)


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (b"?", "the embedded consumer protocol is malformed"),
        (assignment_bytes({}, user_data=b"mine"), "unsupported custom assignor"),
    ],
)
def test_an_assignment_that_cannot_be_kept_prevents_the_upgrade(
    assignment: bytes, reason: str
) -> None:
    s = scenario(t=4)
    member_id, join = s.join(protocols=(("range", ClassicConsumer(s).subscription()),))
    s.advance_until_joined(join)
    s.ask_sync(member_id, 1, {member_id: assignment})
    assert reason in refusal(s)


def test_two_members_with_one_partition_prevent_the_upgrade() -> None:
    s = scenario(t=4)
    clients = ClassicConsumer(s), ClassicConsumer(s)
    settle(s, *clients)
    for member in s.group().members.values():
        member.assignment = assignment_bytes({"t": {0}})
    assert "a partition is assigned to two members" in refusal(s)


def test_a_member_without_the_protocol_of_the_last_generation_is_upgraded() -> None:
    s = scenario(t=4)
    subscription = ClassicConsumer(s).subscription()
    _, join = s.join(protocols=(("range", subscription), ("roundrobin", subscription)))
    s.advance_until_joined(join)
    s.join(protocols=(("roundrobin", subscription),))
    assert s.group().protocol_name == "range"
    s.join_consumer("a")
    assert member_types(s) == [0, 0, 1]


def test_an_upgrade_that_is_not_committed_changes_nothing() -> None:
    s = scenario(t=4)
    old = ClassicConsumer(s)
    settle(s, old)
    s.hold()
    token = s.ask_beat(
        "a", 0, subscribed_topic_names=["t"], topic_partitions=[], rebalance_timeout_ms=1000
    )
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert isinstance(s.answers[token], ApiError)
    assert not s.shard.groups.consumer
    settle(s, old)


# ---------------------------------------------------------------- downgrade


def test_the_last_consumer_member_that_leaves_downgrades_the_group() -> None:
    s = scenario(t=4)
    new = s.join_consumer("a")
    old = ClassicConsumer(s)
    settle(s, new, old)
    s.commit_offsets({("t", 0): 5}, member_id=old.member_id, generation=old.generation)
    before = len(s.log)
    s.beat("a", -1)
    assert not s.shard.groups.consumer
    assert isinstance(s.log[before], ConsumerGroupRecord)
    assert isinstance(s.log[-1], GroupRecord)
    settle(s, old)
    assert s.fetch(("t", 0)) == {("t", 0): 5}
    s.start()
    settle(s, old)


def test_a_consumer_member_whose_session_ends_downgrades_the_group() -> None:
    s = scenario(t=4)
    new = s.join_consumer("a")
    old = ClassicConsumer(s)
    settle(s, new, old)
    for _ in range(30):
        s.advance(2_000)
        old.step()
    assert not s.shard.groups.consumer
    settle(s, old)


def test_a_coordinator_that_loads_a_downgraded_group_assigns_the_partitions_of_those_gone() -> None:
    s = scenario(t=4)
    new = s.join_consumer("a")
    old = ClassicConsumer(s)
    settle(s, new, old)
    s.beat("a", -1)
    s.start()
    settle(s, old)


def test_a_downgrade_that_leaves_no_partition_without_owner_needs_no_rebalance_when_loaded() -> (
    None
):
    s = scenario(t=4)
    new = s.join_consumer("a", instance_id="i")
    other = ClassicConsumer(s)
    settle(s, new, other)
    old = ClassicConsumer(s, instance_id="i")
    settle(s, old, other)
    joins = other.joins
    s.start()
    settle(s, old, other)
    assert other.joins == joins


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE])
def test_the_policy_may_forbid_downgrades(policy: MigrationPolicy) -> None:
    s = scenario(policy, t=4)
    new = s.join_consumer("a")
    old = ClassicConsumer(s)
    settle(s, new, old)
    s.beat("a", -1)
    assert s.shard.groups.get(GROUP) is None
    settle(s, old)
    assert member_types(s) == [0]


def test_a_disabled_policy_refuses_classic_members() -> None:
    s = scenario(MigrationPolicy.DISABLED, t=4)
    s.join_consumer("a")
    with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL"):
        s.ask_join()


def test_a_downgrade_that_is_not_committed_is_tried_again() -> None:
    s = scenario(t=4)
    new = s.join_consumer("a")
    old = ClassicConsumer(s)
    settle(s, new, old)
    s.hold()
    token = s.ask_beat("a", -1)
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert isinstance(s.answers[token], ApiError)
    assert s.shard.groups.get(GROUP) is None
    settle(s, new, old)


def test_the_last_consumer_member_leaves_alone() -> None:
    s = scenario(t=4)
    s.join_consumer("a")
    s.beat("a", -1)
    assert not s.consumer_group().members
    settle(s, ClassicConsumer(s))


# ---------------------------------------------------------------- static members


def test_a_static_member_changes_to_the_consumer_protocol() -> None:
    s = scenario(t=4)
    old = ClassicConsumer(s, instance_id="i")
    other = ClassicConsumer(s)
    settle(s, old, other)
    new = s.join_consumer("a", instance_id="i")
    settle(s, new, other)
    assert member_types(s) == [0, 1]


def test_a_static_member_changes_to_the_classic_protocol_without_a_rebalance() -> None:
    s = scenario(t=4)
    new = s.join_consumer("a", instance_id="i")
    other = ClassicConsumer(s)
    settle(s, new, other)
    joins, partitions = other.joins, new.partitions
    old = ClassicConsumer(s, instance_id="i")
    old.step()
    assert not s.shard.groups.consumer
    settle(s, old, other)
    assert (old.partitions, other.joins) == (partitions, joins)


def test_a_member_that_waits_for_partitions_gets_them_after_the_downgrade() -> None:
    s = scenario(t=4)
    s.join_consumer("a", instance_id="i")
    other = ClassicConsumer(s)
    while not other.generation > 0:
        other.step()
    assert other.partitions == [], "the member has its epoch, and its partitions have an owner"
    settle(s, ClassicConsumer(s, instance_id="i"), other)


# ---------------------------------------------------------------- classic members


def mixed() -> tuple[ConsumerScenario, Consumer, ClassicConsumer]:
    s = scenario(t=4)
    new, old = s.join_consumer("a"), ClassicConsumer(s)
    settle(s, new, old)
    return s, new, old


def test_requests_of_classic_members_are_checked() -> None:
    s, _, old = mixed()
    assert s.heartbeat("other", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.heartbeat("a", old.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.heartbeat(old.member_id, old.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert s.heartbeat(old.member_id, 1, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL"):
        s.ask_sync(old.member_id, old.generation, protocol_name="other")
    with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL"):
        s.ask_sync(old.member_id, old.generation, protocol_type="connect")
    with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL"):
        s.ask_join(protocols=(("other", old.subscription()),))
    with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL"):
        s.ask_join("b", protocols=(("cooperative-sticky", b"?"),))
    assert s.leave("other") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_classic_members_commit_with_their_generation() -> None:
    s, _, old = mixed()
    arguments = {"member_id": old.member_id, "version": 8}
    assert s.commit_offsets({("t", 0): 5}, generation=old.generation, **arguments) is ErrorCode.NONE
    late = s.commit_offsets({("t", 0): 5}, generation=old.generation + 1, **arguments)
    assert late is ErrorCode.ILLEGAL_GENERATION


def test_a_classic_member_that_does_not_rejoin_is_removed() -> None:
    s, new, old = mixed()
    other = s.join_consumer("b")
    for _ in range(45):
        s.advance(2_000)
        s.step(new, other)
        if old.member_id in s.consumer_group().members:
            s.heartbeat(old.member_id, old.generation)
    assert member_types(s) == [1, 1]


def test_a_classic_member_that_does_not_sync_is_removed() -> None:
    s, new, _ = mixed()
    silent = ClassicConsumer(s)
    first = s.joined(s.ask_join(protocols=((silent.name, silent.subscription()),)))
    joined = s.joined(
        s.ask_join(first.member_id, protocols=((silent.name, silent.subscription()),))
    )
    assert joined.error_code == ErrorCode.NONE
    for _ in range(45):
        s.advance(2_000)
        s.step(new)
        if joined.member_id in s.consumer_group().members:
            s.heartbeat(joined.member_id, joined.generation_id)
    assert joined.member_id not in s.consumer_group().members


def test_leave_group_removes_members_of_both_protocols() -> None:
    s, _, old = mixed()
    assert s.leave("a", old.member_id) == [ErrorCode.NONE, ErrorCode.NONE]
    assert not s.consumer_group().members


# ---------------------------------------------------------------- rolling

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["classic", "consumer", "leave", "restart", "step", "step"]),
        st.integers(0, 100),
    ),
    max_size=25,
)


@settings(max_examples=80, deadline=None)
@given(EVENTS, st.booleans(), st.sampled_from([0, 1_000]))
def test_rolling_members_end_with_one_reader_for_each_partition(
    events: list[tuple[str, int]], is_eager: bool, interval_ms: int
) -> None:
    s = scenario(t=4)
    s.consumer_config = replace(s.consumer_config, assignment_interval_ms=interval_ms)
    clients: list[Client] = []
    for number, (event, choice) in enumerate(events):
        if event == "classic":
            clients.append(ClassicConsumer(s, is_eager=is_eager))
        elif event == "consumer":
            clients.append(s.join_consumer(f"c{number}"))
        elif event == "leave" and clients:
            client = clients.pop(choice % len(clients))
            if isinstance(client, ClassicConsumer):
                client.leave()
            else:
                with suppress(ApiError):
                    s.beat(client.member_id, -1)
        elif event == "restart":
            s.start()
            for client in clients:
                if isinstance(client, ClassicConsumer):
                    client.reconnect()
        step(s, clients)
        s.shard.check()
    if clients:
        settle(s, *clients)
