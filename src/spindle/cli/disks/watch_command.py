"""`spindle disks watch`: the activity of every log directory, at intervals."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from spindle.cli.cluster_command import cluster_command
from spindle.cli.disks.broker_poll import Survey
from spindle.cli.disks.documents import report_document
from spindle.cli.disks.rates import BrokerRates, DiskRate, MoveRate, OperationRate, key_of
from spindle.cli.disks.screen import BrokerPicture, watch_lines
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import WholeRange
from spindle.cli.shared_options import COUNT, interval_option
from spindle.cli.terminal import Line, shows_blocks
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import no_broker_text

_WAIT_MS: Final = 3_000
_LOOK_S: Final = 0.25
"""Time between two checks of the terminal's size."""
_NS_PER_MS: Final = 1_000_000


class Watch:
    """Polls the brokers, and compares each result with the previous one."""

    def __init__(self, survey: Survey, broker_id: int | None) -> None:
        self._survey = survey
        self._broker_id = broker_id
        self._rates: dict[int, BrokerRates] = {}

    def take(self) -> list[BrokerPicture]:
        """Return the reports of all brokers with their rates.

        Raises:
            CommandFailed: there is no such broker.
            ApiError, ClientError, ProtocolViolation: no broker has ever returned the list of
                brokers.
        """
        reports = self._survey.take()
        if not reports:
            raise CommandFailed(no_broker_text(str(self._broker_id), self._survey.node_ids))
        watched = []
        for report in reports:
            rates = self._rates.setdefault(report.node.node_id, BrokerRates())
            disks, moves = rates.add(report.disks) if report.disks is not None else ({}, {})
            watched.append(BrokerPicture(report, disks, moves))
        return watched


@click.command(
    "watch",
    epilog=examples("spindle disks watch", "spindle disks watch --interval 5 --count 3 --json"),
)
@interval_option(2.0)
@COUNT
@click.option("--broker", type=WholeRange(min=0), metavar="N", help="Only this broker.")
@cluster_command
def watch_command(
    client: WireClient, as_json: bool, interval_s: float, count: int | None, broker: int | None
) -> None:
    """Show all log directories until Ctrl-C: space, traffic, latencies, moves and failures.

    IN/s and OUT/s are the bytes written to and read from files. BUSY is the share of the time in
    which the directory's I/O thread worked, QUEUE the jobs that wait for it. On a terminal the
    screen is refreshed; otherwise each interval prints a block, or with --json one line with one
    object.
    """
    try:
        with Survey(client, broker, _WAIT_MS) as survey:
            watch = Watch(survey, broker)
            if as_json:
                _print_each(watch, interval_s, count, _json_line)
            elif sys.stdout.isatty():
                _draw(watch, interval_s, count)
            else:
                _print_each(watch, interval_s, count, _block)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader has gone; Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_each(
    watch: Watch,
    interval_s: float,
    count: int | None,
    text_of: Callable[[Sequence[BrokerPicture], int], str],
) -> None:
    """Print a text after each interval; the first poll is only for comparison."""
    due_s = time.monotonic()
    watch.take()
    printed = 0
    while count is None or printed < count:
        due_s = max(due_s + interval_s, time.monotonic())
        time.sleep(due_s - time.monotonic() if due_s > time.monotonic() else 0)
        click.echo(text_of(watch.take(), _now_ms()))
        printed += 1


def _block(watched: Sequence[BrokerPicture], now_ms: int) -> str:
    return "\n".join([line.text for line in watch_lines(watched, now_ms)] + [""])


def _draw(watch: Watch, interval_s: float, count: int | None) -> None:
    """Draw the terminal after each interval, and when its size changes."""
    console = Console(highlight=False)
    has_blocks = shows_blocks(console.encoding)
    watched, now_ms = watch.take(), _now_ms()
    shown = 1

    def picture() -> Text:
        width, height = console.size
        lines = watch_lines(watched, now_ms, width, has_blocks=has_blocks)
        return Text("\n").join(
            Text(line.text, line.style, no_wrap=True) for line in _cropped(lines, height)
        )

    with Live(picture(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            _wait(interval_s, console, lambda: live.update(picture(), refresh=True))
            if count is not None and shown >= count:
                break
            watched, now_ms = watch.take(), _now_ms()
            shown += 1
            live.update(picture(), refresh=True)
    for line in watch_lines(watched, now_ms, console.size.width, has_blocks=has_blocks):
        console.print(Text(line.text, line.style, no_wrap=True))


def _cropped(lines: Sequence[Line], height: int) -> list[Line]:
    if len(lines) <= height:
        return list(lines)
    missing = len(lines) - height + 1
    return [*lines[: height - 1], Line(f"... {missing} more lines; the terminal is too short")]


def _wait(interval_s: float, console: Console, on_resize: Callable[[], None]) -> None:
    ends_s = time.monotonic() + interval_s
    size = console.size
    while (left_s := ends_s - time.monotonic()) > 0:
        time.sleep(min(_LOOK_S, left_s))
        if console.size != size:
            size = console.size
            on_resize()


def _now_ms() -> int:
    return time.time_ns() // _NS_PER_MS


# -- JSON


def _json_line(watched: Sequence[BrokerPicture], now_ms: int) -> str:
    return json.dumps({"timeMs": now_ms, "brokers": list(map(watched_document, watched))})


def watched_document(watched: BrokerPicture) -> dict[str, Any]:
    """Return the document of a broker, with `rates` in each directory and move; null if unknown."""
    document = report_document(watched.report)
    for directory in document["directories"]:
        rate = watched.disks.get(directory["path"])
        directory["rates"] = _disk_rates(rate) if rate is not None else None
    disks = watched.report.disks
    for move, move_document in zip(disks.moves if disks else (), document["moves"], strict=True):
        move_document["rates"] = _move_rates(watched.moves.get(key_of(move)))
    return document


def _disk_rates(rate: DiskRate) -> dict[str, Any]:
    return {
        "inBytesPerSecond": rate.writes.bytes_per_second,
        "outBytesPerSecond": rate.reads.bytes_per_second,
        "busy": rate.busy,
        "read": _times(rate.reads),
        "write": _times(rate.writes),
        "sync": _times(rate.syncs),
    }


def _times(rate: OperationRate) -> dict[str, Any]:
    return {
        "count": rate.count,
        "meanMs": rate.mean_ms,
        "medianMs": rate.median_ms,
        "p99Ms": rate.p99_ms,
    }


def _move_rates(rate: MoveRate | None) -> dict[str, Any]:
    return {
        "bytesPerSecond": rate.bytes_per_second if rate else None,
        "secondsLeft": rate.seconds_left if rate else None,
    }
