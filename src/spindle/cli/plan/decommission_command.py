"""`spindle plan decommission`: empty a broker that will leave the cluster."""

import click

from spindle.cli.examples import examples
from spindle.cli.numbers import WholeRange
from spindle.cli.plan.plan_command import OUT, PlanGoal, plan_command
from spindle.operations import plan


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
        f"spindle drain {broker} --then unregister",
    )
