"""The throttle of an execution: lower while replicas fall behind, and as wanted afterwards."""

from collections.abc import Collection, Mapping
from typing import Final

from spindle.cli.execution.steps import ExecutionStep
from spindle.client.admin.partitions import Reassignment
from spindle.client.cluster import ClusterView
from spindle.common.counted import counted, first_names
from spindle.common.ids import TopicPartition
from spindle.common.sizes import size_text

_LOWEST_SHARE: Final = 1 / 8
"""A replica that never catches up must not stop an execution for ever."""
_MOST_NAMED: Final = 3


class ThrottleBackoff:
    """Halves the throttle at each look that finds replicas behind; doubles it at each other one.

    Attributes:
        bytes_per_second: the present throttle.

    Args:
        most_bytes_per_second: the throttle while no replica is behind.
    """

    def __init__(self, most_bytes_per_second: int) -> None:
        self._most_bytes_per_second = most_bytes_per_second
        self._share = 1.0

    @property
    def bytes_per_second(self) -> int:
        return max(1, round(self._most_bytes_per_second * self._share))

    def see(self, lagging: Collection[TopicPartition]) -> ExecutionStep | None:
        """Take note of a look at the cluster; return the step that tells another throttle."""
        before = self._share
        if lagging:
            self._share = max(_LOWEST_SHARE, before / 2)
        else:
            self._share = min(1.0, before * 2)
        if self._share == before:
            return None
        rate = f"{size_text(self.bytes_per_second)}/s"
        text = f"no replica is behind: the throttle rises to {rate}"
        if lagging:
            names = first_names(sorted(lagging), _MOST_NAMED)
            text = (
                f"replicas of {counted(len(lagging), 'partition')} are behind ({names}): "
                f"the throttle falls to {rate}"
            )
        facts = {"bytesPerSecond": self.bytes_per_second, "underReplicated": len(lagging)}
        return ExecutionStep("throttle", text, facts)


def lagging_partitions(
    view: ClusterView, reassigned: Mapping[TopicPartition, Reassignment]
) -> list[TopicPartition]:
    """Return the partitions with replicas that could be in sync, and are not.

    Replicas that a move makes, and those that are offline, do not count: a lower throttle does not
    help them.
    """
    found = []
    for name, topic in view.topics.items():
        for number, each in topic.partitions.items():
            where = TopicPartition(name, number)
            moved = reassigned.get(where)
            adding = moved.adding if moved is not None else ()
            if set(each.replicas).difference(each.isr, each.offline_replicas, adding):
                found.append(where)
    return found
