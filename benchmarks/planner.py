"""Plans of `spindle plan balance` next to Kafka's count rule and first-fit-decreasing; no cluster.

Run: python -m benchmarks.planner [--large]
"""

import argparse
import resource
import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from spindle.common.ids import TopicPartition
from spindle.common.text import size_text
from spindle.planner.goals import balance
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel

MEAN_FILL = 0.55
LIMITS = PlanLimits()
SEEDS = (1, 2, 3)


class Shape(NamedTuple):
    """The size of a generated cluster; without racks each broker is one of its own.

    Sigma is that of the log-normal sizes: with 2 a few partitions have most of the bytes. The
    capacities of directories are these numbers of a unit, in turn.
    """

    name: str
    partitions: int
    brokers: int
    directories_each: int
    replication: int
    racks: int
    sigma: float = 1.2
    capacities: tuple[int, ...] = (1,)


SMALL = (
    Shape("2,000 x 1 on 30", 2000, 6, 5, 1, 0),
    Shape("2,000 x 3 on 30", 2000, 6, 5, 3, 0),
    Shape("2,000 x 3 on 30, 3 racks", 2000, 6, 5, 3, 3),
)
HEAVY_TAILED = Shape("2,000 x 3 on 30, heavy-tailed", 2000, 6, 5, 3, 0, 2.0, (1, 2, 4))
LARGE = Shape("100,000 x 3 on 1,000, 5 racks", 100_000, 100, 10, 3, 5)


