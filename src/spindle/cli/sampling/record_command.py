"""`spindle history record`: the history of sizes and offsets that forecasts need."""

import json
import time
from pathlib import Path
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.durations import DurationMs
from spindle.cli.examples import examples
from spindle.cli.sampling.history_folder import HistoryWriter, only_writer
from spindle.cli.sampling.sampling import take_sample
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.blocking.client import WireClient
from spindle.common.text import count_noun

_MS: Final = 1000
_NS_PER_MS: Final = 1_000_000


@click.command("record", epilog=examples("spindle history record sizes --interval 5m"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--once", is_flag=True, help="Take one sample and exit, as for a cron job.")
@click.option(
    "--interval",
    "interval_ms",
    type=DurationMs(),
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="Time between samples.",
)
@click.option(
    "--retention",
    "retention_ms",
    type=DurationMs(),
    default="30d",
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

    Each sample is appended as JSON lines, and on the disk before the next one begins. A broker that
    does not answer has a line with the reason. Ctrl-C ends the command; a kill at any moment leaves
    a history that can be read and continued.
    """
    writer = HistoryWriter(folder, retention_ms)
    with only_writer(folder):
        while True:
            due_s = time.monotonic() + interval_ms / _MS
            try:
                line = _record(client, writer, as_json=as_json)
            except FAILURES as error:
                if once:
                    raise
                click.echo(f"no sample: {failure(error).plainly}", err=True)
            else:
                click.echo(line)
            if once:
                return
            time.sleep(max(0.0, due_s - time.monotonic()))


def _record(client: WireClient, writer: HistoryWriter, *, as_json: bool) -> str:
    time_ms = time.time_ns() // _NS_PER_MS
    documents = take_sample(client, time_ms)
    writer.append(time_ms, documents)
    silent = [document["broker"] for document in documents if document["error"] is not None]
    if as_json:
        return json.dumps({"timeMs": time_ms, "brokers": len(documents), "silentBrokers": silent})
    text = f"recorded {count_noun(len(documents), 'broker')}"
    return f"{text}; no answer from {', '.join(map(str, silent))}" if silent else text
