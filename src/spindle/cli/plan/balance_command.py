"""`spindle plan balance`: bring the fills of all directories close together."""

import click

from spindle.cli.examples import examples
from spindle.cli.plan.plan_command import OUT, SPREAD, Goal, plan_command
from spindle.planner.plans import balance


@click.command("balance", epilog=examples("spindle plan balance --spread 10 --out moves"))
@SPREAD
@OUT
@plan_command
def balance_command() -> Goal:
    """Plan the fewest moved bytes after which all directories are about equally full."""
    return Goal("fill all directories equally", balance, "spindle balance")
