"""Preferred leaders of plans: brokers lead equally many partitions, and no more bytes move."""

from replayed_plans import verify

from benchmarks.planner import SMALL, skewed_cluster
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.planner.goals import balance, decommission, what_if
from spindle.planner.leaders import even_leaders, leaders_of_plan, preferred_orders
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.what_if import ClusterChanges

LIMITS = PlanLimits()
TIB = 2**40


def led_by_first(leader: int = 0, *, is_online: bool = True) -> ClusterModel:
    """Return six partitions on two brokers, all led by the first one."""
    return ClusterModel(
        [BrokerModel(0), BrokerModel(1)],
        [
            DirectoryModel(0, "/d", TIB, 60),
            DirectoryModel(1, "/d", TIB, 60, is_online=is_online),
        ],
        [
            PartitionModel(TopicPartition("t", number), (0, 1), (10, 10), leader=leader)
            for number in range(6)
        ],
    )


def test_a_balanced_cluster_has_equally_many_leaders_on_each_broker() -> None:
    plan = balance(skewed_cluster(SMALL[1], seed=2), LIMITS)
    verify(plan, LIMITS)
    before, after = leaders_of_plan(plan)
    assert max(before.values()) - min(before.values()) > 30
    assert max(after.values()) - min(after.values()) <= 1


def test_a_cluster_with_equal_fills_gets_another_order_and_no_moves() -> None:
    plan = balance(led_by_first(), LIMITS)
    assert not plan.rounds
    assert leaders_of_plan(plan) == ({0: 6, 1: 0}, {0: 3, 1: 3})
    orders = preferred_orders(plan)
    assert len(orders) == 3
    assert set(map(tuple, orders.values())) == {(1, 0)}


def test_an_added_broker_leads_as_many_partitions_as_it_has_or_as_the_others() -> None:
    cluster = skewed_cluster(SMALL[1], seed=2)
    capacity = cluster.directories[0].capacity_bytes
    new = [DirectoryModel(90, f"/d{number}", capacity, 0) for number in range(5)]
    plan = what_if(cluster, ClusterChanges([BrokerModel(90)], new), LIMITS)
    verify(plan, LIMITS)
    _, after = leaders_of_plan(plan)
    held = sum(place >= len(cluster.directories) for items in plan.places() for place in items)
    assert after[90] == min(held, max(after.values()))
    others = [count for broker, count in after.items() if broker != 90]
    assert max(others) - min(others) <= 1


def test_a_decommission_changes_the_order_of_moved_partitions_only() -> None:
    plan = decommission(skewed_cluster(SMALL[1], seed=3), 0, LIMITS)
    verify(plan, LIMITS)
    moved = {move.partition for planned_round in plan.rounds for move in planned_round.moves}
    assert plan.preferred
    assert moved.issuperset(plan.preferred)
    assert leaders_of_plan(plan)[1][0] == 0


def test_partitions_without_a_leader_and_offline_replicas_keep_their_order() -> None:
    for cluster in (led_by_first(NO_LEADER), led_by_first(is_online=False)):
        places = [partition.directories for partition in cluster.partitions]
        assert even_leaders(cluster, places, range(6)) == {}
