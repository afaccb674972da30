"""A replica that has moved stays there: the metadata names each directory once."""

from functools import partial
from pathlib import Path

from node_harness import Home, batch_of, connected, running
from waiting import until

from spindle.common.uuids import Uuid
from spindle.disks.log_directory import LogDirectory
from spindle.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from spindle.publication.loader import Publication
from spindle.publication.publishers import MetadataPublisher
from spindle.replicas.replica_manager import ReplicaManager

PARTITIONS = 8
Wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir


class Directories(MetadataPublisher):
    """Notes the directory of each partition whenever it changes."""

    def __init__(self) -> None:
        self.of: dict[int, list[Uuid]] = {}

    def on_publication(self, publication: Publication) -> None:
        topic = publication.image.topics.by_name.get("moved")
        for number, partition in topic.partitions.items() if topic else ():
            seen = self.of.setdefault(number, [])
            if seen[-1:] != [partition.directory(1)]:
                seen.append(partition.directory(1))


def _moved_in(replicas: ReplicaManager, directory: LogDirectory) -> int:
    return sum(p.topic_partition.topic == "moved" for p in replicas.in_directory(directory))


def all_are_in(replicas: ReplicaManager, target: LogDirectory) -> bool:
    return _moved_in(replicas, target) == PARTITIONS and not list(replicas.moves)


async def test_a_promotion_is_not_assigned_back_and_copied_again(tmp_path: Path) -> None:
    """Kafka's brokers at times assign the former directory again and repeat the move."""

    home = Home(tmp_path, directories=2).format()
    async with running(home) as node, connected(node) as client:
        directories = Directories()
        node.publisher.add(directories)
        await client.create_topic("moved", PARTITIONS)
        assert node.broker is not None
        replicas = node.broker.replicas
        for number in range(PARTITIONS):
            await client.produce("moved", number, batch_of(bytes(50_000)))
        first, second = replicas.directories
        for turn, target in enumerate((first, second, first)):
            topic = Wanted.AlterReplicaLogDirTopic(name="moved", partitions=[*range(PARTITIONS)])
            request = AlterReplicaLogDirsRequest(dirs=[Wanted(path=target.path, topics=[topic])])
            before = {n: len(seen) for n, seen in directories.of.items()}
            there = {
                p.topic_partition.partition
                for p in replicas.in_directory(target)
                if p.topic_partition.topic == "moved"
            }
            await client.ask(request)
            await until(partial(all_are_in, replicas, target))
            # Everything that a swap sets off has happened when the next topic is there.
            await client.create_topic(f"after-{turn}")
            assert not list(replicas.moves)
            for number, seen in directories.of.items():
                added = seen[before[number] :]
                assert added in ([], [target.directory_id]), number
                assert added or number in there
