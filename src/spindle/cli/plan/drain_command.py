"""`spindle plan drain`: empty a broker or one of its directories."""

import click

from spindle.cli.examples import examples
from spindle.cli.plan.place import parse_drain_target
from spindle.cli.plan.plan_command import OUT, PlanGoal, plan_command
from spindle.operations import plan


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
        f"spindle drain {target}",
    )
