"""A goal that cannot be reached is refused with the limit that binds and with a remedy."""

from dataclasses import replace
from typing import Any

import pytest

from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.planner.goals import balance, decommission, drain, what_if
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import BindingLimit, Infeasible
from spindle.planner.what_if import ClusterChanges

GIB = 2**30


def directory(broker_id: int, path: str = "/d", used: int = 10, **fields: Any) -> DirectoryModel:
    plain = DirectoryModel(broker_id, path, 100 * GIB, used * GIB)
    return replace(plain, **fields)


def partition(*places: int, size: int = 10, number: int = 0, rate: int = 0) -> PartitionModel:
    return PartitionModel(
        TopicPartition("t", number), places, (size * GIB,) * len(places), rate, places[0]
    )


def three_brokers(*racks: str | None) -> list[BrokerModel]:
    return [BrokerModel(number, rack) for number, rack in enumerate(racks or (None,) * 3)]


def refusal(cluster: ClusterModel, limits: PlanLimits | None = None) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        drain(cluster, [0], limits or PlanLimits())
    return caught.value


def test_too_few_brokers_for_the_replicas() -> None:
    cluster = ClusterModel(
        three_brokers(), [directory(0), directory(1), directory(2)], [partition(0, 1, 2)]
    )
    error = refusal(cluster)
    assert error.limit is BindingLimit.REPLICATION
    assert str(error) == (
        "t-0 cannot move: it has 3 replicas, and the plan can use 2 brokers. Limit: "
        "replication. Remedy: add a broker, or lower the replication factor of topic t."
    )


def test_the_directories_that_are_left_are_cordoned() -> None:
    cluster = ClusterModel(
        three_brokers(),
        [directory(0), directory(1, is_cordoned=True), directory(2, capacity_bytes=0)],
        [partition(0)],
    )
    error = refusal(cluster)
    assert error.limit is BindingLimit.CORDONS
    assert "1:/d, 2:/d" in str(error)
    assert error.remedy == "uncordon one of them, or add a directory"


def test_a_rack_would_lose_its_replica() -> None:
    cluster = ClusterModel(
        [BrokerModel(0, "a"), BrokerModel(1, "b"), BrokerModel(2, "b")],
        [directory(0), directory(1), directory(2)],
        [partition(0, 1)],
    )
    error = refusal(cluster)
    assert error.limit is BindingLimit.RACKS
    assert "fewer racks without its replica in rack a" in str(error)
    plan = drain(cluster, [0], PlanLimits(keeps_racks=False))
    assert plan.moved_bytes == 10 * GIB


def test_a_replica_is_larger_than_all_rooms() -> None:
    cluster = ClusterModel(
        three_brokers(),
        [directory(0, used=40), directory(1, used=80), directory(2, used=90)],
        [partition(0, size=40)],
    )
    error = refusal(cluster)
    assert error.limit is BindingLimit.CAPACITY
    assert "needs 40.0 GiB" in str(error)
    assert "1:/d, has 15.0 GiB below 95% of its capacity" in str(error)
    assert error.remedy == "free or add 25.0 GiB there, or raise the highest fill (`max_fill`)"
    two = replace(cluster, partitions=[*cluster.partitions, partition(0, size=40, number=1)])
    assert refusal(two).remedy == (
        "free or add 25.0 GiB there (for all 2 replicas without a place add directories with "
        "84.2 GiB), or raise the highest fill (`max_fill`)"
    )


def test_two_replicas_that_fit_alone_but_not_together() -> None:
    cluster = ClusterModel(
        three_brokers(None, None),
        [directory(0, used=80), directory(1, used=30)],
        [partition(0, size=40), partition(0, size=40, number=1)],
    )
    assert refusal(cluster).limit is BindingLimit.CAPACITY


def test_room_is_made_where_only_another_replica_is_in_the_way() -> None:
    cluster = ClusterModel(
        three_brokers("a", "a", "b"),
        [directory(0, used=60), directory(1, used=60), directory(2, used=20)],
        [
            partition(0, 2, size=20),
            partition(0, size=40, number=1),
            partition(1, number=2, size=60),
        ],
    )
    plan = drain(cluster, [0], PlanLimits())
    assert plan.used_bytes[0] == 0


