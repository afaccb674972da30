"""Groups of the consumer protocol (KIP-848): joining, moving partitions, leaving, fencing."""

from dataclasses import replace

import pytest
from consumer_group_scenario import REVOCATION_MS, ConsumerScenario, claims, topic_id, topics_image
from group_scenario import GROUP

from spindle.common.errors import ErrorCode
from spindle.coordinator.consumer.consumer_group import ConsumerGroupState
from spindle.coordinator.consumer.records import ConsumerGroupRecord, RecordKind


def kinds(s: ConsumerScenario, start: int = 0) -> list[tuple[RecordKind, bool]]:
    """Return kind and "is it a tombstone" of the consumer group's records."""
    return [
        (record.kind, record.value is None)
        for record in s.log[start:]
        if isinstance(record, ConsumerGroupRecord)
    ]


def test_first_member_gets_everything_with_the_records_of_kafka() -> None:
    s = ConsumerScenario(t=2)
    a = s.join_consumer("a")
    assert a.partitions == [("t", 0), ("t", 1)]
    assert a.epoch == 2
    assert s.consumer_group().state is ConsumerGroupState.STABLE
    assert [kind for kind, _ in kinds(s)] == [
        RecordKind.MEMBER,
        RecordKind.GROUP,
        RecordKind.TARGET,
        RecordKind.TARGET_EPOCH,
        RecordKind.CURRENT,
    ]


