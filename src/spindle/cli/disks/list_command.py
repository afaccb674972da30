"""`spindle disks list`: every log directory of every broker, with its space and its state."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.broker_poll import BrokerReport, Survey
from spindle.cli.disks.documents import report_document
from spindle.cli.disks.state_text import fill_text, silence_text, state_text
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.history.forecast_options import HISTORY
from spindle.cli.history.forecast_text import forecast_document, time_to_full_text
from spindle.cli.parameter_types import WholeRange
from spindle.cli.table import table_lines
from spindle.cli.terminal import shortened
from spindle.client.admin.cluster import describe_brokers
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import no_broker_text
from spindle.client.disks import DiskView
from spindle.common.text import size_text
from spindle.common.uuids import uuid_text
from spindle.operations.forecasts import ClusterForecast
from spindle.operations.history_folder import read_history

SOME_ARE_SILENT: Final = 1
_COLUMNS: Final = (
    "BROKER",
    "DIRECTORY",
    "CAPACITY",
    "USED",
    "FILL",
    "FREE",
    "LOGS",
    "REPLICAS",
    "LEADERS",
    "FULL",
    "ID",
    "STATE",
)
_LESS_IMPORTANT: Final = ("ID", "USED", "CAPACITY", "LOGS")
"""Columns that a narrow terminal leaves out, in this order."""
_OF_NO_FORECAST: Final = ("LEADERS", "REPLICAS", "FILL")
"""Further columns that it leaves out if there are forecasts."""
_REMARK: Final = "Broker {} is not of Spindle: no directory ids, no reasons of failures."
_INDENT: Final = 8
_SHORT: Final = len("online")


@click.command(
    "list", epilog=examples("spindle disks list", "spindle disks list --broker 2 --json")
)
@click.option("--broker", type=WholeRange(min=0), metavar="N", help="Only this broker.")
@HISTORY
@cluster_command
def list_command(
    client: WireClient, as_json: bool, broker: int | None, history: Path | None
) -> int:
    """Show the log directories of all brokers: space, replicas and state.

    USED and FREE are those of the file system, LOGS is the size of the replicas. The exit code is
    1 if a broker did not answer. With a history, FULL is the time until the file system is full.
    """
    forecasts = None
    if history is not None:
        forecasts = ClusterForecast(read_history(history, describe_brokers(client).cluster_id))
    with Survey(client, broker) as survey:
        reports = survey.take()
        if not reports:
            raise CommandFailed(no_broker_text(str(broker), survey.node_ids))
    if as_json:
        documents = [report_document(report) for report in reports]
        if forecasts is not None:
            _add_forecasts(documents, forecasts)
        click.echo(json.dumps({"brokers": documents}))
    else:
        now_ms = time.time_ns() // 1_000_000
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo("\n".join(list_lines(reports, now_ms, width, forecasts)))
    return SOME_ARE_SILENT if any(report.disks is None for report in reports) else 0


def _add_forecasts(documents: Sequence[dict[str, Any]], forecasts: ClusterForecast) -> None:
    for document in documents:
        for directory in document["directories"]:
            free_bytes = -1 if directory["usableBytes"] is None else directory["usableBytes"]
            key = (document["broker"], directory["path"])
            forecast = forecasts.time_to_full(key, free_bytes, is_online=directory["isOnline"])
            directory["forecast"] = forecast_document(forecast)


def list_lines(
    reports: Sequence[BrokerReport],
    now_ms: int,
    width: int | None,
    forecasts: ClusterForecast | None = None,
) -> list[str]:
    """Return the table of directories, and a line for each broker with missing data.

    Args:
        now_ms: the present time.
        width: columns of the terminal: a table that is too wide leaves out columns, a long state
            gets its own line, and finally paths are shortened. None sets no limit.
        forecasts: None leaves out the column of times until directories are full.
    """
    columns = [title for title in _COLUMNS if title != "FULL" or forecasts is not None]
    rows = list(_rows(reports, now_ms, forecasts))
    lines = _table(rows, columns)
    if width is not None:
        optional = _LESS_IMPORTANT if forecasts is None else _LESS_IMPORTANT + _OF_NO_FORECAST
        for left_out in range(len(optional) + 1):
            shown = [title for title in columns if title not in optional[:left_out]]
            lines = _folded_table(rows, shown, width)
            if max(map(len, lines)) <= width:
                break
        else:
            longest = max(len(row["DIRECTORY"]) for row in rows)
            room = max(len("DIRECTORY"), longest - max(map(len, lines)) + width)
            narrowed = [{**row, "DIRECTORY": shortened(row["DIRECTORY"], room)} for row in rows]
            lines = _folded_table(narrowed, shown, width)
    foreign = [report for report in reports if report.disks is not None and not report.is_spindle]
    return [*lines, *(_REMARK.format(report.node.node_id) for report in foreign)]


def _table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> list[str]:
    return table_lines(columns, [[row[title] for title in columns] for row in rows])


def _folded_table(
    rows: Sequence[Mapping[str, str]], columns: Sequence[str], width: int
) -> list[str]:
    return [part for line in _table(rows, columns) for part in _folded(line, width)]


def _rows(
    reports: Sequence[BrokerReport], now_ms: int, forecasts: ClusterForecast | None
) -> Iterator[Mapping[str, str]]:
    for report in reports:
        broker, disks = {"BROKER": str(report.node.node_id)}, report.disks
        if disks is None:
            yield dict.fromkeys(_COLUMNS, "-") | broker | {"STATE": silence_text(report)}
            continue
        for disk in disks.disks:
            words = {"STATE": state_text(disk, disks.moves, now_ms, disks.rebuilds)}
            if forecasts is not None:
                key, is_online = (report.node.node_id, disk.path), disk.failure is None
                full = forecasts.time_to_full(key, disk.usable_bytes, is_online=is_online)
                words["FULL"] = time_to_full_text(full)
            yield _numbers(disk) | broker | words


def _numbers(disk: DiskView) -> dict[str, str]:
    is_online = disk.failure is None
    return {
        "DIRECTORY": disk.path,
        "CAPACITY": size_text(disk.total_bytes),
        "USED": size_text(disk.used_bytes),
        "FILL": fill_text(disk),
        "FREE": size_text(disk.usable_bytes),
        "LOGS": size_text(disk.size_bytes) if is_online else "-",
        "REPLICAS": str(disk.partition_count) if is_online else "-",
        "LEADERS": str(disk.leader_count) if is_online else "-",
        "ID": uuid_text(disk.directory_id) if disk.directory_id is not None else "-",
    }


def _folded(line: str, width: int) -> list[str]:
    """Return a line whose last column, a long state, stands below it if it does not fit."""
    begin, _, state = line.rpartition("  ")
    if len(line) <= width or len(state) <= _SHORT:
        return [line]
    return [begin.rstrip(), " " * _INDENT + state]
