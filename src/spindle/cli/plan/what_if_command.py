"""`spindle plan what-if`: the plan for a hypothetical cluster."""

import shlex
from typing import Final

import click

from spindle.cli.examples import examples
from spindle.cli.parameter_types import size_of
from spindle.cli.plan.place import parse_place
from spindle.cli.plan.plan_command import SPREAD, PlanGoal, plan_command
from spindle.client.blocking.client import WireClient
from spindle.operations import plan
from spindle.operations.plan import ClusterPlan, PlanSettings
from spindle.planner.model import BrokerModel, DirectoryModel

_BROKER: Final = "ID or ID:RACK, such as 4 or 4:rack-b"


@click.command(
    "what-if",
    epilog=examples("spindle plan what-if --add-directory 4:/disk1=8T --remove-directory 1:/disk2"),
)
@click.option("--add-broker", "added", multiple=True, metavar="ID[:RACK]", help="Add a broker.")
@click.option(
    "--add-directory",
    "directories",
    multiple=True,
    metavar="BROKER:DIR=SIZE",
    help="Add an empty directory to a broker of the cluster, or to an added one.",
)
@click.option(
    "--remove-broker", "removed", multiple=True, type=int, metavar="ID", help="Remove a broker."
)
@click.option(
    "--remove-directory",
    "removed_directories",
    multiple=True,
    metavar="BROKER:DIR",
    help="Remove a directory.",
)
@SPREAD
@plan_command
def what_if_command(
    added: tuple[str, ...],
    directories: tuple[str, ...],
    removed: tuple[int, ...],
    removed_directories: tuple[str, ...],
) -> PlanGoal:
    """Plan for a cluster with more or fewer brokers and directories.

    All replicas leave what is removed, and the other directories are balanced. At least one
    addition or removal is needed; each option may be repeated.
    """
    if not (added or directories or removed or removed_directories):
        raise click.UsageError("name at least one broker or directory to add or to remove")
    brokers = [BrokerModel(*parse_place(broker, _BROKER)) for broker in added]
    new = [_directory(directory) for directory in directories]
    gone = [parse_place(directory) for directory in removed_directories]

    def make(client: WireClient, settings: PlanSettings) -> ClusterPlan:
        return plan.what_if(
            client,
            added_brokers=brokers,
            added_directories=new,
            removed_brokers=removed,
            removed_directories=gone,
            settings=settings,
        )

    parts = [
        *(f"with broker {directory}" for directory in added),
        *(f"with directory {directory}" for directory in directories),
        *(f"without broker {directory}" for directory in removed),
        *(f"without directory {directory}" for directory in removed_directories),
    ]
    steps = [
        *(["add what is new"] if added or directories else []),
        *(
            f"spindle drain {shlex.quote(str(removal))}"
            for removal in (*removed, *removed_directories)
        ),
        "spindle balance",
    ]
    return PlanGoal(f"balance the cluster {', '.join(parts)}", make, steps)


def _directory(text: str) -> DirectoryModel:
    place, _, size = text.rpartition("=")
    broker_id, path = parse_place(place) if place else (0, None)
    if path is None:
        raise click.BadParameter(f"{text!r} is not BROKER:DIR=SIZE, such as 2:/data/4=8T")
    return DirectoryModel(broker_id, path, size_of(size), 0)
