"""`spindle history forecast`: when each directory is full."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.history.forecast_text import forecast_document, growth_text, time_to_full_text
from spindle.cli.html.forecast_page import forecast_page
from spindle.cli.html.html_option import HTML, write_page
from spindle.cli.table import narrowed_table_lines
from spindle.cli.terminal import QUIET, UNUSUAL, Line, show, wrapped
from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.common.text import size_text
from spindle.operations import history
from spindle.operations.history import DirectoryForecast
from spindle.planner.forecast.growth import PartitionRates

_NOTE: Final = "note  "
_COLUMNS: Final = ("BROKER", "DIRECTORY", "CAPACITY", "FILL", "GROWTH", "FULL")


@click.command("forecast", epilog=examples("spindle history forecast sizes"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@HTML
@cluster_command
def forecast_command(client: WireClient, as_json: bool, folder: Path, html: Path | None) -> None:
    """Show when each log directory is full, by the history in FOLDER of spindle history record.

    FULL is the time until the directory is full at the usual growth. The parentheses show the times
    at the highest and at the lowest growth of the 90 % confidence interval.
    """
    forecast = history.forecast(client, folder)
    document = {
        "timeMs": forecast.time_ms,
        "clusterId": forecast.cluster_id,
        "remarks": list(forecast.remarks),
        "directories": [_document(directory) for directory in forecast.directories],
        "partitions": _partition_documents(forecast.partitions),
    }
    if html is not None:
        write_page(html, forecast_page(document))
    if as_json:
        click.echo(json.dumps(document))
        return
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    show(forecast_lines(forecast.directories, forecast.remarks, width))
    if html is not None:
        click.echo(f"\nDrew {html}")


def forecast_lines(
    directories: Sequence[DirectoryForecast],
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
            str(model.broker_id),
            model.path,
            size_text(model.capacity_bytes) if model.capacity_bytes else "-",
            f"{100 * model.fill:.1f} %" if model.capacity_bytes else "-",
            growth_text(directory.time_to_full),
            time_to_full_text(directory.time_to_full),
        )
        for directory in directories
        for model in (directory.model,)
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


def _partition_documents(rates: Mapping[TopicPartition, PartitionRates]) -> list[dict[str, Any]]:
    """Return the rates of each partition: growth of a replica, and bytes that are produced."""
    return [
        {
            "topic": where.topic,
            "partition": where.partition,
            "growthBytesPerSecond": rate.growth.slope if rate.growth else None,
            "producedBytesPerSecond": rate.produced_bytes_per_second,
        }
        for where, rate in sorted(rates.items())
    ]


def _document(forecast: DirectoryForecast) -> dict[str, Any]:
    return {
        "broker": forecast.model.broker_id,
        "path": forecast.model.path,
        "capacityBytes": forecast.model.capacity_bytes,
        "usedBytes": forecast.model.kept_bytes,
        **forecast_document(forecast.time_to_full),
    }
