"""`spindle heal`: keep a cluster within limits."""

import re
from datetime import time
from pathlib import Path
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.heal.fill_options import fill_options, healing_limits
from spindle.cli.history.forecast_options import forecast_options
from spindle.cli.parameter_types import DurationMs, option_text, parse_size
from spindle.cli.plan.plan_command import limit_options, limits_of
from spindle.cli.progress import aborted_by_interrupt, printing
from spindle.cli.shared_options import RenamedOption
from spindle.client.blocking.client import WireClient
from spindle.operations import (
    Cancellation,
    HealSettings,
    HoursOfDay,
    PlanSettings,
    heal,
    keep_healing,
)
from spindle.operations.heal_run import (
    DEFAULT_GRACE_MS,
    DEFAULT_INTERVAL_MS,
    HEAL_STATE,
)

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class HoursParameter(click.ParamType[HoursOfDay]):
    """An option such as `01:00-05:00`, or `22:00-04:30` over midnight."""

    name = "hours"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> HoursOfDay:
        if isinstance(value, HoursOfDay):
            return value
        match = _HOURS.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not HH:MM-HH:MM, such as 01:00-05:00", param, ctx)
        first, second, third, fourth = map(int, match.groups())
        begin, end = time(first, second), time(third, fourth)
        if begin == end:
            self.fail(f"{value!r} begins and ends at the same time", param, ctx)
        return HoursOfDay(begin, end)


@click.command(
    "heal",
    epilog=examples("spindle heal --trigger-fill 85 --target-fill 80", "spindle heal --once"),
)
@fill_options
@forecast_options
@click.option(
    "--grace",
    "grace_ms",
    type=DurationMs(),
    default=option_text(DEFAULT_GRACE_MS),
    show_default=True,
    metavar="DURATION",
    help="How long a directory or broker must be offline before its replicas are moved.",
)
@click.option(
    "--max-per-day",
    "max_bytes_per_day",
    metavar="SIZE",
    callback=parse_size,
    help="Move no more than this in 24 hours.",
)
@click.option(
    "--interval",
    "interval_ms",
    type=DurationMs(),
    default=option_text(DEFAULT_INTERVAL_MS),
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
@click.option("--dry-run", is_flag=True, help="Show the moves without making them.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=HEAL_STATE,
    show_default=True,
    metavar="FOLDER",
    help="Folder for the state that a later run needs.",
)
@limit_options
@cluster_command
def heal_command(
    client: WireClient,
    as_json: bool,
    trigger_fill: float,
    target_fill: float,
    history: Path | None,
    horizon_ms: int,
    grace_ms: int,
    max_bytes_per_day: int | None,
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

    It prints its findings, its actions and the reasons. It does nothing while other moves run.
    After a kill, the same command continues. Ctrl-C stops its moves and removes its throttles.
    """
    limits = limits_of(max_fill, throttle, parallel, fewer_racks)
    settings = HealSettings(
        healing_limits(trigger_fill, target_fill),
        grace_ms,
        interval_ms,
        hours,
        max_bytes_per_day,
        PlanSettings(limits, capacity, history, horizon_ms),
    )
    check = heal if once else keep_healing
    cancellation = Cancellation()
    with aborted_by_interrupt():
        check(
            client,
            settings=settings,
            state=state,
            is_dry=dry_run,
            on_progress=printing(as_json=as_json, cancellation=cancellation),
            cancellation=cancellation,
        )
