"""The options and the output that all commands of `spindle plan` share."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click
from click.core import ParameterSource

from spindle.cli.cluster_command import cluster_command
from spindle.cli.failure import CommandFailed
from spindle.cli.history.forecast_options import forecast_options
from spindle.cli.html.html_option import HTML, write_page
from spindle.cli.html.plan_page import plan_page
from spindle.cli.option_names import with_option_names
from spindle.cli.parameter_types import (
    DurationMs,
    FiniteRange,
    WholeRange,
    option_text,
    parse_size,
    size_option_text,
)
from spindle.cli.plan.documents import head_document, plan_document, refusal_document
from spindle.cli.plan.forecast_text import forecast_lines
from spindle.cli.plan.plan_text import note_lines, plan_lines
from spindle.cli.shared_options import RenamedOption
from spindle.cli.terminal import UNUSUAL, Line, show
from spindle.client.blocking.client import WireClient
from spindle.common.text import count_noun
from spindle.operations.plan import ClusterPlan, NoPlan, PlanSettings
from spindle.operations.plan_files import round_file_name, write_files
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel


@dataclass(frozen=True, slots=True)
class PlanGoal:
    """The goal of a plan.

    Attributes:
        text: the goal in words.
        plan: reads the cluster, and makes the plan.
        carried_out_by: the steps that reach the goal, commands without the options of the plan.
        afterwards: returns the operator's steps after the moves.
        already_reached: the sentence in place of the tables if the goal needs no moves; empty to
            print the tables in any case.
    """

    text: str
    plan: Callable[[WireClient, PlanSettings], ClusterPlan]
    carried_out_by: Sequence[str]
    afterwards: Callable[[ClusterModel], Sequence[str]] = lambda _: ()
    already_reached: str = ""


_DEFAULTS = PlanLimits()
_LIMITS = (
    click.option(
        "--max-fill",
        type=FiniteRange(1, 100),
        default=100 * _DEFAULTS.max_fill,
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
        "--max-moves-per-dir",
        "parallel",
        cls=RenamedOption,
        former=["--parallel"],
        type=WholeRange(min=1),
        default=_DEFAULTS.parallel_moves,
        show_default=True,
        metavar="N",
        help="Maximum concurrent moves from or to one directory.",
    ),
    click.option(
        "--allow-rack-loss",
        "fewer_racks",
        cls=RenamedOption,
        former=["--fewer-racks"],
        is_flag=True,
        help="Allow a partition to be in fewer racks than it is now.",
    ),
    click.option(
        "--capacity",
        metavar="SIZE",
        callback=parse_size,
        help="Plan as if each directory had this size and held only its replicas.",
    ),
)

_HOW_TO_EXECUTE = (
    "Execute the rounds in order. After each, wait until --verify reports it complete, then for "
    "the waitMs of the next file. spindle kafka reassign-partitions takes the same options and "
    "waits by itself:"
)

SPREAD = click.option(
    "--spread",
    type=FiniteRange(0, 100),
    default=100 * _DEFAULTS.spread,
    show_default=True,
    metavar="POINTS",
    help="The largest difference of fill between two directories at the end.",
)

KEEP_LEADERS = click.option(
    "--keep-leaders",
    "keeps_leaders",
    is_flag=True,
    help="Do not change preferred leaders at the end.",
)

OUT = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the rounds for kafka-reassign-partitions, and files that undo them.",
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


def plan_command(make: Callable[..., PlanGoal]) -> Callable[..., None]:
    """Make the body of a command from a function that returns the goal.

    The command reads the cluster, makes the plan, and prints or draws it. If no plan is possible,
    it ends with the reason, and notes about the cluster.
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
        history: Path | None,
        horizon_ms: int,
        spread: float = 5.0,
        out: Path | None = None,
        html: Path | None = None,
        **own: Any,
    ) -> None:
        limits = limits_of(max_fill, throttle, parallel, fewer_racks, spread)
        settings = PlanSettings(limits, capacity, history, horizon_ms)
        goal = make(**own)
        try:
            cluster_plan = goal.plan(client, settings)
        except NoPlan as error:
            snapshot = error.snapshot
            if error.infeasible is not None:
                head = head_document(goal.text, limits, snapshot, error.time_ms)
                _deliver(refusal_document(head, snapshot.model, error.infeasible), as_json, html)
            notes = [line for remark in snapshot.remarks for line in note_lines(remark)]
            text = with_option_names("\n".join([str(error), *notes]))
            raise CommandFailed(text) from None
        plan, snapshot = cluster_plan.placement, cluster_plan.snapshot
        written = [] if out is None else write_files(plan, out, limits.max_fill)
        head = head_document(goal.text, limits, snapshot, cluster_plan.time_ms)
        _deliver(plan_document(head, plan, cluster_plan.forecast), as_json, html)
        if as_json:
            return
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        show(_plan_lines(goal, cluster_plan, limits, width))
        if cluster_plan.forecast is not None:
            show([Line(""), *forecast_lines(plan, cluster_plan.forecast, width)])
        if (plan.rounds or plan.preferred) and out is None:
            context = click.get_current_context()
            steps = [with_given_options(step, context) for step in goal.carried_out_by]
            click.echo(f"\nTo carry it out: {', then '.join(steps)}")
        for text in goal.afterwards(snapshot.model):
            click.echo(f"Afterwards: {text}")
        if html is not None:
            click.echo(f"\nDrew {html}")
        if out is not None:
            click.echo(f"\nWrote {count_noun(len(written), 'file')} to {out}")
        if out is not None and plan.rounds:
            click.echo(_execution_text(client, out, throttle))

    return limit_options(forecast_options(HTML(cluster_command(run))))


