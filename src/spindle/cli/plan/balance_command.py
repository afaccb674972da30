"""`spindle plan balance`: bring the fills of all directories close together."""

import click

from spindle.cli.examples import examples
from spindle.cli.plan.plan_command import OUT, SPREAD, PlanGoal, plan_command
from spindle.operations import plan


@click.command("balance", epilog=examples("spindle plan balance --spread 10 --out moves"))
@SPREAD
@OUT
@plan_command
def balance_command() -> PlanGoal:
    """Plan the fewest moved bytes after which all directories are about equally full."""
    return PlanGoal("fill all directories equally", plan.balance, "spindle balance")
