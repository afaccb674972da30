"""`spindle disks list`: every log directory of every broker, with its space and its state."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from shutil import get_terminal_size
from typing import Final

import click

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.documents import report_document
from spindle.cli.disks.state_text import silence_text, state_text
from spindle.cli.disks.survey import BrokerReport, Survey
from spindle.cli.failure import CommandFailed
from spindle.cli.table import table_lines
from spindle.client.disks import DiskView
from spindle.client.wire.cluster import WireClient
from spindle.common.sizes import size_text
from spindle.common.uuids import uuid_text

SOME_ARE_SILENT: Final = 1
_COLUMNS: Final = (
    "BROKER",
    "DIRECTORY",
    "CAPACITY",
    "USED",
    "FREE",
    "LOGS",
    "REPLICAS",
    "LEADERS",
    "ID",
    "STATE",
)
_LESS_IMPORTANT: Final = ("ID", "USED", "CAPACITY", "LOGS")
"""Columns that a narrow terminal lacks, the first one first."""
_REMARK: Final = "Broker {} is not of Spindle: no directory ids, no reasons of failures."
_INDENT: Final = 8
_SHORT: Final = len("online")


@click.command("list")
@click.option("--broker", type=click.IntRange(min=0), metavar="N", help="Only this broker.")
@cluster_command
def list_command(client: WireClient, as_json: bool, broker: int | None) -> int:
    """Show the log directories of all brokers: space, replicas and state.

    USED and FREE are those of the file system, LOGS is the size of the replicas. The exit code is
    1 if a broker did not answer.
    """
    with Survey(client, broker) as survey:
        reports = survey.take()
        if not reports:
            known = ", ".join(map(str, survey.node_ids))
            raise CommandFailed(f"there is no broker {broker}; there are {known}")
    if as_json:
        click.echo(json.dumps({"brokers": list(map(report_document, reports))}))
    else:
        now_ms = time.time_ns() // 1_000_000
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo("\n".join(list_lines(reports, now_ms, width)))
    return SOME_ARE_SILENT if any(each.disks is None for each in reports) else 0


def list_lines(reports: Sequence[BrokerReport], now_ms: int, width: int | None) -> list[str]:
    """Return the table of directories, and a line for each broker that told nothing or little.

    Args:
        now_ms: the present time.
        width: columns of the terminal: a table that is too wide lacks columns, and a long state
            gets a line of its own. None sets no limit.
    """
    rows = list(_rows(reports, now_ms))
    lines = _table(rows, _COLUMNS)
    if width is not None:
        for left_out in range(len(_LESS_IMPORTANT) + 1):
            dropped = _LESS_IMPORTANT[:left_out]
            lines = _table(rows, [title for title in _COLUMNS if title not in dropped])
            lines = [part for line in lines for part in _folded(line, width)]
            if max(map(len, lines)) <= width:
                break
    foreign = [report for report in reports if report.disks is not None and not report.is_spindle]
    return [*lines, *(_REMARK.format(report.node.node_id) for report in foreign)]


def _table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> list[str]:
    return table_lines(columns, [[row[title] for title in columns] for row in rows])


def _rows(reports: Sequence[BrokerReport], now_ms: int) -> Iterator[Mapping[str, str]]:
    for report in reports:
        broker, found = {"BROKER": str(report.node.node_id)}, report.disks
        if found is None:
            yield dict.fromkeys(_COLUMNS, "-") | broker | {"STATE": silence_text(report)}
            continue
        for disk in found.disks:
            yield _numbers(disk) | broker | {"STATE": state_text(disk, found.moves, now_ms)}


def _numbers(disk: DiskView) -> dict[str, str]:
    is_online = disk.failure is None
    return {
        "DIRECTORY": disk.path,
        "CAPACITY": size_text(disk.total_bytes),
        "USED": size_text(disk.used_bytes),
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
