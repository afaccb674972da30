"""The goals of plans: balance a cluster, drain directories or a broker, evaluate a change.

Each function is pure: the same cluster and limits give the same plan.
"""

from collections.abc import Collection, Iterable

from spindle.common.text import count_noun, size_text
from spindle.planner.layout import Layout
from spindle.planner.leaders import even_leaders
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.move_selection import empty_directories, level_out
from spindle.planner.plan import PlacementPlan, PlannedRound
from spindle.planner.rounds import RoundPlanner
from spindle.planner.target_range import FillWindow, cheapest_window
from spindle.planner.what_if import ClusterChanges, changed
from spindle.planner.zones import Zone, find_zones


def balance(cluster: ClusterModel, limits: PlanLimits) -> PlacementPlan:
    """Return a plan after which the fills of all directories differ by at most `limits.spread`.

    If that is impossible, the plan minimises the spread, and its remarks give the reasons.
    """
    return _plan(cluster, (), limits, is_levelled=True)


def drain(cluster: ClusterModel, directories: Collection[int], limits: PlanLimits) -> PlacementPlan:
    """Return a plan that empties directories and moves nothing else, if that is possible.

    Args:
        directories: indexes into `cluster.directories`.

    Raises:
        Infeasible: a replica has no other place.
    """
    return _plan(cluster, directories, limits, is_levelled=False)


def decommission(cluster: ClusterModel, broker_id: int, limits: PlanLimits) -> PlacementPlan:
    """Return a plan that moves all replicas off a broker.

    Raises:
        Infeasible: a replica has no other place.
    """
    return drain(cluster, cluster.directories_of(broker_id), limits)


def what_if(cluster: ClusterModel, changes: ClusterChanges, limits: PlanLimits) -> PlacementPlan:
    """Return the plan for a changed cluster: empty the removed directories, then balance the rest.

    Raises:
        Infeasible: a replica has no other place.
        ValueError: the changes do not fit the cluster.
    """
    future, leaving = changed(cluster, changes)
    return _plan(future, leaving, limits, is_levelled=True)


def _plan(
    cluster: ClusterModel, leaving: Collection[int], limits: PlanLimits, *, is_levelled: bool
) -> PlacementPlan:
    def unmoved() -> Layout:
        return Layout(
            cluster, leaving, keeps_racks=limits.keeps_racks, cordons_leaving=not is_levelled
        )

    layout = unmoved()
    zones = find_zones(layout)
    window = cheapest_window(layout, zones, limits.spread) if is_levelled else None
    empty_directories(layout, zones, window, limits)
    if window is not None:
        level_out(layout, limits.spread, limits)
    planner = RoundPlanner(unmoved(), layout.moved(), limits)
    planner.run()
    if is_levelled and planner.layout.spread() > limits.spread:
        planner.drop_rounds_that_worsen()
    spread = planner.layout.spread()
    remarks = () if window is None else tuple(_remarks(planner, window, zones, limits))
    places = planner.layout.places()
    movable = range(len(places)) if is_levelled else moved_to_other_brokers(planner.rounds, cluster)
    return PlacementPlan(
        cluster=cluster,
        leaving=tuple(layout.leaving),
        rounds=tuple(planner.rounds),
        used_bytes=tuple(planner.layout.used),
        lower_bound_bytes=_lower_bound(cluster, leaving, limits, window, spread),
        spread_before=planner.initial_spread,
        spread=spread,
        remarks=remarks,
        preferred=even_leaders(cluster, places, movable),
    )


def moved_to_other_brokers(rounds: Iterable[PlannedRound], cluster: ClusterModel) -> set[int]:
    """Return the indexes of the partitions with a move to another broker."""
    brokers = [directory.broker_id for directory in cluster.directories]
    return {
        move.partition
        for planned_round in rounds
        for move in planned_round.moves
        if brokers[move.source] != brokers[move.target]
    }


def _lower_bound(
    cluster: ClusterModel,
    leaving: Collection[int],
    limits: PlanLimits,
    window: FillWindow | None,
    spread: float,
) -> int:
    """Return the lower bound of moved bytes for the wanted spread, or the reached one if larger."""
    layout = Layout(cluster, leaving, keeps_racks=limits.keeps_racks)
    if window is None:
        return sum(layout.replica_bytes[directory] for directory in layout.leaving)
    if spread <= limits.spread:
        return window.lower_bound_bytes
    return cheapest_window(layout, find_zones(layout), spread).lower_bound_bytes


def _remarks(
    planner: RoundPlanner, window: FillWindow, zones: Collection[Zone], limits: PlanLimits
) -> list[str]:
    """Return the reasons why the spread is larger than wanted."""
    remarks = planner.fast_remarks()
    if len(planner.dropped) > len(remarks):
        moves = count_noun(len(planner.dropped), "move")
        size = size_text(sum(move.size_bytes for move in planner.dropped))
        remarks.append(
            f"the plan leaves out {moves}, {size}: there is no room for the copies, or the fills "
            "are no closer together after them"
        )
    layout = planner.layout
    spread = layout.spread()
    # Compared as shown: 5.04 points are 5.0 to a reader, who wants no remark about them.
    if round(100 * spread, 1) <= round(100 * limits.spread, 1):
        return remarks
    reason = "the planner finds no further move of a whole replica that brings them closer together"
    if not window.is_wanted_spread:
        reason = "a broker has each partition at most once, and one of them has room for more"
    if window.too_large is not None:
        name = layout.cluster.partitions[window.too_large].name
        reason = f"a replica of {name} alone fills more of any directory that it could be in"
    if not window.is_wanted_spread and len(zones) > 1:
        reason = (
            "replication and racks keep the replicas in "
            f"{len(zones)} parts of the cluster, which are not equally full"
        )
    high = max(layout.staying(), key=lambda each: (layout.fill(each), -each))
    fixed = layout.fill(high) - layout.replica_bytes[high] / layout.capacity_bytes[high]
    if fixed > layout.fill(high) - spread + limits.spread:
        reason = f"other files than replicas fill {layout.cluster.directories[high]}"
    remarks.append(
        f"the fills stay {100 * spread:.1f} points apart, wanted are "
        f"{100 * limits.spread:.1f}: {reason}"
    )
    return remarks
