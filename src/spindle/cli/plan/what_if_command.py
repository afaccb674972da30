"""`spindle plan what-if`: the plan that an imagined cluster would need."""

import click

from spindle.cli.export.sizes import parse_size
from spindle.cli.plan.place import find_directories, parse_place
from spindle.cli.plan.plan_command import SPREAD, Maker, plan_command
from spindle.planner.changes import ClusterChanges
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel
from spindle.planner.plan import PlacementPlan
from spindle.planner.plans import what_if


@click.command("what-if")
@click.option(
    "--add-broker", "added", multiple=True, metavar="ID[:RACK]", help="A broker that is not there."
)
@click.option(
    "--add-directory",
    "directories",
    multiple=True,
    metavar="BROKER:DIR=SIZE",
    help="An empty directory, of a broker that is there or added.",
)
@click.option(
    "--remove-broker", "removed", multiple=True, type=int, metavar="ID", help="A broker that goes."
)
@click.option(
    "--remove-directory",
    "retired",
    multiple=True,
    metavar="BROKER:DIR",
    help="A directory that goes.",
)
@SPREAD
@plan_command
def what_if_command(
    added: tuple[str, ...],
    directories: tuple[str, ...],
    removed: tuple[int, ...],
    retired: tuple[str, ...],
) -> Maker:
    """Plan for a cluster with more or fewer brokers and directories; nothing is written.

    Replicas leave what is removed, and the rest is balanced.
    """
    if not (added or directories or removed or retired):
        raise click.UsageError("name at least one broker or directory to add or to remove")
    brokers = [BrokerModel(*parse_place(each)) for each in added]
    new = [_directory(each) for each in directories]
    gone = [parse_place(each) for each in retired]

    def make(cluster: ClusterModel, limits: PlanLimits) -> tuple[str, PlacementPlan]:
        places = [number for place in gone for number in find_directories(cluster, *place)]
        changes = ClusterChanges(brokers, new, removed, places)
        return "balance the changed cluster", what_if(cluster, changes, limits)

    return make


def _directory(text: str) -> DirectoryModel:
    place, _, size = text.rpartition("=")
    context = click.get_current_context()
    size_bytes = parse_size(context, context.command.params[0], size) if place else None
    broker_id, path = parse_place(place) if place else (0, None)
    if path is None or size_bytes is None:
        raise click.BadParameter(f"{text!r} is not BROKER:DIR=SIZE, such as 2:/data/4=8T")
    return DirectoryModel(broker_id, path, size_bytes, 0)
