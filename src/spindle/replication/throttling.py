"""Which replicas a replication throttle is for (KIP-73)."""

from typing import NamedTuple


class ThrottledPartitions(NamedTuple):
    """Partitions of a topic whose replica on this broker is throttled."""

    are_all: bool
    some: frozenset[int]

    def has(self, partition: int) -> bool:
        return self.are_all or partition in self.some


def throttled_partitions(entries: tuple[str, ...], broker_id: int) -> ThrottledPartitions:
    """Parse `leader.` or `follower.replication.throttled.replicas` for one broker.

    Args:
        entries: `*` alone, or pairs `partition:broker`.
    """
    pairs = [entry.split(":") for entry in entries if ":" in entry]
    return ThrottledPartitions(
        "*" in entries, frozenset(int(pair[0]) for pair in pairs if int(pair[1]) == broker_id)
    )
