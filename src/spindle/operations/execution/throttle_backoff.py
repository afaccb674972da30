"""The throttle of an execution: reduced while replicas are out of sync, then raised again."""

from collections.abc import Collection, Mapping
from typing import Final

from spindle.client.admin.partitions import Reassignment
from spindle.client.cluster_metadata import ClusterView
from spindle.common.ids import TopicPartition
from spindle.operations.events import ThrottleChanged

_MIN_SHARE: Final = 1 / 8
"""A replica that never catches up must not stop an execution."""


class ThrottleBackoff:
    """Halves the throttle at each check with replicas out of sync; doubles it at other checks.

    Attributes:
        bytes_per_second: the present throttle.

    Args:
        max_bytes_per_second: the throttle while no replica is behind.
    """

    def __init__(self, max_bytes_per_second: int) -> None:
        self._max_bytes_per_second = max_bytes_per_second
        self._share = 1.0

    @property
    def bytes_per_second(self) -> int:
        return max(1, round(self._max_bytes_per_second * self._share))

    def update(self, lagging: Collection[TopicPartition]) -> ThrottleChanged | None:
        """Adapt the throttle to the lagging partitions; return an event if it has changed."""
        before = self._share
        if lagging:
            self._share = max(_MIN_SHARE, before / 2)
        else:
            self._share = min(1.0, before * 2)
        if self._share == before:
            return None
        return ThrottleChanged(self.bytes_per_second, len(lagging), tuple(lagging))


def lagging_partitions(
    view: ClusterView, reassigned: Mapping[TopicPartition, Reassignment]
) -> list[TopicPartition]:
    """Return the partitions with replicas that could be in sync but are not.

    Replicas that a move adds, and offline replicas, do not count: a lower throttle does not help
    them.
    """
    lagging_partitions = []
    for name, topic in view.topics.items():
        for number, partition in topic.partitions.items():
            where = TopicPartition(name, number)
            moved = reassigned.get(where)
            adding = moved.adding if moved is not None else ()
            if set(partition.replicas).difference(
                partition.isr, partition.offline_replicas, adding
            ):
                lagging_partitions.append(where)
    return lagging_partitions
