"""Where a broker creates replicas: never in a cordoned directory while another one takes them."""

from spindle.common.ids import TopicPartition
from spindle.metadata.image import MetadataImage
from spindle.replicas.partition import Partition
from spindle.testing.simulation.cluster import SimulatedNode
from spindle.testing.simulation.verdict import Verdict


class PlacementTruth:
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
        found = set()
        with disks.observed():
            for path in self._simulated.config.log_dirs:
                if disks.is_directory(path):
                    found |= {(path, name.partition(".")[0]) for name in disks.list_directory(path)}
        return found

    def hosted(self, partition: Partition, image: MetadataImage) -> None:
        """Check a replica that this broker has begun to host."""
        node = self._simulated.node
        if node is None or node.broker is None:
            return
        broker_id, where = self._simulated.plan.node_id, partition.topic_partition
        replicas, directory = node.broker.replicas, partition.directory
        if (directory.path, str(where)) in self._found or not replicas.is_cordoned(directory):
            return
        registration = image.topics.partition(partition.topic_id, where.partition)
        is_named = (broker_id, where, directory.path) in self._asked or (
            registration is not None and registration.directory(broker_id) == directory.directory_id
        )
        others = [
            d.path for d in replicas.directories if not d.is_offline and not replicas.is_cordoned(d)
        ]
        self._verdict.check(
            is_named or not others,
            f"{self._simulated} creates {where} in {directory.path}, which is cordoned, though "
            f"{others} are not",
        )
