"""`spindle export`: write topics into a table, every offset once; can be repeated, or follow."""

import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from spindle.cli.examples import examples
from spindle.cli.export.errors import concise_errors, pairs
from spindle.cli.export.screen import progress_bar, result_document, result_lines
from spindle.cli.export.source_options import client_options
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import FiniteRange, WholeRange, parse_size
from spindle.cli.shared_options import COMMAND_CONFIG, SERVERS, RenamedOption
from spindle.cli.tools.bootstrap import properties_of
from spindle.pipeline.options.values import json_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spindle.pipeline.export.jobs import ExportJob
    from spindle.pipeline.export.model import ExportResult

CONFLICT: Final = 3
"""Exit code: another export of the same partitions committed first."""

INTERRUPTED: Final = 130
"""Exit code: Ctrl-C ended the run."""

Edge = Literal["starting", "ending"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPTIONS: Final = {"starting": "--start", "ending": "--end"}


def place_options(edge: Edge, topic: str, text: str) -> dict[str, str]:
    """Return the option of the data source for a place in the topics.

    Args:
        topic: The topic that is exported.
        text: `earliest`, `latest`, a time in ISO 8601 (UTC if it names no zone), or the offsets as
            JSON: {"0": 17, "1": 4}.

    Raises:
        click.BadParameter: the text is none of these.
    """
    if text in ("earliest", "latest"):
        return {f"{edge}Offsets": text}
    option = _OPTIONS[edge]
    if text.startswith("{"):
        return {f"{edge}Offsets": json.dumps({topic: _offsets(option, text)})}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{option} {text!r}: want earliest, latest, a time such as 2026-11-23T12:00 or offsets "
            'such as {"0": 17}'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    time_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if time_ms < 0:
        raise click.BadParameter(f"{option} {text!r} is before 1970")
    return {f"{edge}Timestamp": str(time_ms)}


def _offsets(option: str, text: str) -> dict[str, Any]:
    """Return the offsets by partition; the source checks them."""
    try:
        return json_object(option, text, '{"0": 17, "1": 4}')
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    "topic",
    epilog=examples(
        "spindle export events ./table -b 127.0.0.1:9092 --value string",
        "spindle export events ./table -b 127.0.0.1:9092 --follow",
        "spindle export users ./users -b 127.0.0.1:9092 --mode upsert --key id -o valueFormat=json "
        "-o valueSchema=infer",
    ),
)
@click.argument("topic")
@click.argument("table")
@SERVERS
@COMMAND_CONFIG
@click.option(
    "--log-dir",
    "log_dirs",
    multiple=True,
    metavar="DIR",
    help="Read this log directory (or glob) instead of reading through the brokers.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["delta", "iceberg", "parquet"]),
    default="delta",
    show_default=True,
    help="Format of the table.",
)
@click.option(
    "--catalog",
    "catalog",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the Iceberg catalog; TABLE is NAMESPACE.NAME then.",
)
@click.option(
    "--mode",
    type=click.Choice(["append", "upsert"]),
    default="append",
    show_default=True,
    help="append: a row for each record. upsert: one row for each key, with its latest value; a "
    "record without a value deletes it.",
)
@click.option(
    "--key",
    metavar="TYPE|COLUMN,...",
    default="binary",
    show_default=True,
    help="Type of the keys: binary, or string, which requires UTF-8. With --mode upsert also the "
    "columns that are the key of a row; otherwise the key of the record is.",
)
@click.option(
    "--envelope",
    type=click.Choice(["none", "debezium", "maxwell"]),
    default="none",
    show_default=True,
    help="With --mode upsert: JSON values are events of Debezium or Maxwell.",
)
@click.option(
    "--order-by",
    metavar="COLUMN,...",
    help="With --mode upsert: the greatest value of these columns wins, not the last record.",
)
@click.option(
    "--value",
    type=click.Choice(["binary", "string"]),
    default="binary",
    show_default=True,
    help="Type of the values; string requires UTF-8.",
)
@click.option("--columns", metavar="NAME,...", help="Columns of the table, in this order.")
@click.option("--headers", is_flag=True, help="Write the headers of records as well.")
@click.option(
    "--start",
    "start",
    cls=RenamedOption,
    former=["--from"],
    metavar="OFFSETS",
    help="First offsets: earliest, latest, a time, or offsets as JSON. Offsets before those of the "
    "table add the older records.",
)
@click.option(
    "--end",
    "end",
    cls=RenamedOption,
    former=["--until"],
    metavar="OFFSETS",
    help="Offsets at which this run ends (default: latest).",
)
@click.option(
    "--commit-bytes",
    "portion_size",
    cls=RenamedOption,
    former=["--portion-size"],
    callback=parse_size,
    metavar="SIZE",
    help="Commit after this many bytes of log (default: 1 GiB, with --mode upsert 128 MiB).",
)
@click.option(
    "--commit-rows",
    "portion_rows",
    cls=RenamedOption,
    former=["--portion-rows"],
    type=WholeRange(min=1),
    metavar="N",
    help="Commit after this many rows.",
)
@click.option(
    "--partition-by",
    metavar="COLUMN,...",
    help="Partition the table by date, hour (of the timestamp, UTC) or its columns.",
)
@click.option(
    "--compression",
    metavar="CODEC",
    default="snappy",
    show_default=True,
    help="Codec of the files.",
)
@click.option(
    "--read-committed", is_flag=True, help="Leave out records of open and aborted transactions."
)
@click.option(
    "--accept-recreated-topic",
    "append_recreated",
    cls=RenamedOption,
    former=["--append-recreated"],
    is_flag=True,
    help="Accept a topic that was deleted and created again.",
)
@click.option(
    "--allow-data-loss", is_flag=True, help="Continue after a gap that retention has left."
)
@click.option(
    "-o",
    "--option",
    "further",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the source, such as valueFormat=json.",
)
@click.option(
    "--dead-letters", is_flag=True, help="Put bad records into the table TABLE_dead_letters."
)
@click.option("--follow", is_flag=True, help="Keep writing records as they arrive, until Ctrl-C.")
@click.option(
    "--follow-commit-seconds",
    "max_delay",
    cls=RenamedOption,
    former=["--max-delay"],
    type=FiniteRange(min=0.1),
    default=60.0,
    metavar="SECONDS",
    show_default=True,
    help="With --follow: commit at most this long after the first uncommitted record.",
)
@click.option(
    "--follow-commit-bytes",
    "target_size",
    cls=RenamedOption,
    former=["--target-size"],
    callback=parse_size,
    default="128MiB",
    metavar="SIZE",
    show_default=True,
    help="With --follow: commit earlier after this many bytes of log.",
)
@click.option("--compact", is_flag=True, help="At the end merge small files into large ones.")
@click.option(
    "--vacuum",
    type=FiniteRange(min=0),
    metavar="HOURS",
    help="At the end delete files of killed runs and files removed from the table more than HOURS "
    "ago.",
)
@click.option(
    "--master", metavar="MASTER", default="local[*]", show_default=True, help="Spark master."
)
@click.option("-c", "--spark-conf", multiple=True, metavar="NAME=VALUE", help="Spark setting.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def export(**given: Any) -> int:
    """Write TOPIC into TABLE, every offset once.

    TABLE is a directory, or NAMESPACE.NAME in an Iceberg catalog. The command may be killed at any
    time; run it again to continue where the table ends. The exit code is 0 on success, 3 if another
    export of the same partitions committed first, 130 after Ctrl-C without
    --follow, and 1 on any other failure.
    """
    with concise_errors(), _print_warnings():
        job = job_of(given)
        from spindle.pipeline.export import ExportConflict

        try:
            with _interrupts_not_logged():
                _run(job, given)
        except ExportConflict as error:
            _tell(str(error))
            return CONFLICT
        except KeyboardInterrupt:
            _tell("stopped; committed data is kept; the next run continues after it")
            return INTERRUPTED
        return 0


@contextmanager
def _interrupts_not_logged() -> Iterator[None]:
    """Keep py4j from logging Ctrl-C as an error with a traceback."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))

    root = logging.getLogger()
    root.addFilter(is_wanted)
    try:
        yield
    finally:
        root.removeFilter(is_wanted)


def _tell(text: str) -> None:
    click.echo(f"spindle export: {text}", err=True)


@contextmanager
def _print_warnings() -> Iterator[None]:
    """Print warnings without the place in the code."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        _tell(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield


def job_of(given: Mapping[str, Any]) -> "ExportJob":
    """Return the export of the options of a command."""
    from spindle.pipeline.export import PortionSize
    from spindle.pipeline.export.jobs import ExportJob
    from spindle.pipeline.export.portions import DEFAULT_PORTION, MERGE_PORTION
    from spindle.pipeline.export.settings import ExportOptions

    settings = ExportOptions(
        mode=given["mode"],
        envelope=given["envelope"],
        source="spindle-segments" if given["log_dirs"] else "spindle",
        key=given["key"],
        value=given["value"],
        compression=given["compression"],
        recreated_topic="append" if given["append_recreated"] else "refuse",
        begin="latest" if given["start"] == "latest" else "earliest",
    )
    if given["order_by"] is not None:
        settings["order_by"] = given["order_by"]
    if given["portion_size"] is not None or given["portion_rows"] is not None:
        default = DEFAULT_PORTION if given["mode"] == "append" else MERGE_PORTION
        size = given["portion_size"] or default.log_bytes
        settings["portion"] = PortionSize(size, given["portion_rows"])
    if given["partition_by"] is not None:
        settings["partition_by"] = given["partition_by"]
    catalog = pairs("--catalog", given["catalog"]) if given["catalog"] else None
    options = _source_options(given)
    return ExportJob(given["table_format"], given["table"], options, settings, catalog)


def _source_options(given: Mapping[str, Any]) -> dict[str, str]:
    properties = properties_of(given["file"])
    has_directories = bool(given["log_dirs"])
    options = client_options(given["servers"], properties, are_needed=not has_directories)
    options["subscribe"] = given["topic"]
    if has_directories:
        options["logDirs"] = ",".join(given["log_dirs"])
    if given["columns"] is not None:
        options["columns"] = given["columns"]
    if given["headers"]:
        options["includeHeaders"] = "true"
    if given["start"] not in (None, "latest"):
        options |= place_options("starting", given["topic"], given["start"])
    if given["end"] is not None:
        options |= place_options("ending", given["topic"], given["end"])
    if given["read_committed"]:
        options["kafka.isolation.level"] = "read_committed"
    if given["allow_data_loss"]:
        options["failOnDataLoss"] = "false"
    if given["dead_letters"]:
        options["badRecords"] = "dead_letters"
    return options | pairs("--option", given["further"])


def _session(given: Mapping[str, Any]) -> "SparkSession":
    from spindle.pipeline.spark.session import get_spark

    conf = pairs("--spark-conf", given["spark_conf"])
    return get_spark("spindle export", given["master"], conf, log_level="OFF")


def _run(job: "ExportJob", given: Mapping[str, Any]) -> None:
    started = time.monotonic()
    # A topic that does not exist, or has nothing new, needs no Spark, which takes seconds to start.
    idle = job.idle_result()
    if idle is not None and not given["follow"]:
        _show(idle, time.monotonic() - started, given["as_json"])
    else:
        _check_folder(job)
        _export(job, given)
    _maintain(job, given)


def _check_folder(job: "ExportJob") -> None:
    """Check before Spark starts that the table can be written."""
    from spindle.pipeline.export.paths import local_directory

    if job.catalog is not None:
        return
    folder = str(local_directory(job.table))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise CommandFailed(f"cannot write the table {job.table}: {folder} is not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandFailed(f"cannot write the table {job.table}: {folder} is not writable")


def _export(job: "ExportJob", given: Mapping[str, Any]) -> None:
    spark = _session(given)
    try:
        if given["follow"]:
            _follow(spark, job, given)
            return
        started = time.monotonic()
        with progress_bar(not given["as_json"]) as show:
            job.settings["progress"] = show
            result = job.run(spark)
        _show(result, time.monotonic() - started, given["as_json"])
    except KeyboardInterrupt:
        # Ctrl-C has ended the JVM, too, and PySpark warns of that when the session stops.
        warnings.simplefilter("ignore")
        raise
    finally:
        spark.stop()


def _follow(spark: "SparkSession", job: "ExportJob", given: Mapping[str, Any]) -> None:
    from spindle.pipeline.export.following import (
        FollowSettings,
        commit_line,
        follow_export,
        stop_signals,
    )

    settings = FollowSettings(given["target_size"], int(given["max_delay"] * 1000))
    stopped = threading.Event()
    started = time.monotonic()
    with stop_signals(stopped), progress_bar(not given["as_json"]) as shown:
        _tell("waits for records and commits them, until Ctrl-C or SIGTERM")
        job.settings["progress"] = shown
        for result in follow_export(spark, job, settings, stopped, _tell):
            if given["as_json"]:
                _show(result, time.monotonic() - started, as_json=True)
            else:
                click.echo(commit_line(result))
            started = time.monotonic()
            shown.wait_for_records()
    _tell("stopped; the table has everything up to its last commit")


def _maintain(job: "ExportJob", given: Mapping[str, Any]) -> None:
    from spindle.pipeline.export.maintenance import compact_table, vacuum_table

    where = (job.table_format, job.table, job.catalog)
    if given["compact"]:
        before, after = compact_table(*where)
        if not given["as_json"]:
            became = f"{before} small files became {after}" if before else "no small files"
            click.echo(f"compacted: {became}")
    if given["vacuum"] is not None:
        removed = vacuum_table(*where, hours=given["vacuum"])
        if not given["as_json"]:
            click.echo(f"vacuum: {removed} files deleted")


def _show(result: "ExportResult", seconds: float, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result_document(result, seconds)))
    else:
        click.echo("\n".join(result_lines(result, seconds)))
