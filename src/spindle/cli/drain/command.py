"""`spindle drain`: empty a broker or one of its directories now."""

from pathlib import Path

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.drain.after_drain import AfterDrain, check_taking_out, take_out
from spindle.cli.drain.drain_run import DrainRun
from spindle.cli.examples import examples
from spindle.cli.execution.directory_failures import with_failures
from spindle.cli.execution.execution_file import locked, open_execution_file
from spindle.cli.execution.interruption import undone_by_interrupt
from spindle.cli.execution.leaderships import KEEP_LEADERS
from spindle.cli.execution.planning import ExecutionPlanning
from spindle.cli.execution.progress_events import Reporter, printing
from spindle.cli.failure import CommandFailed
from spindle.cli.plan.place import parse_place, plain_place
from spindle.cli.plan.plan_command import limit_options, limits_of
from spindle.cli.sampling.plan_forecast import ahead_options
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.cluster import describe_brokers
from spindle.client.blocking.client import WireClient
from spindle.planner.plan import Infeasible


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
    type=click.Choice([step.value for step in AfterDrain]),
    help="Take the empty place out of use: retire the directory, or unregister the broker, which "
    "must be down then.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before --then acts.")
@KEEP_LEADERS
@limit_options
@ahead_options
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
    130 after Ctrl-C, and 1 after any failure. Other directories that went offline meanwhile are no
    failure of the drain; the last line names them.
    """
    place = plain_place(place)
    broker_id, _ = parse_place(place)
    last_step = AfterDrain(then) if then is not None else None
    if last_step is not None:
        if cancel:
            raise click.UsageError("--cancel takes nothing out of use: leave out --then")
        check_taking_out(client, last_step, place, is_agreed=yes)
    path = state or Path(f"spindle-drain-{broker_id}.json")
    cluster_id = describe_brokers(client).cluster_id

    report = printing(as_json=as_json, place=place)
    limits = limits_of(max_fill, throttle, parallel, fewer_racks)
    with locked(path, "drain"):
        execution_file = open_execution_file(path, cluster_id, f"drain {place}")
        planning = ExecutionPlanning(limits, capacity, history, horizon_ms)
        run = DrainRun(client, execution_file, place, planning, report, keeps_leaders=keeps_leaders)
        if not cancel:
            _finish(run, path, report)
            if last_step is not None:
                end = take_out(client, last_step, place, report)
                report(with_failures(end, run.went_offline()))
        elif path.exists():
            run.cancel()
        else:
            raise CommandFailed(f"there is no drain to cancel: {path} does not exist")


def _finish(run: DrainRun, path: Path, report: Reporter) -> None:
    try:
        with undone_by_interrupt(run.cancel, path, report):
            run.finish()
    except (Infeasible, CommandFailed, ValueError) as error:
        raise CommandFailed(f"{error}\n{_what_next(path)}") from None
    except FAILURES as error:
        raise CommandFailed(f"{failure(error).plainly}\n{_what_next(path)}") from None


def _what_next(path: Path) -> str:
    if not path.exists():
        return "Nothing has changed."
    return (
        f"{path} has the cordons and throttles of this drain; --cancel removes them, and the same "
        "command goes on."
    )
