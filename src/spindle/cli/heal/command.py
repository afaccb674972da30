"""`spindle heal`: keep a cluster within limits."""

import time
from pathlib import Path
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.durations import DurationMs
from spindle.cli.examples import examples
from spindle.cli.execution.execution_file import locked, open_execution_file
from spindle.cli.execution.executor import RoundExecutor
from spindle.cli.execution.filling_targets import highest_fill
from spindle.cli.execution.interruption import undone_by_interrupt
from spindle.cli.execution.steps import ExecutionStep, Tell, printing
from spindle.cli.failure import CommandFailed
from spindle.cli.heal.fill_options import fill_options, healing_limits
from spindle.cli.heal.heal_run import HealRun, HealSettings
from spindle.cli.heal.hours import HoursOfDay, HoursParameter
from spindle.cli.heal.memory import open_memory
from spindle.cli.history.looking_ahead import ahead_options
from spindle.cli.plan.plan_command import limit_options, limits_of
from spindle.cli.sizes import parse_size
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.cluster import describe_brokers
from spindle.client.wire.cluster import WireClient

_MS: Final = 1000


@click.command(
    "heal", epilog=examples("spindle heal --above 85 --down-to 80", "spindle heal --once")
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
    help="How long a directory or broker must be seen away before it is emptied.",
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
    help="Time between two looks; with --once, how often the command is given.",
)
@click.option(
    "--between",
    "hours",
    type=HoursParameter(),
    metavar="HH:MM-HH:MM",
    help="Begin moves only in these hours of each day, in local time, such as 01:00-05:00.",
)
@click.option("--once", is_flag=True, help="Look once, act, and end.")
@click.option("--dry-run", is_flag=True, help="Say what would move, and move nothing.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("spindle-heal"),
    show_default=True,
    metavar="FOLDER",
    help="Folder for what a later run must know.",
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
    """Look at a cluster again and again, and move replicas out of what is full or has failed.

    It says what it finds, what it does and why. It does nothing while others move replicas. After a
    kill, the same command goes on. Ctrl-C stops its moves and removes its throttles.
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
    tell = printing(as_json=as_json)
    state.mkdir(parents=True, exist_ok=True)
    path = state / "round.json"
    with locked(path, "healing"):
        cluster_id = describe_brokers(client).cluster_id
        file = open_execution_file(path, cluster_id, "heal")
        fill = highest_fill(limits, capacity)
        executor = RoundExecutor(client, file, limits, tell, highest_fill=fill)
        memory = open_memory(state / "memory.json", cluster_id)
        run = HealRun(client, executor, memory, settings, tell)
        if dry_run:
            _loop(run, interval_ms, once, tell)
            return
        with undone_by_interrupt(run.cancel, path, tell, "the next spindle heal"):
            _loop(run, interval_ms, once, tell)


def _loop(run: HealRun, interval_ms: int, once: bool, tell: Tell) -> None:
    """Look again and again; a failure ends only a single look."""
    while True:
        try:
            run.look()
        except CommandFailed as error:
            if once:
                raise
            _tell_failure(str(error), tell)
        except FAILURES as error:
            if once:
                raise
            _tell_failure(failure(error).plainly, tell)
        if once:
            return
        time.sleep(interval_ms / _MS)


def _tell_failure(reason: str, tell: Tell) -> None:
    tell(ExecutionStep("failed", f"this look failed: {reason}", {"reason": reason}))
