"""The replicas of each log directory: their number, size and leaders."""

from collections import Counter

from spindle.disks.log_directory import LogDirectory
from spindle.replicas.moves.move import Moves
from spindle.replicas.partition import Partition


class DirectoryCounts:
    """Counts of the replicas that were added so far.

    Attributes:
        size_bytes: bytes of the segments of current and future replicas.
        partitions: current replicas.
        futures: replicas that move into the directory.
        leaders: partitions that this broker leads with a replica in the directory.
    """

    def __init__(self) -> None:
        self.size_bytes: Counter[LogDirectory] = Counter()
        self.partitions: Counter[LogDirectory] = Counter()
        self.futures: Counter[LogDirectory] = Counter()
        self.leaders: Counter[LogDirectory] = Counter()

    def add(self, partition: Partition) -> None:
        """Add a current replica. It leads nothing if its directory has failed."""
        directory = partition.directory
        self.size_bytes[directory] += partition.log.size_bytes
        self.partitions[directory] += 1
        if partition.leader is not None and not directory.is_offline:
            self.leaders[directory] += 1

    def add_futures(self, moves: Moves) -> None:
        """Add the future replicas of all moves."""
        for move in moves:
            self.size_bytes[move.target] += move.future.size_bytes
            self.futures[move.target] += 1