def test_a_replica_grows_faster_than_its_copy() -> None:
    cluster = ClusterModel(
        three_brokers(), [directory(0), directory(1)], [partition(0, rate=60 * 2**20)]
    )
    error = refusal(cluster)
    assert error.limit is BindingLimit.THROTTLE
    assert error.remedy == "raise the throttle above 60.0 MiB/s"
    assert drain(cluster, [0], PlanLimits(throttle_bytes_per_second=70 * 2**20)).rounds


def test_a_spread_that_whole_replicas_cannot_reach_is_a_remark() -> None:
    cluster = ClusterModel(
        three_brokers(), [directory(0, used=60), directory(1, used=0)], [partition(0, size=60)]
    )
    plan = balance(cluster, PlanLimits())
    assert not plan.rounds
    assert plan.remarks == (
        "the fills stay 60.0 points apart, wanted are 5.0: a replica of t-0 alone fills "
        "more of any directory that it could be in",
    )


@pytest.mark.parametrize(("used", "remarks"), [(504, 0), (506, 1)])
def test_a_spread_that_is_shown_as_the_wanted_one_needs_no_remark(used: int, remarks: int) -> None:
    whole = 10_000 * GIB
    cluster = ClusterModel(
        three_brokers(),
        [
            directory(0, used=used, capacity_bytes=whole),
            directory(1, used=0, capacity_bytes=whole),
        ],
        [partition(0, size=used)],
    )
    assert len(balance(cluster, PlanLimits()).remarks) == remarks


def test_full_replication_keeps_the_brokers_apart() -> None:
    cluster = ClusterModel(
        three_brokers(None, None),
        [directory(0, used=80), directory(1, used=80, capacity_bytes=400 * GIB)],
        [partition(0, 1, size=80)],
    )
    (remark,) = balance(cluster, PlanLimits()).remarks
    assert "replication and racks keep the replicas in 2 parts of the cluster" in remark


def test_other_files_fill_a_directory() -> None:
    cluster = ClusterModel(
        three_brokers(), [directory(0, used=90), directory(1, used=0)], [partition(0, size=10)]
    )
    plan = balance(cluster, PlanLimits())
    assert plan.moved_bytes == 10 * GIB
    assert "other files than replicas fill 0:/d" in plan.remarks[0]


def test_a_dead_directory_is_emptied_from_the_leader_but_not_within_its_broker() -> None:
    cluster = ClusterModel(
        three_brokers(),
        [
            directory(0, is_online=False, used=0, capacity_bytes=0),
            directory(0, "/e", used=0),
            directory(1),
            directory(2),
        ],
        [partition(0, 2)],
    )
    plan = drain(cluster, [0], PlanLimits())
    ((move,),) = [planned_round.moves for planned_round in plan.rounds]
    assert move.target == 3


def test_a_partition_without_an_online_replica_cannot_be_copied() -> None:
    dead = directory(0, is_online=False, used=0, capacity_bytes=0)
    cluster = ClusterModel(three_brokers(), [dead, directory(1), directory(2)], [partition(0)])
    with pytest.raises(Infeasible, match="none of its replicas is online") as error:
        drain(cluster, [0], PlanLimits())
    assert error.value.limit is BindingLimit.OFFLINE
    assert "bring its directory back into service (spindle disks online)" in str(error.value)


def test_a_partition_without_a_leader_moves_only_inside_its_broker() -> None:
    headless = replace(partition(0), leader=NO_LEADER)
    cluster = ClusterModel(three_brokers(), [directory(0), directory(1)], [headless])
    error = refusal(cluster)
    assert error.limit is BindingLimit.OFFLINE
    assert "it has no leader, and other brokers copy only from leaders" in str(error)
    roomy = ClusterModel(
        three_brokers(), [directory(0), directory(0, "/e"), directory(1, used=0)], [headless]
    )
    ((move,),) = [planned_round.moves for planned_round in drain(roomy, [0], PlanLimits()).rounds]
    assert move.target == 1


def test_a_broker_cannot_copy_what_it_cannot_read() -> None:
    dead = directory(0, is_online=False, used=0, capacity_bytes=0)
    cluster = ClusterModel(
        three_brokers(None, None),
        [dead, directory(0, "/e"), directory(1)],
        [replace(partition(0, 2), leader=1)],
    )
    error = refusal(cluster)
    assert error.limit is BindingLimit.OFFLINE
    assert "broker 0 cannot read /d" in str(error)
    assert error.remedy == "replace or remove the directory, or add a broker"


