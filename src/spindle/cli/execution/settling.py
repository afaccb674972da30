"""The first look at brokers that do not report deletions: older ones have to end first."""

import time
from typing import Final

from spindle.cli.durations import span_text
from spindle.cli.execution.steps import ExecutionStep, Tell
from spindle.cli.plan.snapshot import ClusterSnapshot
from spindle.common.counted import first_names
from spindle.planner.plan import PlacementPlan

_MOST_NAMED: Final = 3
_MS: Final = 1000


class Settling:
    """Waits once, for as long as deleted replicas keep their space.

    Kafka's brokers show how much of a directory is used, and not how much of it belongs to replicas
    that were deleted a moment ago. A plan that takes that for fill moves too much.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._has_waited = False

    def is_over(self, snapshot: ClusterSnapshot, plan: PlacementPlan) -> bool:
        """Wait if the plan moves replicas of a cluster of which too little is known.

        Returns:
            Whether the cluster must be read again.
        """
        if self._has_waited or not plan.rounds or not snapshot.unexplained:
            return False
        self._has_waited = True
        names = first_names([str(each) for each in snapshot.unexplained], _MOST_NAMED)
        delay_ms = max(each.deletion_delay_ms for each in snapshot.unexplained)
        text = (
            f"waiting {span_text(delay_ms / _MS)}: {names} "
            f"{'have' if len(snapshot.unexplained) > 1 else 'has'} bytes that are no replicas, and "
            "brokers of Kafka do not report whether these were deleted a moment ago"
        )
        facts = {"directories": [str(each) for each in snapshot.unexplained], "waitMs": delay_ms}
        self._tell(ExecutionStep("waiting", text, facts))
        time.sleep(delay_ms / _MS)
        return True
