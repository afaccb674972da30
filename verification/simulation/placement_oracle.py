"""Where a broker creates replicas.

Never in a cordoned directory while another one takes them, and nowhere while the replica may be in
a directory that is offline.
"""

from spindle.common.ids import TopicPartition
from spindle.common.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from spindle.metadata.image import MetadataImage
from spindle.replicas.partition import Partition
from verification.simulation.cluster import SimulatedNode
from verification.simulation.verdict import Verdict


class PlacementOracle:
    """Watches one life of one broker.

    Args:
        asked: (broker, partition, path) of the moves that an admin has asked for at any time.
    """

    def __init__(
        self,
        simulated: SimulatedNode,
        asked: set[tuple[int, TopicPartition, str]],
        verdict: Verdict,
    ) -> None:
        self._simulated = simulated
        self._asked = asked
        self._verdict = verdict
        self._found = self._names()

    def _names(self) -> set[tuple[str, str]]:
        """Return path and partition of all logs that this life finds, future ones included."""
        disks = self._simulated.machine.disks
        names = set()
        with disks.observed():
            for path in (f"/{name}" for name in disks.list_directory("/")):
                if disks.is_directory(path):
                    names |= {(path, name.partition(".")[0]) for name in disks.list_directory(path)}
        return names

    def hosted(self, partition: Partition, image: MetadataImage) -> None:
        """Check a replica that this broker has begun to host."""
        node = self._simulated.node
        if node is None or node.broker is None:
            return
        broker_id, where = self._simulated.plan.node_id, partition.topic_partition
        replicas, directory = node.broker.replicas, partition.directory
        if (directory.path, str(where)) in self._found:
            return
        if (broker_id, where, directory.path) in self._asked:
            return
        registration = image.topics.partition(partition.topic_id, where.partition)
        recorded = DIRECTORY_UNASSIGNED
        if registration is not None and broker_id in registration.replicas:
            recorded = registration.directory(broker_id)
        if recorded == directory.directory_id:
            return
        online = [d for d in replicas.directories if not d.is_offline]
        others = [d.path for d in online if not replicas.is_cordoned(d)]
        self._verdict.check(
            not others or not replicas.is_cordoned(directory),
            f"{self._simulated} creates {where} in {directory.path}, which is cordoned, though "
            f"{others} are not",
        )
        self._verdict.check(
            len(online) == len(replicas.directories)
            or recorded in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING),
            f"{self._simulated} creates {where} in {directory.path}, though it may have it in a "
            f"directory that is offline",
        )
