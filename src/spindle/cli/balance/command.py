"""`spindle balance`: fill all directories equally now."""

from pathlib import Path

import click

from spindle.cli.balance.balance_run import GOAL, BalanceRun
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.execution.execution_file import locked, open_execution_file
from spindle.cli.execution.interruption import undone_by_interrupt
from spindle.cli.execution.leaderships import KEEP_LEADERS
from spindle.cli.execution.planning import ExecutionPlanning
from spindle.cli.execution.progress_events import printing
from spindle.cli.failure import CommandFailed
from spindle.cli.plan.plan_command import SPREAD, limit_options, limits_of
from spindle.cli.sampling.plan_forecast import ahead_options
from spindle.client.admin.cluster import describe_brokers
from spindle.client.blocking.client import WireClient


@click.command("balance", epilog=examples("spindle balance --spread 10"))
@click.option(
    "--cancel", is_flag=True, help="Undo an interrupted balance instead of continuing it."
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("spindle-balance.json"),
    show_default=True,
    metavar="FILE",
    help="State file; a later run reads it to continue or to undo.",
)
@KEEP_LEADERS
@SPREAD
@limit_options
@ahead_options
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

    spindle plan balance shows the moves before. After a kill, the same command continues. Ctrl-C
    stops the moves; replicas that have moved stay where they are. The exit code is 0 at the end,
    130 after Ctrl-C, and 1 after any failure.
    """
    report = printing(as_json=as_json)
    limits = limits_of(max_fill, throttle, parallel, fewer_racks, spread)
    cluster_id = describe_brokers(client).cluster_id
    with locked(state, "balance"):
        if cancel and not state.exists():
            raise CommandFailed(f"there is no balance to cancel: {state} does not exist")
        file = open_execution_file(state, cluster_id, GOAL)
        planning = ExecutionPlanning(limits, capacity, history, horizon_ms)
        run = BalanceRun(client, file, planning, report, keeps_leaders=keeps_leaders)
        if cancel:
            run.cancel()
            return
        with undone_by_interrupt(run.cancel, state, report):
            run.finish()