def _plan_lines(
    goal: PlanGoal, cluster_plan: ClusterPlan, limits: PlanLimits, width: int | None
) -> list[Line]:
    """Return the tables of a plan, or one sentence if the goal needs no moves."""
    plan = cluster_plan.placement
    remarks = [with_option_names(remark) for remark in cluster_plan.snapshot.remarks]
    is_reached = not (plan.rounds or plan.preferred or plan.remarks)
    if not is_reached or not goal.already_reached:
        return plan_lines(goal.text, plan, limits, remarks, width)
    notes = [line for remark in remarks for line in note_lines(remark, width)]
    return [Line(goal.already_reached), *(Line(note, UNUSUAL) for note in notes)]


def with_given_options(step: str, context: click.Context) -> str:
    """Add to a command the options of the present command line that it has, too.

    Args:
        step: a command such as `spindle drain 2`; any other text stays as it is.
        context: the one of the present command, whose root is `spindle`.
    """
    name, *words = shlex.split(step)
    root = context.find_root().command
    if name != "spindle" or not isinstance(root, click.Group):
        return step
    command = root.get_command(context, words[0])
    shared = {parameter.name for parameter in command.params} if command is not None else set()
    given = [
        option
        for option in context.command.params
        if isinstance(option, click.Option)
        and option.name in shared
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    texts = [_option_words(option, context.params[option.name]) for option in given if option.name]
    return " ".join([step, *(word for text in texts for word in text)])


def _option_words(option: click.Option, value: Any) -> list[str]:
    """Return an option and its value as words of a shell."""
    name = max(option.opts, key=len)
    if option.is_flag:
        return [name]
    if option.callback is parse_size:
        text = size_option_text(value)
    elif isinstance(option.type, DurationMs):
        text = option_text(value)
    else:
        text = str(value).removesuffix(".0") if isinstance(value, float) else str(value)
    return [name, shlex.quote(text)]


def _execution_text(client: WireClient, out: Path, throttle: int) -> str:
    """Return the command that executes the written rounds."""
    servers = ",".join(map(str, client.settings.bootstrap_servers))
    return (
        f"{_HOW_TO_EXECUTE}\nkafka-reassign-partitions --bootstrap-server {servers} --execute "
        f"--reassignment-json-file {out / round_file_name(1)} "
        f"--throttle {throttle} --replica-alter-log-dirs-throttle {throttle}"
    )


def _deliver(document: dict[str, Any], as_json: bool, html: Path | None) -> None:
    """Write a plan as an HTML page, as JSON, or as both, as requested."""
    if html is not None:
        write_page(html, plan_page(document))
    if as_json:
        click.echo(json.dumps(document))
