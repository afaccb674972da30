"""`kafka-consumer-perf-test`: read records and measure the speed."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.consumption import Consumption, StartPosition
from spindle.cli.tools.failures import UsageError
from spindle.cli.tools.line_reader import key_values
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    Declaration,
    Option,
    Options,
)
from spindle.protocol.sentinels import EARLIEST, LATEST

_MIB: Final = 1024 * 1024
_MS: Final = 1000
_TIMEOUT_MS: Final = 10_000
_COLUMNS: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)

DECLARATION: Final = Declaration(
    "This tool is used to verify the consumer performance.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("topic", "The topic.", "topic"),
        Option("include", "A pattern of topics.", "regex"),
        Option("num-records", "How many records to read.", "count"),
        Option("messages", "The same as --num-records.", "count"),
        Option("group", "Read as a member of this group.", "group"),
        Option("from-latest", "Begin after the last records."),
        Option("timeout", "End when no record has arrived for this time, 10000.", "ms"),
        Option("fetch-size", "Accepted; brokers send what they have.", "bytes"),
        Option("socket-buffer-size", "Accepted; the system's size is used.", "bytes"),
        Option("consumer.config", "Property file of the client.", "file"),
        Option("command-property", "A property of the client.", "key=value"),
        Option("hide-header", "Leave out the line with the names."),
        Option("print-metrics", "Has no effect."),
        Option("show-detailed-stats", "Has no effect."),
        Option("reporting-interval", "Has no effect.", "ms"),
        Option("date-format", "Has no effect.", "format"),
    ],
    examples=("spindle kafka consumer-perf-test --topic orders --num-records 100000",),
)


def _run(options: Options) -> None:
    options.require("bootstrap-server")
    if options.has("topic") == options.has("include"):
        raise UsageError("Exactly one of --include/--topic is required. ")
    wanted = options.integer("num-records") or options.integer("messages")
    if wanted is None:
        raise UsageError('Missing required argument "[num-records]"', "--num-records is missing")
    properties = properties_of(options.one("command-config") or options.one("consumer.config"))
    properties |= key_values(options.all("command-property"))
    topic = options.one("topic")
    start = StartPosition(
        [] if topic is None else [topic],
        options.one("include"),
        None,
        None,
        LATEST if options.has("from-latest") else EARLIEST,
    )
    if not options.has("hide-header"):
        click.echo(_COLUMNS)
    servers = options.one("bootstrap-server")
    with connect(servers, properties, client_id="perf-consumer-client") as client:
        consumption = Consumption(client, start, options.one("group"))
        began = datetime.now()
        try:
            count, size_bytes, joined_s = _read(
                consumption, wanted, (options.integer("timeout") or _TIMEOUT_MS) / _MS
            )
        finally:
            consumption.close()
    click.echo(row(began, datetime.now(), count, size_bytes, joined_s))
    if count < wanted:
        click.echo(
            f"WARNING: Exiting before consuming the expected number of records: timeout reached. "
            f"{count} of {wanted} came.",
            err=True,
        )


def _read(
    consumption: Consumption,
    wanted: int,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[int, int, float]:
    """Read records; return their number, their bytes, and the seconds before the first."""
    count = size_bytes = 0
    began = last = clock()
    joined_s = 0.0
    while count < wanted and clock() - last < timeout_s:
        records = consumption.next_records(None)
        if records:
            joined_s = joined_s if count else last - began
            last = clock()
        count += len(records)
        size_bytes += sum(len(r.key or b"") + len(r.value or b"") for r in records)
    return count, size_bytes, joined_s


def row(began: datetime, ended: datetime, count: int, size_bytes: int, joined_s: float) -> str:
    """Return the line of numbers."""
    elapsed = max((ended - began).total_seconds(), 1 / _MS)
    fetching = max(elapsed - joined_s, 1 / _MS)
    size_mib = size_bytes / _MIB
    return ", ".join(
        (
            _moment(began),
            _moment(ended),
            f"{size_mib:.4f}",
            f"{size_mib / elapsed:.4f}",
            str(count),
            f"{count / elapsed:.4f}",
            f"{joined_s * _MS:.0f}",
            f"{fetching * _MS:.0f}",
            f"{size_mib / fetching:.4f}",
            f"{count / fetching:.4f}",
        )
    )


def _moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}:{when.microsecond // _MS:03d}"


consume_perf = ToolCommand("consumer-perf-test", DECLARATION, _run)
