"""`spindle disks cordon` and `uncordon`: keep new replicas out of a log directory, or end that."""

import json
import time
from collections.abc import Sequence

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.parameter_types import DurationMs, WholeRange
from spindle.client.admin.cordons import cordon, shown_path, uncordon
from spindle.client.blocking.client import WireClient
from spindle.config.cordon_notes import CordonNote


@click.command(
    "cordon",
    epilog=examples('spindle disks cordon 2 /disk2 --reason "SMART errors" --owner anna --for 2d'),
)
@click.argument("broker", type=WholeRange(min=0))
@click.argument("path")
@click.option("--reason", metavar="TEXT", help="Why it is cordoned.")
@click.option("--owner", metavar="NAME", help="Who is responsible for it.")
@click.option(
    "--for",
    "duration_ms",
    type=DurationMs(),
    metavar="DURATION",
    help="Time after which the broker removes the cordon: 90s, 30m, 2h, 1d12h.",
)
@cluster_command
def cordon_command(
    client: WireClient,
    as_json: bool,
    broker: int,
    path: str,
    reason: str | None,
    owner: str | None,
    duration_ms: int | None,
) -> None:
    """Keep new replicas out of the log directory PATH of a broker; '*' means all its directories.

    Replicas that are there stay. A second cordon of the same directory replaces reason, owner and
    duration.
    """
    now_ms = time.time_ns() // 1_000_000
    note = CordonNote(
        path, reason, owner, now_ms, None if duration_ms is None else now_ms + duration_ms
    )
    is_new = cordon(client, broker, note)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "broker": broker,
                    "path": path,
                    "isNew": is_new,
                    "reason": reason,
                    "owner": owner,
                    "untilMs": note.until_ms,
                }
            )
        )
    elif is_new:
        click.echo(f"Cordoned {shown_path(path)} of broker {broker}.")
    else:
        shown = shown_path(path)
        click.echo(f"{shown} of broker {broker} was already cordoned; its note is replaced.")


@click.command(
    "uncordon",
    epilog=examples("spindle disks uncordon 2 /disk2"),
)
@click.argument("broker", type=WholeRange(min=0))
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@cluster_command
def uncordon_command(client: WireClient, as_json: bool, broker: int, paths: Sequence[str]) -> None:
    """Allow new replicas in log directories of a broker again; '*' ends a cordon of all.

    A directory that is cordoned because it is nearly full stays so until it has space. --json
    prints an object for each directory.
    """
    for path in paths:
        uncordon(client, broker, path)
        if as_json:
            click.echo(json.dumps({"broker": broker, "path": path}))
        else:
            click.echo(f"Uncordoned {shown_path(path)} of broker {broker}.")
