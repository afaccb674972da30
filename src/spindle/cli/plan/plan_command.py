"""The options and the output that all commands of `spindle plan` share."""

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.failure import CommandFailed
from spindle.cli.plan.documents import plan_document
from spindle.cli.plan.files import write_files
from spindle.cli.plan.plan_text import note_lines, plan_lines
from spindle.cli.plan.snapshot import read_snapshot
from spindle.cli.sizes import parse_size
from spindle.client.wire.cluster import WireClient
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import Infeasible, PlacementPlan

Maker = Callable[[ClusterModel, PlanLimits], tuple[str, PlacementPlan]]
"""Makes a plan; returns its goal in words, too."""

_LIMITS = (
    click.option(
        "--max-fill",
        type=click.FloatRange(1, 100),
        default=95.0,
        show_default=True,
        metavar="PERCENT",
        help="No directory gets fuller than this, not even while a copy runs.",
    ),
    click.option(
        "--throttle",
        default="50MiB",
        show_default=True,
        metavar="SIZE",
        callback=parse_size,
        help="Bytes per second: into a broker, out of it, and between its directories.",
    ),
    click.option(
        "--parallel",
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        metavar="N",
        help="Most moves at the same time that begin or end in one directory.",
    ),
    click.option(
        "--fewer-racks",
        is_flag=True,
        help="Allow a partition to be in fewer racks than it is now.",
    ),
    click.option(
        "--capacity",
        metavar="SIZE",
        callback=parse_size,
        help="Plan as if each directory had this size, and held nothing but its replicas.",
    ),
)

SPREAD = click.option(
    "--spread",
    type=click.FloatRange(0, 100),
    default=5.0,
    show_default=True,
    metavar="POINTS",
    help="The largest difference of fill between two directories at the end.",
)

OUT = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the rounds for kafka-reassign-partitions, and a rollback file.",
)


def limit_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all limits but the spread to a command."""
    for option in reversed(_LIMITS):
        body = option(body)
    return body


def limits_of(
    max_fill: float, throttle: int, parallel: int, fewer_racks: bool, spread: float = 5.0
) -> PlanLimits:
    """Return the limits that these options give; fill and spread are percentages."""
    return PlanLimits(spread / 100, max_fill / 100, throttle, parallel, not fewer_racks)


def plan_command(make: Callable[..., Maker]) -> Callable[..., None]:
    """Turn a function that reads a command's own parameters into the body of the command.

    The function returns the maker of the plan. The command reads the cluster, calls the maker and
    prints the plan. If no plan is possible, it ends with the reason, and notes about the cluster.
    """

    @wraps(make)
    def run(
        client: WireClient,
        as_json: bool,
        max_fill: float,
        throttle: int,
        parallel: int,
        fewer_racks: bool,
        capacity: int | None,
        spread: float = 5.0,
        out: Path | None = None,
        **own: Any,
    ) -> None:
        limits = limits_of(max_fill, throttle, parallel, fewer_racks, spread)
        maker = make(**own)
        snapshot = read_snapshot(client, capacity)
        try:
            goal, plan = maker(snapshot.model, limits)
        except (Infeasible, ValueError) as error:
            notes = [line for each in snapshot.remarks for line in note_lines(each)]
            raise CommandFailed("\n".join([str(error), *notes])) from None
        written = [] if out is None else write_files(plan, out)
        if as_json:
            click.echo(json.dumps(plan_document(goal, plan, snapshot.remarks)))
            return
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo("\n".join(plan_lines(goal, plan, limits, snapshot.remarks, width)))
        if out is not None:
            click.echo(f"\nWrote {len(written)} files to {out}. Execute the rounds in order:")
            click.echo(
                "kafka-reassign-partitions --execute --reassignment-json-file FILE "
                f"--throttle {throttle} --replica-alter-log-dirs-throttle {throttle}"
            )

    return limit_options(cluster_command(run))
