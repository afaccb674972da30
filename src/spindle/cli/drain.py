"""`spindle drain`: empty a broker or one of its directories now."""

import sys
from pathlib import Path

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.history.forecast_options import forecast_options
from spindle.cli.plan.place import parse_drain_target
from spindle.cli.plan.plan_command import KEEP_LEADERS, limit_options, limits_of
from spindle.cli.progress import aborted_by_interrupt, printing
from spindle.client.blocking.client import WireClient
from spindle.operations import Cancellation, PlanSettings, Removal, cancel_drain, drain
from spindle.operations.directories import DrainTarget
from spindle.operations.drain_removal import check_removal


class _RemovalType(click.Choice[str]):
    """The removal of an empty broker or directory; `retire` is the former name of `remove`."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        return super().convert("remove" if value == "retire" else value, param, ctx)


@click.command(
    "drain", epilog=examples("spindle drain 2", "spindle drain 2:/disk3 --throttle 20MiB")
)
@click.argument("place", metavar="BROKER[:DIR]")
@click.option("--cancel", is_flag=True, help="Undo an interrupted drain instead of continuing it.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="State file; a later run reads it to continue or to undo.  "
    "[default: spindle-drain-BROKER.json]",
)
@click.option(
    "--then",
    type=_RemovalType([step.value for step in Removal]),
    help="After the drain, remove the directory, or unregister the broker, which must be stopped "
    "by then.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before --then acts.")
@KEEP_LEADERS
@limit_options
@forecast_options
@cluster_command
def drain_command(
    client: WireClient,
    as_json: bool,
    place: str,
    cancel: bool,
    state: Path | None,
    then: str | None,
    yes: bool,
    keeps_leaders: bool,
    max_fill: float,
    throttle: int,
    parallel: int,
    fewer_racks: bool,
    capacity: int | None,
    history: Path | None,
    horizon_ms: int,
) -> None:
    """Cordon a broker or its log directory DIR, and move all its replicas away.

    After a kill, the same command continues. Ctrl-C stops the moves and removes the
    cordon; replicas that have left stay where they are. The exit code is 0 when no replica is left,
    130 after Ctrl-C, and 1 after any failure. Other directories that go offline meanwhile do not
    fail the drain; the last line names them.
    """
    target, removal = parse_drain_target(place), Removal(then) if then is not None else None
    cancellation = None if cancel else Cancellation()
    report = printing(as_json=as_json, cancellation=cancellation, place=str(target))
    if cancel and removal is not None:
        raise click.UsageError("--cancel removes nothing: leave out --then")
    if cancel:
        cancel_drain(client, *target, state=state, on_progress=report)
        return
    if removal is not None:
        _confirm(client, removal, target, is_agreed=yes)
    limits = limits_of(max_fill, throttle, parallel, fewer_racks)
    with aborted_by_interrupt():
        drain(
            client,
            *target,
            then=removal,
            settings=PlanSettings(limits, capacity, history, horizon_ms),
            keeps_leaders=keeps_leaders,
            state=state,
            on_progress=report,
            cancellation=cancellation,
        )


def _confirm(client: WireClient, removal: Removal, place: DrainTarget, *, is_agreed: bool) -> None:
    """Check before the drain that the removal can work; ask if standard input is a terminal.

    Args:
        is_agreed: do not ask.

    Raises:
        click.UsageError: the removal does not fit the target. OperationFailed: the target cannot be
        removed. click.Abort: the user does not agree.
    """
    if (removal is Removal.REMOVE) != (place.path is not None):
        raise click.UsageError("--then remove needs BROKER:DIR, --then unregister needs BROKER")
    check_removal(client, removal, place)
    if not is_agreed and sys.stdin.isatty():
        click.confirm(f"Drain {place.text}, then {removal.value} it?", abort=True)
