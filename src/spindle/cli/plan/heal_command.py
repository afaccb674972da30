"""`spindle plan heal`: the moves that `spindle heal` would make now."""

import click

from spindle.cli.examples import examples
from spindle.cli.heal.fill_options import fill_options, healing_limits
from spindle.cli.plan.plan_command import OUT, PlanGoal, plan_command
from spindle.operations import plan
from spindle.operations.directories import UNREADABLE
from spindle.planner.model import ClusterModel


@click.command(
    "heal",
    epilog=examples("spindle plan heal --trigger-fill 85 --target-fill 80"),
)
@fill_options
@OUT
@plan_command
def heal_command(trigger_fill: float, target_fill: float) -> PlanGoal:
    """Plan moves of replicas out of directories that are too full or have failed.

    spindle heal makes these moves, once a failed directory or broker has been offline for --grace.
    """
    healing = healing_limits(trigger_fill, target_fill)

    goal = f"empty failed directories, and those above {trigger_fill:g}% down to {target_fill:g}%"
    return PlanGoal(
        goal,
        lambda client, settings: plan.heal(client, healing, settings),
        "spindle heal",
        _afterwards,
    )


def _afterwards(cluster: ClusterModel) -> list[str]:
    """Return the steps for failed directories after their replicas have moved away."""
    failed = [directory for directory in cluster.directories if not directory.is_online]
    return [
        f"replace the disk of {directory}, then spindle disks online {directory.broker_id} "
        f"{directory.path}; or "
        f"remove the directory from the broker: spindle disks remove {directory.broker_id} "
        f"{directory.path}"
        for directory in failed
        if directory.path != UNREADABLE
    ]