def test_a_what_if_plan_includes_brokers_to_be_added() -> None:
    cluster = ClusterModel(
        three_brokers(), [directory(0), directory(1), directory(2)], [partition(0, 1, 2)]
    )
    changes = ClusterChanges(
        added_brokers=[BrokerModel(7)],
        added_directories=[directory(7, "/new", used=0)],
        removed_brokers=[2],
    )
    plan = what_if(cluster, changes, PlanLimits())
    assert [move.target for move in plan.rounds[0].moves] == [3]
    with pytest.raises(ValueError, match="there is no broker 9 to remove; there are 0, 1, 2"):
        what_if(cluster, ClusterChanges(removed_brokers=[9]), PlanLimits())


@pytest.mark.parametrize(
    ("directories", "partitions", "message"),
    [
        ([directory(0), directory(0)], [], "directory 0:/d is there 2 times"),
        ([directory(5)], [], "broker 5, which is absent"),
        ([directory(0)], [partition(0, 1)], "a directory that the model lacks"),
        ([directory(0), directory(0, "/e")], [partition(0, 1)], "two replicas on one broker"),
        ([directory(0)], [partition(0, size=-1)], "negative size"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(
    directories: list[DirectoryModel], partitions: list[PartitionModel], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ClusterModel(three_brokers(), directories, partitions)


@pytest.mark.parametrize(
    "wrong",
    [
        {"spread": 1.1},
        {"max_fill": 0.0},
        {"throttle_bytes_per_second": 0},
        {"parallel_moves": 0},
    ],
)
def test_a_limit_out_of_its_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        PlanLimits(**wrong)


def test_decommission_takes_all_directories_of_a_broker() -> None:
    cluster = ClusterModel(
        three_brokers(),
        [directory(0), directory(0, "/e"), directory(1)],
        [partition(0), partition(1, number=1)],
    )
    plan = decommission(cluster, 0, PlanLimits())
    assert plan.used_bytes == (0, 0, 30 * GIB)


def test_an_addition_that_exists_already_is_refused() -> None:
    cluster = ClusterModel(three_brokers(), [directory(0)], [])
    for changes in (
        ClusterChanges(added_brokers=[BrokerModel(2)]),
        ClusterChanges(added_directories=[directory(0)]),
    ):
        with pytest.raises(ValueError, match="exists already and cannot be added"):
            what_if(cluster, changes, PlanLimits())


def test_the_spreads_before_and_after_are_of_the_same_directories() -> None:
    full, even = directory(0, used=90), [directory(n, used=50) for n in (1, 2)]
    cordoned = directory(2, "/cordoned", used=0, is_cordoned=True)
    cluster = ClusterModel(three_brokers(), [full, *even, cordoned], [partition(0)])
    plan = drain(cluster, [0], PlanLimits())
    assert plan.spread_before == 0
    assert plan.spread > 0


def test_a_replica_beside_one_on_a_cordoned_broker_cannot_go_to_another_broker() -> None:
    cluster = ClusterModel(
        three_brokers(),
        [directory(0), directory(1, is_cordoned=True), directory(2)],
        [partition(0, 1)],
    )
    error = refusal(cluster)
    assert error.limit is BindingLimit.CORDONS
    assert str(error) == (
        "t-0 cannot move: it has a replica on broker 1, whose log directories are all cordoned, "
        "and controllers refuse a reassignment that includes such a broker. Limit: cordons. "
        "Remedy: uncordon a directory of broker 1, or drain that broker alone first."
    )


def test_a_balance_leaves_partitions_with_a_replica_on_a_cordoned_broker_alone() -> None:
    cluster = ClusterModel(
        three_brokers(),
        [directory(0, used=40), directory(1, used=20, is_cordoned=True), directory(2, used=0)],
        [partition(0, 1, number=0), partition(0, 1, number=1), partition(0, size=20, number=2)],
    )
    plan = balance(cluster, PlanLimits())
    moved = {move.partition for round_ in plan.rounds for move in round_.moves}
    assert moved == {2}
    assert not plan.preferred