def skewed_cluster(shape: Shape, seed: int) -> ClusterModel:
    """Return partitions of log-normal sizes in unequally popular directories."""
    random = Random(seed)
    result = shape.directories_each
    count = shape.brokers * result
    units = [shape.capacities[number % len(shape.capacities)] for number in range(count)]
    popularity = [random.choice((0.3, 0.7, 1.0, 1.4)) * unit for unit in units]
    by_rack: dict[int, list[int]] = {}
    for broker in range(shape.brokers):
        by_rack.setdefault(broker % shape.racks if shape.racks else broker, []).append(broker)
    partitions, used = [], [0] * count
    for number in range(shape.partitions):
        size = int(2**20 * random.lognormvariate(9, shape.sigma))
        racks = random.sample(sorted(by_rack), shape.replication)
        brokers = [random.choice(by_rack[rack]) for rack in racks]
        places = tuple(
            random.choices(
                range(b * result, b * result + result), popularity[b * result : b * result + result]
            )[0]
            for b in brokers
        )
        for place in places:
            used[place] += size
        name = TopicPartition(f"topic{number // 50}", number % 50)
        sizes = (size,) * shape.replication
        partitions.append(PartitionModel(name, places, sizes, leader=brokers[0]))
    fullest = max(use / unit for use, unit in zip(used, units, strict=True))
    capacity = max(int(sum(used) / sum(units) / MEAN_FILL), int(fullest / LIMITS.max_fill))
    return ClusterModel(
        [
            BrokerModel(b, f"r{b % shape.racks}" if shape.racks else None)
            for b in range(shape.brokers)
        ],
        [
            DirectoryModel(d // result, f"/d{d % result}", capacity * units[d], used[d])
            for d in range(count)
        ],
        partitions,
    )


def count_rule(cluster: ClusterModel) -> list[tuple[int, ...]]:
    """Place all replicas anew: brokers in turn over the racks, directories by their replicas."""
    racks: dict[str, list[int]] = {}
    for broker in cluster.brokers:
        racks.setdefault(broker.rack or str(broker.broker_id), []).append(broker.broker_id)
    columns = [racks[name] for name in sorted(racks)]
    longest = max(map(len, columns))
    ring = [column[row % len(column)] for row in range(longest) for column in columns]
    own = {broker.broker_id: cluster.directories_of(broker.broker_id) for broker in cluster.brokers}
    counts = [0] * len(cluster.directories)
    placed = []
    for number, partition in enumerate(cluster.partitions):
        places = []
        for slot in range(len(partition.directories)):
            place = min(own[ring[(number + slot) % len(ring)]], key=lambda d: (counts[d], d))
            counts[place] += 1
            places.append(place)
        placed.append(tuple(places))
    return placed


def first_fit_decreasing(cluster: ClusterModel) -> list[tuple[int, ...]]:
    """Take replicas out of directories above the window, largest first, to the first that fits."""
    used = [directory.used_bytes for directory in cluster.directories]
    capacity = [directory.capacity_bytes for directory in cluster.directories]
    racks = {broker.broker_id: broker.rack or str(broker.broker_id) for broker in cluster.brokers}
    broker = [directory.broker_id for directory in cluster.directories]
    mean = sum(used) / sum(capacity)
    low, high = mean - LIMITS.spread / 2, mean + LIMITS.spread / 2
    placed = [list(partition.directories) for partition in cluster.partitions]
    replicas = [
        (-size, number, slot)
        for number, partition in enumerate(cluster.partitions)
        for slot, size in enumerate(partition.size_bytes)
    ]
    for negative, number, slot in sorted(replicas):
        source, size = placed[number][slot], -negative
        if used[source] <= high * capacity[source]:
            continue
        others = [place for place in placed[number] if place != source]
        taken = {racks[broker[place]] for place in others}
        for target in range(len(used)):
            is_legal = broker[target] == broker[source] or racks[broker[target]] not in taken
            fits = used[target] < low * capacity[target]
            if is_legal and fits and used[target] + size <= high * capacity[target]:
                placed[number][slot] = target
                used[source] -= size
                used[target] += size
                break
    return [tuple(places) for places in placed]


def moved_and_spread(cluster: ClusterModel, placed: list[tuple[int, ...]]) -> tuple[int, float]:
    """Return the bytes that change their directory, and the spread of the fills afterwards."""
    used = [0] * len(cluster.directories)
    moved = 0
    for partition, places in zip(cluster.partitions, placed, strict=True):
        rows = zip(partition.directories, places, partition.size_bytes, strict=True)
        for before, after, size in rows:
            used[after] += size
            moved += size if before != after else 0
    fills = [u / d.capacity_bytes for u, d in zip(used, cluster.directories, strict=True)]
    return moved, max(fills) - min(fills)


def measure(shape: Shape, seed: int) -> None:
    cluster = skewed_cluster(shape, seed)
    begin = time.perf_counter()
    plan = balance(cluster, LIMITS)
    taken_s = time.perf_counter() - begin
    fills = [directory.fill for directory in cluster.directories]
    bound = plan.lower_bound_bytes
    print(
        f"{shape.name}, seed {seed}: spread {100 * (max(fills) - min(fills)):.1f} points, ", end=""
    )
    print(f"lower bound {size_text(bound)}")
    row("spindle plan", plan.moved_bytes, plan.spread, bound, taken_s)
    rules: dict[str, Callable[[ClusterModel], list[tuple[int, ...]]]] = {
        "first-fit-decreasing": first_fit_decreasing,
        "Kafka's count rule": count_rule,
    }
    for name, rule in rules.items():
        begin = time.perf_counter()
        placed = rule(cluster)
        taken_s = time.perf_counter() - begin
        row(name, *moved_and_spread(cluster, placed), bound, taken_s)


def row(name: str, moved: int, spread: float, bound: int, taken_s: float) -> None:
    print(
        f"  {name:22} moved {size_text(moved):>11} = {moved / bound:6.3f} x bound   "
        f"spread {100 * spread:5.1f} points   {taken_s:6.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 100,000 partitions")
    options = parser.parse_args()
    for shape in (*SMALL, HEAVY_TAILED):
        for seed in SEEDS:
            measure(shape, seed)
    if options.large:
        measure(LARGE, 1)
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory of the process: {size_text(peak_bytes)}")


if __name__ == "__main__":
    main()
