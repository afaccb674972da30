"""Between two target assignments of a consumer group there is an interval (Kafka 4.3)."""

from classic_client import ClassicConsumer
from consumer_group_scenario import Consumer, ConsumerScenario, claims, topic_id, topics_image

from spindle.coordinator.config import ConsumerGroupConfig, GroupCoordinatorConfig, MigrationPolicy
from spindle.coordinator.consumer.consumer_group import ConsumerGroupState
from spindle.coordinator.consumer.member import MemberState

INTERVAL_MS = 1_000


def scenario(
    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL, **counts: int
) -> ConsumerScenario:
    config = GroupCoordinatorConfig(initial_rebalance_delay_ms=0, migration=policy)
    s = ConsumerScenario(config, **counts)
    s.consumer_config = ConsumerGroupConfig(assignment_interval_ms=INTERVAL_MS)
    return s


def wait(s: ConsumerScenario, *consumers: Consumer) -> None:
    """Let the interval pass, and the members settle."""
    s.advance(INTERVAL_MS)
    s.settle(*consumers)


def test_the_first_member_gets_its_partitions_at_once() -> None:
    s = scenario(t=2)
    assert s.join_consumer("a").partitions == [("t", 0), ("t", 1)]


def test_members_that_join_within_the_interval_get_one_assignment_together() -> None:
    s = scenario(t=6)
    a = s.join_consumer("a")
    s.advance(INTERVAL_MS - 1)
    b, c = s.join_consumer("b"), s.join_consumer("c")
    assert b.epoch == c.epoch == a.epoch
    assert b.partitions == c.partitions == []
    assert s.consumer_group().state is ConsumerGroupState.ASSIGNING
    s.advance(1)
    s.settle(a, b, c)
    assert [len(consumer.partitions) for consumer in (a, b, c)] == [2, 2, 2]
    group = s.consumer_group()
    assert group.epoch == group.assignment_epoch == a.epoch == 4


def test_another_coordinator_knows_when_the_target_was_computed() -> None:
    s = scenario(t=2)
    a = s.join_consumer("a")
    s.start()
    b = s.join_consumer("b")
    assert s.consumer_group().state is ConsumerGroupState.ASSIGNING
    wait(s, a, b)
    assert len(b.partitions) == 1


def test_a_clock_that_was_set_back_does_not_stop_assignments() -> None:
    s = scenario(t=2)
    a = s.join_consumer("a")
    s.now_ms -= 60_000
    b = s.join_consumer("b")
    s.settle(a, b)
    assert len(b.partitions) == 1


def test_the_interval_of_the_group_may_not_leave_the_limits_of_the_broker() -> None:
    config = ConsumerGroupConfig(assignment_interval_limits_ms=(100, 5_000))
    assert config.assignment_interval_ms == 1_000
    for own, interval_ms in (("0", 100), ("700", 700), ("9000", 5_000)):
        of_group = config.of_group({"consumer.assignment.interval.ms": own})
        assert of_group.assignment_interval_ms == interval_ms
        assert config.with_assignment_interval(int(own)) == of_group


def test_a_member_gives_up_a_topic_that_it_left_before_the_next_assignment() -> None:
    s = scenario(t=1, u=1)
    a = s.join_consumer("a", "t", "u")
    fields = {"subscribed_topic_names": ["t"], "topic_partitions": claims(a.owned)}
    answer = s.beat("a", a.epoch, **fields)
    assert answer.member_epoch == a.epoch
    assert answer.assignment is not None
    assert [t.topic_id for t in answer.assignment.topic_partitions] == [topic_id("t")]
    group = s.consumer_group()
    assert group.epoch > group.assignment_epoch
    before = group.members["a"].state
    a.owned = {"t": {0}}
    s.step(a)
    after = group.members["a"].state
    assert (before, after) == (MemberState.UNREVOKED_PARTITIONS, MemberState.STABLE)
    assert group.is_free(topic_id("u"), 0)
    wait(s, a)
    assert group.epoch == group.assignment_epoch
    assert a.partitions == [("t", 0)]


def test_a_deleted_topic_leaves_the_assignment_only_with_the_next_epoch() -> None:
    s = scenario(t=1, u=1)
    a = s.join_consumer("a", "t", "u")
    s.topics = topics_image(t=1)
    s.step(a)
    assert s.consumer_group().members["a"].assigned.keys() == {topic_id("t"), topic_id("u")}
    wait(s, a)
    assert a.partitions == [("t", 0)]


def test_a_static_member_that_returns_within_the_interval_keeps_its_partitions() -> None:
    s = scenario(t=4)
    a, b = s.join_consumer("a", instance_id="one"), s.join_consumer("b", instance_id="two")
    wait(s, a, b)
    mine = a.partitions
    assert len(mine) == 2
    s.join_consumer("c")
    s.beat("a", -2, instance_id="one")
    again = s.join_consumer("a2", instance_id="one")
    assert again.partitions == mine
    assert again.epoch == s.consumer_group().assignment_epoch
    assert set(s.consumer_group().members["a2"].assigned[topic_id("t")].values()) == {0}


def test_a_classic_member_joins_again_when_the_next_assignment_is_due() -> None:
    s = scenario(MigrationPolicy.UPGRADE, t=4)
    old = ClassicConsumer(s)
    for _ in range(4):
        old.step()
    new = s.join_consumer("a")
    generation = s.consumer_group().assignment_epoch
    for _ in range(8):
        old.step()
        s.step(new)
    s.advance(INTERVAL_MS)
    s.beat("a", -1)
    assert s.consumer_group().epoch == generation + 1
    for _ in range(8):
        old.step()
    # No member of the consumer protocol is left whose heartbeat could compute the assignment.
    assert len(old.partitions) == 4


def test_an_upgrade_assigns_at_once() -> None:
    s = scenario(t=4)
    old = ClassicConsumer(s)
    for _ in range(4):
        old.step()
    s.join_consumer("a")
    group = s.consumer_group()
    assert group.epoch == group.assignment_epoch
