"""The plan that keeps a cluster within limits: replicas leave failed and overfull directories.

It moves as few bytes as possible. A replica that fits nowhere is reported and does not block the
others.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from spindle.common.text import count_noun
from spindle.planner.forecast.forecast_plan import with_current_sizes
from spindle.planner.free_space import FreeSpaceIndex
from spindle.planner.layout import Layout
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan
from spindle.planner.rounds import RoundPlanner

_MAX_TRIED: Final = 200
"""Maximum number of replicas of one directory that are tried."""


@dataclass(frozen=True, slots=True)
class HealingLimits:
    """The fill at which replicas leave a directory, and the fill to reach.

    Attributes:
        trigger_fill: replicas leave a directory above this share of its capacity.
        target_fill: they leave until this share is reached, and no receiving directory gets above
            it, so that the next check finds nothing to do.

    Raises:
        ValueError: the shares are out of their range.
    """

    trigger_fill: float = 0.85
    target_fill: float = 0.80

    def __post_init__(self) -> None:
        if not 0.0 < self.target_fill <= self.trigger_fill <= 1.0:
            raise ValueError(
                f"directories above {self.trigger_fill:.0%} give replicas until they are at "
                f"{self.target_fill:.0%}: the second share must be above 0% and not above the "
                "first one, and the first one not above 100%"
            )


def heal(
    cluster: ClusterModel,
    forecast: ClusterModel,
    failed: Collection[int],
    healing: HealingLimits,
    limits: PlanLimits,
) -> PlacementPlan:
    """Return a plan that empties failed directories and relieves full ones, as far as possible.

    Its remarks name what it cannot help. Its durations are those for the forecast sizes.

    Args:
        forecast: the same cluster with the sizes that it will have; all fills are judged by it.
        failed: indexes of directories that are offline.
    """
    healer = _Healer(Layout(forecast, keeps_racks=limits.keeps_racks), healing, limits)
    for directory in sorted(failed):
        healer.evacuate(directory)
    for directory in healer.too_full():
        healer.relieve(directory)
    planner = RoundPlanner(
        Layout(forecast, keeps_racks=limits.keeps_racks), healer.layout.moved(), limits
    )
    planner.run()
    plan = PlacementPlan(
        cluster=forecast,
        leaving=(),
        rounds=tuple(planner.rounds),
        used_bytes=tuple(planner.layout.used),
        lower_bound_bytes=0,
        spread_before=planner.initial_spread,
        spread=planner.layout.spread(),
        remarks=(*healer.remarks, *_left_out(planner)),
    )
    return with_current_sizes(plan, cluster)


def _left_out(planner: RoundPlanner) -> list[str]:
    """Return a remark for each move that is in no round."""
    fast = planner.fast_remarks()
    others = len(planner.dropped) - len(fast)
    if not others:
        return fast
    count = count_noun(others, "move")
    return [*fast, f"the plan leaves out {count}: there is no room for the copies"]


class _Healer:
    def __init__(self, layout: Layout, healing: HealingLimits, limits: PlanLimits) -> None:
        self.layout = layout
        self.remarks: list[str] = []
        self._healing = healing
        fill = min(healing.target_fill, limits.max_fill)
        self._rooms = FreeSpaceIndex(layout, FreeSpaceIndex.ceilings(layout, fill))

    def evacuate(self, directory: int) -> None:
        """Move all replicas out of a directory that fit elsewhere and can be copied."""
        held = self.layout.largest_first([directory])
        left = [replica for replica in held if not self._rooms.place(replica)]
        if left:
            model = self.layout.cluster.partitions[self.layout.partition[left[0]]]
            self.remarks.append(
                f"{count_noun(len(left), 'replica')} of {self._name(directory)}, such as "
                f"{model.name}, cannot be made elsewhere: there is no leader to copy from, or no "
                f"other broker, rack or directory below {self._healing.target_fill:.0%}"
            )

    def too_full(self) -> list[int]:
        """Return the directories above the limit, the fullest one first."""
        full = [
            directory
            for directory in self.layout.staying()
            if self.layout.fill(directory) > self._healing.trigger_fill
        ]
        return sorted(full, key=lambda each: (-self.layout.fill(each), each))

    def relieve(self, directory: int) -> None:
        """Move replicas out of a directory until it is within its limit, with few moved bytes."""
        for replica in self.layout.largest_first([directory])[:_MAX_TRIED]:
            if 0 < self.layout.size[replica] <= self._above(directory):
                self._rooms.place(replica)
        for replica in self.layout.largest_first([directory])[::-1][:_MAX_TRIED]:
            if self._above(directory) <= 0:
                return
            if self.layout.size[replica] > 0:
                self._rooms.place(replica)
        if self._above(directory) > 0 and self.layout.fill(directory) > self._healing.trigger_fill:
            self.remarks.append(
                f"{self._name(directory)} stays at {self.layout.fill(directory):.1%}, above "
                f"{self._healing.trigger_fill:.0%}: no replica of it fits into another directory "
                f"below {self._healing.target_fill:.0%}; add a directory or delete records"
            )

    def _above(self, directory: int) -> float:
        capacity_bytes = self.layout.capacity_bytes[directory]
        return self.layout.used[directory] - self._healing.target_fill * capacity_bytes

    def _name(self, directory: int) -> str:
        return str(self.layout.cluster.directories[directory])
