"""`spindle history record`: the history of sizes and offsets that forecasts need."""

import json
from pathlib import Path

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.parameter_types import DurationMs, option_text
from spindle.client.blocking.client import WireClient
from spindle.operations.events import ProgressEvent
from spindle.operations.history import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_RETENTION_MS,
    SampleFailed,
    keep_recording,
    record,
)


@click.command("record", epilog=examples("spindle history record sizes --interval 5m"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--once", is_flag=True, help="Take one sample and exit, as for a cron job.")
@click.option(
    "--interval",
    "interval_ms",
    type=DurationMs(),
    default=option_text(DEFAULT_INTERVAL_MS),
    show_default=True,
    metavar="DURATION",
    help="Time between samples.",
)
@click.option(
    "--retention",
    "retention_ms",
    type=DurationMs(),
    default=option_text(DEFAULT_RETENTION_MS),
    show_default=True,
    metavar="DURATION",
    help="Delete files of days that are older than this.",
)
@cluster_command
def record_command(
    client: WireClient,
    as_json: bool,
    folder: Path,
    once: bool,
    interval_ms: int,
    retention_ms: int,
) -> None:
    """Write sizes of replicas, space of directories and offsets into FOLDER at intervals.

    Each sample is appended as JSON lines, and synced to disk before the next one begins. A broker
    that does not answer has a line with the reason. Ctrl-C ends the command; a kill at any moment
    leaves a history that can be read and continued.
    """

    def show(event: ProgressEvent) -> None:
        is_failure = isinstance(event, SampleFailed)
        text = json.dumps(event.facts) if as_json and not is_failure else event.text
        click.echo(text, err=is_failure)

    if once:
        show(record(client, folder, retention_ms=retention_ms))
        return
    keep_recording(
        client,
        folder,
        interval_ms=interval_ms,
        retention_ms=retention_ms,
        on_progress=show,
    )
