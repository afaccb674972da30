"""Small clusters of all shapes, made from a seed."""

from random import Random

from spindle.common.ids import TopicPartition
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel

GIB = 2**30
MIB = 2**20


def small_cluster(seed: int) -> ClusterModel:
    """Return a cluster of any shape: cordons, dead disks, foreign files, leaderless partitions."""
    random = Random(seed)
    broker_count = random.randint(1, 6)
    rack_count = random.choice((0, 0, 2, 3))
    brokers = [
        BrokerModel(number, f"r{random.randrange(rack_count)}" if rack_count else None)
        for number in range(broker_count)
    ]
    shapes = [
        (broker, path, random.random() < 0.08, random.random() > 0.06)
        for broker in range(broker_count)
        for path in range(random.randint(1, 4))
    ]
    used = [random.choice((0, 0, 5)) * GIB for _ in shapes]
    partitions = []
    for number in range(random.randint(0, 40)):
        replication = random.randint(1, min(3, broker_count))
        size = random.choice((0, 1, 3, 10, 40)) * GIB // random.randint(1, 9)
        chosen = random.sample(range(broker_count), replication)
        slots = [
            random.choice([i for i, shape in enumerate(shapes) if shape[0] == broker])
            for broker in chosen
        ]
        for slot in slots:
            used[slot] += size
        partitions.append(
            PartitionModel(
                TopicPartition("t", number),
                tuple(slots),
                (size,) * replication,
                random.choice((0, 0, 0, MIB, 30 * MIB, 60 * MIB)) if number % 9 == 0 else 0,
                random.choice((*chosen, -1)),
            )
        )
    directories = [
        DirectoryModel(
            broker,
            f"/d{path}",
            int(used[number] * random.uniform(1.0, 2.5)) + random.choice((0, 20, 100)) * GIB,
            used[number],
            is_cordoned,
            is_online,
        )
        for number, (broker, path, is_cordoned, is_online) in enumerate(shapes)
    ]
    return ClusterModel(brokers, directories, partitions)
