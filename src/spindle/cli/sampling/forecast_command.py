"""`spindle history forecast`: when each directory is full."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.html.forecast_page import forecast_page
from spindle.cli.html.html_option import HTML, write_page
from spindle.cli.plan.snapshot import read_snapshot
from spindle.cli.sampling.forecasts import (
    Forecasts,
    forecast_document,
    growth_text,
    history_remarks,
    time_to_full_text,
)
from spindle.cli.sampling.history_folder import RecordedHistory, read_history
from spindle.cli.table import narrowed_table_lines
from spindle.cli.terminal import QUIET, UNUSUAL, Line, show, wrapped
from spindle.client.admin.cluster import describe_brokers
from spindle.client.blocking.client import WireClient
from spindle.common.sizes import size_text
from spindle.planner.growth import partition_rates
from spindle.planner.model import DirectoryModel
from spindle.planner.time_to_full import TimeToFull

_NOTE: Final = "note  "
_COLUMNS: Final = ("BROKER", "DIRECTORY", "CAPACITY", "FILL", "GROWTH", "FULL")


@click.command("forecast", epilog=examples("spindle history forecast sizes"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@HTML
@cluster_command
def forecast_command(client: WireClient, as_json: bool, folder: Path, html: Path | None) -> None:
    """Show when each log directory is full, by the history in FOLDER of spindle history record.

    FULL is the time at the usual growth; in parentheses at the highest and at the lowest growth of
    a 90 % interval.
    """
    history = read_history(folder, describe_brokers(client).cluster_id)
    snapshot = read_snapshot(client, None, is_for_plan=False)
    forecasts = Forecasts(history)
    times_to_full = [
        (directory, _forecast(forecasts, directory)) for directory in snapshot.model.directories
    ]
    remarks = [*history_remarks(history), *snapshot.remarks]
    document = {
        "timeMs": time.time_ns() // 1_000_000,
        "clusterId": snapshot.cluster_id,
        "remarks": remarks,
        "directories": [_document(model, full) for model, full in times_to_full],
        "partitions": _partition_documents(history),
    }
    if html is not None:
        write_page(html, forecast_page(document))
    if as_json:
        click.echo(json.dumps(document))
        return
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    show(forecast_lines(times_to_full, remarks, width))
    if html is not None:
        click.echo(f"\nDrew {html}")


def forecast_lines(
    found: Sequence[tuple[DirectoryModel, TimeToFull]],
    remarks: Sequence[str],
    width: int | None = None,
) -> list[Line]:
    """Return the notes, and a table with the time until each directory is full.

    Args:
        width: columns of the terminal: a table that is too wide lacks the capacities, and has
            shorter paths if that does not suffice. None sets no limit.
    """
    rows = [
        (
            str(directory.broker_id),
            directory.path,
            size_text(directory.capacity_bytes) if directory.capacity_bytes else "-",
            f"{100 * directory.fill:.1f} %" if directory.capacity_bytes else "-",
            growth_text(full),
            time_to_full_text(full),
        )
        for directory, full in found
    ]
    for left_out in ("", "CAPACITY"):
        columns = [number for number, title in enumerate(_COLUMNS) if title != left_out]
        head, *lines = narrowed_table_lines(
            [_COLUMNS[number] for number in columns],
            [[row[number] for number in columns] for row in rows],
            "DIRECTORY",
            width,
        )
        if width is None or max(map(len, (head, *lines))) <= width:
            break
    notes = [part for remark in remarks for part in wrapped(_NOTE + remark, width, len(_NOTE))]
    return [
        *(Line(text, UNUSUAL) for text in notes),
        Line(""),
        Line(head, QUIET),
        *map(Line, lines),
    ]


def _partition_documents(history: RecordedHistory) -> list[dict[str, Any]]:
    """Return the rates of each partition: growth of a replica, and bytes that are produced."""
    return [
        {
            "topic": where.topic,
            "partition": where.partition,
            "growthBytesPerSecond": rate.growth.slope if rate.growth else None,
            "producedBytesPerSecond": rate.produced_bytes_per_second,
        }
        for where, rate in sorted(partition_rates(history.samples).items())
    ]


def _forecast(forecasts: Forecasts, each: DirectoryModel) -> TimeToFull:
    free_bytes = each.capacity_bytes - each.kept_bytes if each.capacity_bytes else -1
    key = (each.broker_id, each.path)
    return forecasts.of(key, max(free_bytes, -1), is_online=each.is_online)


def _document(each: DirectoryModel, full: TimeToFull) -> dict[str, Any]:
    return {
        "broker": each.broker_id,
        "path": each.path,
        "capacityBytes": each.capacity_bytes,
        "usedBytes": each.kept_bytes,
        **forecast_document(full),
    }
