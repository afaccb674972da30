"""Small clusters of all shapes, made from a seed."""

from dataclasses import replace
from random import Random

from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel

GIB = 2**30
MIB = 2**20
_SIZES = (0, 1, 700, MIB, GIB, 3 * GIB, 10 * GIB, 40 * GIB, 40 * GIB, 900 * GIB)
_SILENT = "(unreadable)"
"""The path of all replicas of a broker that does not answer."""


def small_cluster(seed: int) -> ClusterModel:
    """Return a cluster of any shape.

    There are brokers that do not answer, cordoned and failed directories, directories of unknown
    size, nearly full ones, foreign files, followers that lag, and partitions without a leader.
    """
    random = Random(seed)
    brokers = _brokers(random)
    shapes = [shape for broker in brokers for shape in _directories(random, broker.broker_id)]
    held = [0] * len(shapes)
    partitions = []
    for number in range(random.randint(0, 40)):
        partition = _partition(random, number, len(brokers), shapes)
        for place, size in zip(partition.directories, partition.size_bytes, strict=True):
            held[place] += size
        partitions.append(partition)
    directories = [
        _filled(random, shape, bytes_) for shape, bytes_ in zip(shapes, held, strict=True)
    ]
    deletions = Random(f"deletions of {seed}")
    directories = [_with_deletions(deletions, directory) for directory in directories]
    return ClusterModel(brokers, directories, partitions)


def _brokers(random: Random) -> list[BrokerModel]:
    """Return brokers without racks, in racks, or some of them in racks."""
    racks = random.choice(((None,), (None,), ("r0", "r1"), ("r0", "r1", "r2"), ("r0", "r1", None)))
    return [BrokerModel(number, random.choice(racks)) for number in range(random.randint(1, 7))]


def _directories(random: Random, broker_id: int) -> list[DirectoryModel]:
    """Return the directories of a broker, without sizes."""
    if random.random() < 0.05:
        return [DirectoryModel(broker_id, _SILENT, 0, 0, is_online=False)]
    return [
        DirectoryModel(
            broker_id,
            f"/d{number}",
            0,
            0,
            is_cordoned=random.random() < 0.08,
            is_online=random.random() > 0.06,
        )
        for number in range(random.randint(1, 4))
    ]


def _partition(
    random: Random, number: int, broker_count: int, shapes: list[DirectoryModel]
) -> PartitionModel:
    replication = random.choice((1, 2, 3, 3, random.randint(1, 5)))
    chosen = random.sample(range(broker_count), min(replication, broker_count))
    places = tuple(
        random.choice([i for i, shape in enumerate(shapes) if shape.broker_id == broker])
        for broker in chosen
    )
    size = random.choice(_SIZES) // random.randint(1, 9)
    sizes = [size if random.random() < 0.9 else size // 2 for _ in places]
    online = [shapes[place].broker_id for place in places if shapes[place].is_online]
    has_leader = online and random.random() > 0.05
    return PartitionModel(
        TopicPartition("t", number),
        places,
        tuple(sizes),
        random.choice((0, 0, 0, MIB, 30 * MIB, 60 * MIB)) if number % 9 == 0 else 0,
        random.choice(online) if has_leader else NO_LEADER,
    )


def _with_deletions(random: Random, directory: DirectoryModel) -> DirectoryModel:
    """Return a directory with replicas that are deleted and not gone yet."""
    deleted = 0
    if directory.is_online and random.random() < 0.4:
        free = max(0, directory.capacity_bytes - directory.used_bytes)
        deleted = int(free * random.uniform(0.0, 1.0))
    return replace(
        directory,
        used_bytes=directory.used_bytes + deleted,
        deleted_bytes=deleted,
        deletion_delay_ms=random.choice((0, 60_000, 3_600_000)),
    )


def _filled(random: Random, shape: DirectoryModel, held_bytes: int) -> DirectoryModel:
    """Return a directory with its sizes. Nobody tells those of an offline one."""
    used = held_bytes + random.choice((0, 0, 5)) * GIB
    capacity = int(used * random.uniform(1.0, 2.5)) + random.choice((0, 20, 100, 1000)) * GIB
    if random.random() < 0.1:
        capacity = int(used * 1.01)
    if random.random() < 0.04 or not shape.is_online:
        capacity = 0
    return DirectoryModel(
        shape.broker_id, shape.path, capacity, used, shape.is_cordoned, shape.is_online
    )
