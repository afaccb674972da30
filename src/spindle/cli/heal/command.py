"""`spindle heal`: keep a cluster within limits."""

import time
from pathlib import Path
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.durations import DurationMs
from spindle.cli.examples import examples
from spindle.cli.execution.disk_full_guard import highest_fill
from spindle.cli.execution.execution_file import locked, open_execution_file
from spindle.cli.execution.executor import RoundExecutor
from spindle.cli.execution.interruption import undone_by_interrupt
from spindle.cli.execution.progress_events import ProgressEvent, Reporter, printing
from spindle.cli.failure import CommandFailed
from spindle.cli.heal.fill_options import fill_options, healing_limits
from spindle.cli.heal.heal_run import HealRun, HealSettings
from spindle.cli.heal.heal_state import open_memory
from spindle.cli.heal.time_window import HoursOfDay, HoursParameter
from spindle.cli.plan.plan_command import limit_options, limits_of
from spindle.cli.renamed_option import RenamedOption
from spindle.cli.sampling.plan_forecast import ahead_options
from spindle.cli.sizes import parse_size
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.cluster import describe_brokers
from spindle.client.blocking.client import WireClient

_MS: Final = 1000


@click.command(
    "heal",
    epilog=examples("spindle heal --trigger-fill 85 --target-fill 80", "spindle heal --once"),
)
@fill_options
@ahead_options
@click.option(
    "--grace",
    "grace_ms",
    type=DurationMs(),
    default="30m",
    show_default=True,
    metavar="DURATION",
    help="How long a directory or broker must be offline before its replicas are moved.",
)
@click.option(
    "--max-per-day",
    "most_per_day",
    metavar="SIZE",
    callback=parse_size,
    help="Move no more than this in 24 hours.",
)
@click.option(
    "--interval",
    "interval_ms",
    type=DurationMs(),
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="Time between checks; with --once, how often the command is run.",
)
@click.option(
    "--window",
    "hours",
    cls=RenamedOption,
    former=["--between"],
    type=HoursParameter(),
    metavar="HH:MM-HH:MM",
    help="Start moves only in these hours of each day, in local time, such as 01:00-05:00.",
)
@click.option("--once", is_flag=True, help="Check once, act, and exit.")
@click.option("--dry-run", is_flag=True, help="Show what would move, and move nothing.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("spindle-heal"),
    show_default=True,
    metavar="FOLDER",
    help="Folder for the state that a later run needs.",
)
@limit_options
@cluster_command
def heal_command(
    client: WireClient,
    as_json: bool,
    above: float,
    down_to: float,
    history: Path | None,
    horizon_ms: int,
    grace_ms: int,
    most_per_day: int | None,
    interval_ms: int,
    hours: HoursOfDay | None,
    once: bool,
    dry_run: bool,
    state: Path,
    max_fill: float,
    throttle: int,
    parallel: int,
    fewer_racks: bool,
    capacity: int | None,
) -> None:
    """Watch a cluster and move replicas off full or failed directories.

    It prints what it finds, what it does and why. It does nothing while others move replicas.
    After a kill, the same command continues. Ctrl-C stops its moves and removes its throttles.
    """
    healing = healing_limits(above, down_to)
    limits = limits_of(max_fill, throttle, parallel, fewer_racks)
    settings = HealSettings(
        healing,
        limits,
        history,
        horizon_ms,
        grace_ms,
        interval_ms,
        hours,
        most_per_day,
        capacity,
        dry_run,
    )
    report = printing(as_json=as_json)
    state.mkdir(parents=True, exist_ok=True)
    path = state / "round.json"
    with locked(path, "healing"):
        cluster_id = describe_brokers(client).cluster_id
        file = open_execution_file(path, cluster_id, "heal")
        fill = highest_fill(limits, capacity)
        executor = RoundExecutor(client, file, limits, report, highest_fill=fill)
        memory = open_memory(state / "memory.json", cluster_id)
        run = HealRun(client, executor, memory, settings, report)
        if dry_run:
            _loop(run, interval_ms, once, report)
            return
        with undone_by_interrupt(run.cancel, path, report, "the next spindle heal"):
            _loop(run, interval_ms, once, report)


def _loop(run: HealRun, interval_ms: int, once: bool, report: Reporter) -> None:
    """Look again and again; a failure ends only a single look."""
    while True:
        try:
            run.check_once()
        except CommandFailed as error:
            if once:
                raise
            _report_failure(str(error), report)
        except FAILURES as error:
            if once:
                raise
            _report_failure(failure(error).plainly, report)
        if once:
            return
        time.sleep(interval_ms / _MS)


def _report_failure(reason: str, report: Reporter) -> None:
    report(ProgressEvent("failed", f"this look failed: {reason}", {"reason": reason}))
