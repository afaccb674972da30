"""`spindle plan drain`: empty a broker or one of its directories."""

import click

from spindle.cli.examples import examples
from spindle.cli.plan.place import find_directories, parse_place, place_text, plain_place
from spindle.cli.plan.plan_command import OUT, PlanGoal, plan_command
from spindle.planner.goals import drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan


@click.command("drain", epilog=examples("spindle plan drain 2:/disk3 --html drain.html"))
@click.argument("place", metavar="BROKER[:DIR]")
@OUT
@plan_command
def drain_command(place: str) -> PlanGoal:
    """Plan moves of all replicas out of a broker, or out of its log directory DIR."""
    place = plain_place(place)
    broker_id, path = parse_place(place)

    def make(cluster: ClusterModel, limits: PlanLimits) -> PlacementPlan:
        directories = find_directories(cluster, broker_id, path)
        return drain(cluster, directories, limits)

    return PlanGoal(f"empty {place_text(place)}", make, f"spindle drain {place}")
