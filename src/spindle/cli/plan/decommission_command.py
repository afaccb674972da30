"""`spindle plan decommission`: empty a broker that will leave the cluster."""

import click

from spindle.cli.examples import examples
from spindle.cli.numbers import WholeRange
from spindle.cli.plan.place import find_directories
from spindle.cli.plan.plan_command import OUT, PlanGoal, plan_command
from spindle.planner.goals import decommission
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan


@click.command(
    "decommission",
    epilog=examples("spindle plan decommission 3"),
)
@click.argument("broker", type=WholeRange(min=0))
@OUT
@plan_command
def decommission_command(broker: int) -> PlanGoal:
    """Plan moves of all replicas away from a broker, which may be dead already."""

    def make(cluster: ClusterModel, limits: PlanLimits) -> PlacementPlan:
        find_directories(cluster, broker, None)
        return decommission(cluster, broker, limits)

    return PlanGoal(f"empty broker {broker}", make, f"spindle drain {broker} --then unregister")
