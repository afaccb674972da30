"""`spindle plan balance`, `drain`, `decommission` and `heal`: the plan of one goal."""

import shlex

import click

from spindle.cli.examples import examples
from spindle.cli.heal.fill_options import fill_options, healing_limits
from spindle.cli.parameter_types import WholeRange
from spindle.cli.plan.place import parse_drain_target
from spindle.cli.plan.plan_command import OUT, SPREAD, PlanGoal, plan_command
from spindle.operations import plan
from spindle.operations.directories import UNREADABLE
from spindle.planner.model import ClusterModel


@click.command("drain", epilog=examples("spindle plan drain 2:/disk3 --html drain.html"))
@click.argument("place", metavar="BROKER[:DIR]")
@OUT
@plan_command
def drain_command(place: str) -> PlanGoal:
    """Plan moves of all replicas out of a broker, or out of its log directory DIR."""
    target = parse_drain_target(place)
    return PlanGoal(
        f"empty {target.text}",
        lambda client, settings: plan.drain(client, *target, settings),
        [f"spindle drain {shlex.quote(str(target))}"],
        already_reached=f"nothing to move: {target.text} has no replicas",
    )


@click.command(
    "decommission",
    epilog=examples("spindle plan decommission 3"),
)
@click.argument("broker", type=WholeRange(min=0))
@OUT
@plan_command
def decommission_command(broker: int) -> PlanGoal:
    """Plan moves of all replicas away from a broker, which may be dead already."""

    return PlanGoal(
        f"empty broker {broker}",
        lambda client, settings: plan.decommission(client, broker, settings),
        [f"spindle drain {broker} --then unregister"],
        already_reached=f"nothing to move: broker {broker} has no replicas",
    )


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
        ["spindle heal"],
        _afterwards,
        f"nothing to heal: no replica is in a failed directory, no directory is above "
        f"{trigger_fill:g}%",
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


@click.command("balance", epilog=examples("spindle plan balance --spread 10 --out moves"))
@SPREAD
@OUT
@plan_command
def balance_command() -> PlanGoal:
    """Plan the fewest moved bytes after which all directories are about equally full."""
    return PlanGoal("fill all directories equally", plan.balance, ["spindle balance"])
