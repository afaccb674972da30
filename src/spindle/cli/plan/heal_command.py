"""`spindle plan heal`: the moves that a healing would make now."""

import click

from spindle.cli.examples import examples
from spindle.cli.heal.fill_options import fill_options, healing_limits
from spindle.cli.plan.plan_command import OUT, Goal, plan_command
from spindle.cli.plan.snapshot import UNREADABLE
from spindle.planner.healing import heal
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan


@click.command(
    "heal",
    epilog=examples("spindle plan heal --above 85 --down-to 80"),
)
@fill_options
@OUT
@plan_command
def heal_command(above: float, down_to: float) -> Goal:
    """Plan moves of replicas out of directories that are too full or have failed.

    spindle heal makes these moves, once a failed directory or broker has been away for its --grace.
    """
    healing = healing_limits(above, down_to)

    def make(cluster: ClusterModel, limits: PlanLimits) -> PlacementPlan:
        directories = enumerate(cluster.directories)
        failed = [number for number, each in directories if not each.is_online]
        return heal(cluster, cluster, failed, healing, limits)

    goal = f"empty failed directories, and those above {above:g}% down to {down_to:g}%"
    return Goal(goal, make, "spindle heal", _afterwards)


def _afterwards(cluster: ClusterModel) -> list[str]:
    """Return what to do with failed directories after their replicas have moved away."""
    failed = [each for each in cluster.directories if not each.is_online]
    return [
        f"replace the disk of {each}, then spindle disks readmit {each.broker_id} {each.path}; or "
        f"remove the directory from the broker: spindle disks retire {each.broker_id} {each.path}"
        for each in failed
        if each.path != UNREADABLE
    ]
