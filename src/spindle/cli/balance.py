"""`spindle balance`: fill all directories equally now."""

from pathlib import Path

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.history.forecast_options import forecast_options
from spindle.cli.plan.plan_command import KEEP_LEADERS, SPREAD, limit_options, limits_of
from spindle.cli.progress import aborted_by_interrupt, printing
from spindle.client.blocking.client import WireClient
from spindle.operations import Cancellation, PlanSettings, balance, cancel_balance
from spindle.operations.balance_run import BALANCE_STATE


@click.command("balance", epilog=examples("spindle balance --spread 10"))
@click.option(
    "--cancel", is_flag=True, help="Undo an interrupted balance instead of continuing it."
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=BALANCE_STATE,
    show_default=True,
    metavar="FILE",
    help="State file; a later run reads it to continue or to undo.",
)
@KEEP_LEADERS
@SPREAD
@limit_options
@forecast_options
@cluster_command
def balance_command(
    client: WireClient,
    as_json: bool,
    cancel: bool,
    state: Path,
    keeps_leaders: bool,
    spread: float,
    max_fill: float,
    throttle: int,
    parallel: int,
    fewer_racks: bool,
    capacity: int | None,
    history: Path | None,
    horizon_ms: int,
) -> None:
    """Move replicas until all log directories are about equally full.

    'spindle plan balance' only shows the moves. After a kill, the same command continues. Ctrl-C
    stops the moves; replicas that have moved stay where they are. The exit code is 0 at the end,
    130 after Ctrl-C, and 1 after any failure.
    """
    cancellation = None if cancel else Cancellation()
    report = printing(as_json=as_json, cancellation=cancellation)
    if cancel:
        cancel_balance(client, state=state, on_progress=report)
        return
    limits = limits_of(max_fill, throttle, parallel, fewer_racks, spread)
    with aborted_by_interrupt():
        balance(
            client,
            settings=PlanSettings(limits, capacity, history, horizon_ms),
            keeps_leaders=keeps_leaders,
            state=state,
            on_progress=report,
            cancellation=cancellation,
        )
