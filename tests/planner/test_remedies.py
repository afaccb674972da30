"""The remedy that a refusal names makes the plan possible."""

import re
from dataclasses import replace
from random import Random

from replayed_plans import verify

from spindle.common.ids import TopicPartition
from spindle.planner.goals import drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import Infeasible

LIMITS = PlanLimits(max_fill=1.0)
CLUSTERS = 600


def crowded_cluster(seed: int) -> ClusterModel:
    """Return three or four brokers with a directory each, which have little room."""
    random = Random(seed)
    count = random.choice((3, 4))
    partitions, used = [], [0] * count
    for number in range(random.randint(4, 7)):
        size, place = random.randint(1, 10), random.randrange(count)
        used[place] += size
        name = TopicPartition("t", number)
        partitions.append(PartitionModel(name, (place,), (size,), leader=place))
    capacities = [max(1, number + random.randint(0, 8)) for number in used]
    return ClusterModel(
        [BrokerModel(number) for number in range(count)],
        [DirectoryModel(number, "/d", capacities[number], used[number]) for number in range(count)],
        partitions,
    )


def with_remedy(cluster: ClusterModel, remedy: str) -> ClusterModel | None:
    """Return the cluster with the bytes that a remedy names; None if it names none."""
    every = re.search(r"add directories with (\d+) B", remedy)
    if every is not None:
        new = DirectoryModel(99, "/new", int(every[1]), 0)
        return ClusterModel(
            [*cluster.brokers, BrokerModel(99)], [*cluster.directories, new], cluster.partitions
        )
    one = re.search(r"free or add (\d+) B there", remedy)
    if one is None:
        return None
    larger = [
        replace(directory, capacity_bytes=directory.capacity_bytes + int(one[1]))
        for directory in cluster.directories
    ]
    return replace(cluster, directories=larger)


def test_a_drain_is_possible_with_the_bytes_that_its_refusal_names() -> None:
    helped = 0
    for seed in range(CLUSTERS):
        cluster = crowded_cluster(seed)
        try:
            drain(cluster, [0], LIMITS)
        except Infeasible as error:
            mended = with_remedy(cluster, error.remedy)
            if mended is not None:
                verify(drain(mended, [0], LIMITS), LIMITS)
                helped += 1
    assert helped > 100


def test_replicas_are_packed_tightly_if_they_have_no_place_otherwise() -> None:
    """If 6 bytes go to the room of 9, and 5 to that of 6, then 4 have no place."""
    sizes = (6, 5, 4)
    cluster = ClusterModel(
        [BrokerModel(number) for number in range(3)],
        [
            DirectoryModel(0, "/d", 100, sum(sizes)),
            *(DirectoryModel(number, "/d", room, 0) for number, room in ((1, 9), (2, 6))),
        ],
        [
            PartitionModel(TopicPartition("t", number), (0,), (size,), leader=0)
            for number, size in enumerate(sizes)
        ],
    )
    verify(drain(cluster, [0], LIMITS), LIMITS)