def test_a_member_without_an_id_gets_one_in_the_form_of_kafka() -> None:
    s = ConsumerScenario(t=1)
    answer = s.beat(
        "", version=0, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert answer.member_id == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_heartbeat_without_news_writes_nothing_and_has_no_assignment() -> None:
    s = ConsumerScenario()
    a = s.join_consumer("a")
    written = len(s.log)
    answer = s.beat("a", a.epoch)
    assert answer.assignment is None
    assert answer.heartbeat_interval_ms == 5_000
    assert len(s.log) == written


def test_partition_moves_only_after_its_owner_gave_it_up() -> None:
    s = ConsumerScenario(t=4)
    a = s.join_consumer("a")
    b = s.join_consumer("b")
    assert b.partitions == []
    assert s.consumer_group().state is ConsumerGroupState.RECONCILING
    s.step(b)
    assert b.partitions == []
    # A hears that it has to give up two partitions, and does.
    s.step(a, b)
    assert len(a.partitions) == 2
    assert b.partitions == []
    s.step(a, b)
    assert len(b.partitions) == 2
    s.settle(a, b)
    assert s.consumer_group().state is ConsumerGroupState.STABLE
    assert {a.epoch, b.epoch} == {s.consumer_group().epoch}


def test_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    s = ConsumerScenario(t=4)
    a, b = s.join_consumer("a"), s.join_consumer("b")
    s.settle(a, b)
    start = len(s.log)
    s.beat("b", -1)
    assert kinds(s, start) == [
        (RecordKind.CURRENT, True),
        (RecordKind.TARGET, True),
        (RecordKind.MEMBER, True),
        (RecordKind.GROUP, False),
    ]
    s.settle(a)
    assert len(a.partitions) == 4


def test_silent_member_is_removed_after_its_session() -> None:
    s = ConsumerScenario(t=4)
    a, b = s.join_consumer("a"), s.join_consumer("b")
    s.settle(a, b)
    for _ in range(5):
        s.advance(10_000)
        s.step(a)
    assert list(s.consumer_group().members) == ["a"]
    s.settle(a)
    assert len(a.partitions) == 4
    assert s.refused("b", b.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_does_not_give_up_its_partitions_is_removed_in_time() -> None:
    s = ConsumerScenario(t=4)
    a, b = s.join_consumer("a"), s.join_consumer("b")
    s.beat("a", a.epoch)
    s.advance(REVOCATION_MS - 1)
    s.beat("a", a.epoch)
    s.step(b)
    assert "a" in s.consumer_group().members
    s.advance(1)
    assert "a" not in s.consumer_group().members
    s.settle(b)
    assert len(b.partitions) == 4


def test_lost_answer_is_given_again_to_the_previous_epoch() -> None:
    s = ConsumerScenario(t=4)
    a = s.join_consumer("a")
    s.topics = topics_image(t=6)
    s.beat("a", a.epoch)
    again = s.beat(
        "a",
        a.epoch,
        rebalance_timeout_ms=REVOCATION_MS,
        subscribed_topic_names=["t"],
        topic_partitions=claims(a.owned),
    )
    assert again.member_epoch == a.epoch + 1
    assert again.assignment is not None
    assert again.assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("epoch", "owned"), [(9, {}), (1, {}), (0, {"t": {0}})])
def test_member_in_a_wrong_epoch_is_fenced(epoch: int, owned: dict[str, set[int]]) -> None:
    s = ConsumerScenario(t=4)
    s.join_consumer("a")
    if epoch == 0:
        code = s.refused("a", 0, topic_partitions=claims(owned))
        assert code is ErrorCode.INVALID_REQUEST
    else:
        assert s.refused("a", epoch) is ErrorCode.FENCED_MEMBER_EPOCH


def test_new_partitions_and_new_topics_begin_an_epoch() -> None:
    s = ConsumerScenario(t=1)
    a = s.join_consumer("a", "t", "later")
    s.topics = topics_image(t=1, later=2)
    s.settle(a)
    assert a.partitions == [("later", 0), ("later", 1), ("t", 0)]
    assert a.epoch == 3


def test_changed_subscription_begins_an_epoch() -> None:
    s = ConsumerScenario(t=1, u=1)
    a = s.join_consumer("a")
    answer = s.beat("a", a.epoch, subscribed_topic_names=["u"], topic_partitions=claims({}))
    assert answer.member_epoch == 3
    assert answer.assignment is not None
    assert [t.topic_id for t in answer.assignment.topic_partitions] == [topic_id("u")]


def test_regular_expression_follows_the_topics() -> None:
    s = ConsumerScenario(None, **{"orders-eu": 1, "orders-us": 1, "other": 1})
    a = s.join_consumer("a", subscribed_topic_regex="orders-.*")
    assert a.partitions == [("orders-eu", 0), ("orders-us", 0)]
    s.advance(10_000)
    s.topics = topics_image(**{"orders-eu": 1, "orders-us": 1, "orders-asia": 1, "other": 1})
    s.settle(a)
    assert [name for name, _ in a.partitions] == ["orders-asia", "orders-eu", "orders-us"]
    s.start()
    assert s.consumer_group().is_subscribed_to("orders-asia")


def test_a_regular_expression_finds_only_topics_that_its_member_may_know_of() -> None:
    s = ConsumerScenario(None, **{"orders-eu": 1, "orders-us": 1})
    s.may_describe = {"orders-eu"}.__contains__
    a = s.join_consumer("a", subscribed_topic_regex="orders-.*")
    assert a.partitions == [("orders-eu", 0)]
    assert s.consumer_group().regexes == {"orders-.*": frozenset({"orders-eu"})}


def test_unused_regular_expression_is_deleted() -> None:
    s = ConsumerScenario(t=1)
    a = s.join_consumer("a", subscribed_topic_regex="t.*")
    s.beat("a", a.epoch, subscribed_topic_regex="", subscribed_topic_names=["t"])
    assert s.consumer_group().regexes == {}
    s.beat("a", -1)
    assert s.consumer_group().regexes == {}


def test_wrong_regular_expression_is_refused() -> None:
    s = ConsumerScenario()
    code = s.refused(subscribed_topic_regex="a(", rebalance_timeout_ms=1000, topic_partitions=[])
    assert code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_static_member_comes_back_to_its_partitions_without_a_new_epoch() -> None:
    s = ConsumerScenario(t=4)
    a = s.join_consumer("a", instance_id="one")
    b = s.join_consumer("b", instance_id="two")
    s.settle(a, b)
    epoch, mine = s.consumer_group().epoch, a.partitions
    s.beat("a", -2, instance_id="one")
    again = s.join_consumer("a2", instance_id="one")
    assert again.partitions == mine
    assert s.consumer_group().epoch == epoch
    s.settle(again, b)
    assert s.refused("a", a.epoch, instance_id="one") is ErrorCode.FENCED_INSTANCE_ID
    s.start()
    s.settle(again, b)
    assert again.partitions == mine


def test_instance_id_in_use_is_not_given_away() -> None:
    s = ConsumerScenario()
    s.join_consumer("a", instance_id="one")
    code = s.refused(
        "b",
        instance_id="one",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_static_member_that_stays_away_loses_its_place() -> None:
    s = ConsumerScenario(t=4)
    s.join_consumer("a", instance_id="one")
    s.beat("a", -2, instance_id="one")
    s.advance(45_000)
    assert s.consumer_group().state is ConsumerGroupState.EMPTY


def test_group_is_the_same_after_its_coordinator_moved() -> None:
    s = ConsumerScenario(t=4)
    a, b = s.join_consumer("a"), s.join_consumer("b")
    s.step(a)
    s.start()
    s.settle(a, b)
    assert len(a.partitions) == len(b.partitions) == 2


def test_members_of_a_group_that_was_loaded_have_a_session() -> None:
    s = ConsumerScenario()
    s.join_consumer("a")
    s.start()
    s.advance(45_000)
    assert s.consumer_group().state is ConsumerGroupState.EMPTY


def test_removal_that_is_not_committed_is_tried_again() -> None:
    s = ConsumerScenario()
    s.join_consumer("a")
    s.hold()
    s.advance(45_000)
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert "a" in s.consumer_group().members
    s.advance(45_000)
    assert s.consumer_group().state is ConsumerGroupState.EMPTY


def test_full_group_takes_no_more_members() -> None:
    s = ConsumerScenario()
    s.consumer_config = replace(s.consumer_config, max_size=1)
    s.join_consumer("a")
    code = s.refused(
        "b", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_empty_group_is_deleted_with_its_offsets_and_kafka_can_read_the_tombstones() -> None:
    s = ConsumerScenario()
    s.join_consumer("a")
    assert s.delete_groups(GROUP) == [ErrorCode.NON_EMPTY_GROUP]
    s.beat("a", -1)
    start = len(s.log)
    assert s.delete_groups(GROUP) == [ErrorCode.NONE]
    assert [kind for kind, _ in kinds(s, start)] == [
        RecordKind.TARGET_EPOCH,
        RecordKind.TOPIC_METADATA,
        RecordKind.GROUP,
    ]
    assert s.delete_groups(GROUP) == [ErrorCode.GROUP_ID_NOT_FOUND]
    s.start()
    assert not s.shard.groups.consumer


def test_empty_group_changes_its_protocol_both_ways() -> None:
    s = ConsumerScenario()
    s.join_consumer("a")
    s.beat("a", -1)
    s.ask_join(version=3)
    assert s.shard.groups.get(GROUP) is not None
    assert not s.shard.groups.consumer
    s.start()
    assert s.shard.groups.get(GROUP) is not None
    s.advance(600_000)
    s.join_consumer("a")
    assert s.shard.groups.get(GROUP) is None
    s.start()
    assert list(s.consumer_group().members) == ["a"]


def test_session_without_heartbeats_does_not_survive_a_rejoin_in_epoch_zero() -> None:
    s = ConsumerScenario(t=2)
    a = s.join_consumer("a")
    assert s.join_consumer("a").partitions == a.partitions


def test_a_new_epoch_begins_when_most_members_name_another_assignor() -> None:
    """As in Kafka 4.4; before, the assignor changed with the next assignment."""
    s = ConsumerScenario(t=4)
    a, b = s.join_consumer("a", server_assignor="uniform"), s.join_consumer("b")
    s.settle(a, b)
    epoch = s.consumer_group().epoch
    s.beat("b", b.epoch, server_assignor="uniform")
    assert s.consumer_group().epoch == epoch
    s.beat("b", b.epoch, server_assignor="range")
    s.beat("a", a.epoch, server_assignor="range")
    group = s.consumer_group()
    assert group.epoch == group.assignment_epoch == epoch + 1
    s.settle(a, b)


def test_the_last_member_that_leaves_ends_the_target_assignment() -> None:
    s = ConsumerScenario(t=2)
    s.join_consumer("a")
    written = len(s.log)
    s.beat("a", -1)
    group = s.consumer_group()
    assert group.epoch == group.assignment_epoch == 3
    assert kinds(s, written)[-2:] == [(RecordKind.GROUP, False), (RecordKind.TARGET_EPOCH, False)]
    assert s.join_consumer("b").partitions == [("t", 0), ("t", 1)]
