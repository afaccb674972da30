"""`spindle export status`: how far tables are behind their topics, once or at intervals."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from spindle.cli.examples import examples
from spindle.cli.export.errors import concise_errors, pairs
from spindle.cli.export.source_options import client_options
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import FiniteRange, WholeRange
from spindle.cli.shared_options import COMMAND_CONFIG, COUNT, SERVERS, interval_option
from spindle.cli.status.cluster_status import Problem
from spindle.cli.status.notification import Notifier, Targets, changes_of
from spindle.cli.status.watch import NEEDS_ATTENTION, print_changes
from spindle.cli.table import table_lines
from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.failures import FAILURES, failure
from spindle.common.text import count_noun, span_text

if TYPE_CHECKING:
    from spindle.pipeline.export.table_status import TablePlace, TableStatus

_HEADINGS: Final = (
    "TABLE", "FORMAT", "VERSION", "COMMITTED", "TOPICS", "LAG", "BEHIND", "DEAD LETTERS",
)  # fmt: skip


class Limits(NamedTuple):
    """The limits of a table; None stands for any value."""

    lag: int | None = None
    behind_s: float | None = None
    dead_letters: int | None = None


@click.command(
    "status",
    epilog=examples(
        "spindle export status ./tables -b 127.0.0.1:9092 --max-behind 300",
        "spindle export status ./tables -b 127.0.0.1:9092 --max-lag 100000 --watch "
        "--notify-url https://example.org/hook",
    ),
)
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@SERVERS
@COMMAND_CONFIG
@click.option(
    "--catalog",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of an Iceberg catalog; each TABLE is NAMESPACE.NAME then.",
)
@click.option("--max-lag", type=WholeRange(min=0), metavar="N", help="Offsets a table may lack.")
@click.option(
    "--max-behind",
    type=FiniteRange(min=0),
    metavar="SECONDS",
    help="Age that the oldest record a table lacks may have.",
)
@click.option(
    "--max-dead-letters", type=WholeRange(min=0), metavar="N", help="Dead letters of a table."
)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C, and print the changes.")
@interval_option(30.0)
@COUNT
@click.option(
    "--notify-command",
    metavar="COMMAND",
    help="With --watch, run this in a shell when problems come or go, with JSON on its input.",
)
@click.option(
    "--notify-url",
    metavar="URL",
    help="With --watch, POST the same JSON to this http or https address.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def status(**given: Any) -> int:
    """Show how far tables are behind their topics.

    TABLE is a table, or a directory with tables. LAG is the number of offsets that a table lacks,
    BEHIND the age of the oldest record among them. The exit code is 0, 3 if a table needs attention
    (a limit is passed, there is no table, its topic was deleted or created again, or retention has
    removed records that it lacks), and 1 if the brokers could not be asked.
    """
    targets = Targets.of(given["notify_command"], given["notify_url"])
    limits = Limits(given["max_lag"], given["max_behind"], given["max_dead_letters"])
    if given["watch"]:
        return _watch(given, limits, targets)
    if targets.any_given or given["count"] is not None:
        raise click.UsageError("--count, --notify-command and --notify-url need --watch")
    with concise_errors():
        statuses = _statuses(given)
    now_ms = time.time_ns() // 1_000_000
    problems = list(problems_of(statuses, limits, now_ms))
    if given["as_json"]:
        click.echo(json.dumps(status_document(statuses, problems, now_ms)))
    else:
        click.echo("\n".join(status_lines(statuses, problems, now_ms)))
    return NEEDS_ATTENTION if problems else 0


def _watch(given: Mapping[str, Any], limits: Limits, targets: Targets) -> int:
    before: Mapping[str, Problem] = {}
    checks = 0
    with Notifier(targets) as notifier:
        while True:
            due_s = time.monotonic() + given["interval_s"]
            now_ms = time.time_ns() // 1_000_000
            try:
                problems = problems_of(_statuses(given), limits, now_ms)
                now = {problem.key: problem for problem in problems}
            except FAILURES as error:
                # It is unknown whether the earlier problems have ended, so they stay.
                text = f"the brokers cannot be asked: {failure(error).plainly}"
                now = {**before, "unknown": Problem("unknown", "unknown cluster", text)}
            document = changes_of(before, now, "", now_ms)
            if document is not None or not checks:
                print_changes(document, as_json=given["as_json"])
            if document is not None:
                notifier.send(document)
            for line in notifier.failures():
                click.echo(line, err=True)
            before, checks = now, checks + 1
            if checks == given["count"]:
                return NEEDS_ATTENTION if now else 0
            time.sleep(max(0.0, due_s - time.monotonic()))


def _statuses(given: Mapping[str, Any]) -> "list[TableStatus]":
    from spindle.pipeline.export.table_status import table_statuses

    places = list(_places(given))
    properties = properties_of(given["file"])
    options = client_options(given["servers"], properties)
    with connect(given["servers"], properties) as client:
        view = client.metadata()
    return table_statuses(places, options, view)


def _places(given: Mapping[str, Any]) -> "Iterator[TablePlace]":
    from spindle.pipeline.export.table_status import TablePlace, find_tables

    catalog = pairs("--catalog", given["catalog"])
    for table in given["tables"]:
        if catalog:
            yield TablePlace("iceberg", table, catalog)
            continue
        places = find_tables(table)
        if not places:
            raise CommandFailed(f"{table}: there is no table, and no directory with tables")
        yield from places


def problems_of(
    statuses: "Sequence[TableStatus]", limits: Limits, now_ms: int
) -> Iterator[Problem]:
    """Yield why tables need attention; the key of a problem stays the same while it lasts."""
    for table in statuses:
        path = table.place.table
        if table.version is None:
            yield Problem(f"missing {path}", "missing tables", f"{path}: there is no such table")
            continue
        for topic in table.recreated:
            text = f"{path}: topic {topic} was deleted and created again"
            yield Problem(f"recreated {path} {topic}", "topics created again", text)
        if not table.partitions and not table.recreated:
            text = f"{path}: the cluster has none of its topics"
            yield Problem(f"topics {path}", "tables without topics", text)
        for lag in table.partitions:
            if lag.lost:
                lost = count_noun(lag.lost, "offset")
                text = f"{path}: retention has removed {lost} of {lag.partition} that it lacks"
                yield Problem(f"lost {path} {lag.partition}", "lost offsets", text)
        if limits.lag is not None and table.lag > limits.lag:
            lacks = count_noun(table.lag, "offset")
            text = f"{path}: the table lacks {lacks}; the limit is {limits.lag:,}"
            yield Problem(f"lag {path}", "tables with a lag", text)
        behind_s = table.behind_ms(now_ms) / 1000
        if limits.behind_s is not None and behind_s > limits.behind_s:
            text = (
                f"{path}: the table is {span_text(behind_s)} behind; the limit is "
                f"{span_text(limits.behind_s)}"
            )
            yield Problem(f"behind {path}", "tables that are behind", text)
        if limits.dead_letters is not None and table.dead_letters > limits.dead_letters:
            count = count_noun(table.dead_letters, "dead letter")
            text = f"{path}: {count}; the limit is {limits.dead_letters:,}"
            yield Problem(f"dead letters {path}", "tables with dead letters", text)


def status_lines(
    statuses: "Sequence[TableStatus]", problems: Sequence[Problem], now_ms: int
) -> list[str]:
    """Return a line for each table, and one for each problem."""
    rows = [
        (
            table.place.table,
            table.place.table_format,
            "-" if table.version is None else str(table.version),
            _ago(table.committed_ms, now_ms),
            ",".join(table.topics) or "-",
            f"{table.lag:,}",
            span_text(table.behind_ms(now_ms) / 1000),
            f"{table.dead_letters:,}",
        )
        for table in statuses
    ]
    texts = [f"attention  {problem.text}" for problem in problems]
    return [*table_lines(_HEADINGS, rows), *([""] if texts else []), *texts]


def _ago(time_ms: int | None, now_ms: int) -> str:
    return "-" if time_ms is None else f"{span_text(max(0, now_ms - time_ms) / 1000)} ago"


def status_document(
    statuses: "Sequence[TableStatus]", problems: Sequence[Problem], now_ms: int
) -> dict[str, Any]:
    """Return the state of tables as JSON."""
    return {
        "time_ms": now_ms,
        "tables": [
            {
                "table": table.place.table,
                "format": table.place.table_format,
                "version": table.version,
                "committed_ms": table.committed_ms,
                "lag": table.lag,
                "behind_seconds": table.behind_ms(now_ms) / 1000,
                "dead_letters": table.dead_letters,
                "partitions": [
                    {
                        "topic": lag.partition.topic,
                        "partition": lag.partition.partition,
                        "table_end_offset": lag.table_end,
                        "log_start_offset": lag.log_start,
                        "log_end_offset": lag.log_end,
                        "lag": lag.lag,
                    }
                    for lag in table.partitions
                ],
            }
            for table in statuses
        ],
        "problems": [
            {"key": problem.key, "kind": problem.kind, "text": problem.text} for problem in problems
        ],
    }
