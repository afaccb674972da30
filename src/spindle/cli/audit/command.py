"""`spindle audit`: options, progress, table or JSON, and the plan of repairs."""

import json
import os
import sys
import time
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

import click

from spindle.cli.audit.cluster import audited_cluster, cluster_documents, cluster_lines
from spindle.cli.audit.request import AuditRequest, states_before_repairs
from spindle.cli.audit.running import run_requested
from spindle.cli.audit.screen import report_document, report_lines
from spindle.cli.audit.scrub import scrub_document, scrub_lines
from spindle.cli.examples import examples
from spindle.cli.html.html_option import HTML, write_page
from spindle.cli.parameter_types import WholeRange, parse_size
from spindle.cli.shared_options import COMMAND_CONFIG
from spindle.cli.terminal import Line, show
from spindle.cli.tools.failures import FAILURES, failure

if TYPE_CHECKING:
    from spindle.audit.report import AuditReport

_DAMAGED: Final = 1
_UNREADABLE: Final = 2


class _AuditCommand(click.Command):
    """A command that ends with 2 if its options are wrong, because 1 means findings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            click.echo(f"{error.format_message()}\nTry: {ctx.command_path} --help", err=True)
            ctx.exit(_UNREADABLE)


@click.command(
    "audit",
    cls=_AuditCommand,
    epilog=examples(
        "spindle audit /disk1/log /disk2/log", "spindle audit -b 127.0.0.1:9092 --fetch"
    ),
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "-j",
    "--jobs",
    type=WholeRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="one for each core",
    help="Processes that read at the same time.",
)
@click.option("--records", "checks_records", is_flag=True, help="Decode all records as well.")
@click.option(
    "--throttle",
    "bytes_per_second",
    callback=parse_size,
    metavar="SIZE",
    help="Read at most this much per second from each directory, for example 50MiB.",
)
@click.option(
    "--resume",
    "progress_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep results in FILE, and continue an interrupted audit from them. "
    "With --spark it is a folder.",
)
@click.option(
    "--history",
    "history_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Record in FILE when each replica was read, and start with those that were read longest "
    "ago; for audits at regular times.",
)
@click.option(
    "--minutes",
    type=WholeRange(min=1),
    metavar="N",
    help="With --history: start no replica after N minutes; the next audit continues there.",
)
@click.option(
    "--overdue-days",
    type=WholeRange(min=1),
    default=30,
    show_default=True,
    metavar="N",
    help="With --history: name the files that were not read for N days.",
)
@click.option(
    "--spark",
    "spark_master",
    metavar="MASTER",
    help="Read on the executors of this Spark master, such as spark://host:7077.",
)
@click.option(
    "-b",
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT,...",
    help="Addresses of brokers: compare the metadata of their cluster with its log directories.",
)
@COMMAND_CONFIG
@click.option(
    "--fetch",
    "fetches_replicas",
    is_flag=True,
    help="Also check the batches of replicas that are in no PATH: fetch them from their brokers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@HTML
@click.option("--repair-plan", "has_plan", is_flag=True, help="Print the repairs as a script.")
@click.option(
    "--apply",
    "applies",
    is_flag=True,
    help="Apply safe repairs: move away files that the broker rebuilds.",
)
@click.option(
    "--quarantine",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="The folder to which --apply moves files.",
)
def audit(**options: Any) -> int:
    """Look for damage in log directories of Spindle or Apache Kafka.

    PATH is a log directory of a stopped or of a running broker. Without --apply nothing is changed.
    The exit code is 0 without findings, 1 with findings, and 2 if the audit is incomplete: an
    option is wrong, a PATH is not a log directory, or something could not be read or asked. The
    command needs the extra spindle-log[audit], with --spark spindle-log[spark]; brokers are asked
    only with -b.
    """
    request = AuditRequest(**options)
    try:
        return _audit(request)
    except FAILURES as error:
        click.echo(failure(error).plainly, err=True)
    except (ImportError, ValueError) as error:
        click.echo(error, err=True)
    return _UNREADABLE


def _audit(request: AuditRequest) -> int:
    """Run the audit, and print its findings; return the exit code.

    Raises:
        ApiError, ClientError, ConfigError, ToolFailed: the cluster cannot be queried.
        ImportError: a library is not installed.
        ValueError: an option is wrong.
    """
    request.check()
    roots = request.roots()
    before = states_before_repairs(request, roots)
    with audited_cluster(
        request.servers, request.file, fetches_replicas=request.fetches_replicas
    ) as cluster:
        report, seconds, scrub = run_requested(request, roots, cluster)
    now_ms = time.time_ns() // 1_000_000
    document = report_document(report, seconds, now_ms, cluster_documents(cluster))
    if scrub is not None:
        document["scrub"] = scrub_document(scrub)
    if request.html is not None:
        from spindle.cli.html.audit_page import audit_page

        write_page(request.html, audit_page(document))
    if request.quarantine is not None:
        from spindle.cli.audit.applying import apply_and_report

        is_done = apply_and_report(report, request.quarantine.resolve(), before)
        return 0 if is_done else _exit_code(report)
    if request.as_json:
        click.echo(json.dumps(document, indent=1))
    elif request.has_plan:
        _print_plan(report)
    else:
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        lines = [*map(Line, cluster_lines(cluster, width)), *report_lines(report, seconds, width)]
        show(lines if scrub is None else [*lines, *scrub_lines(scrub, width)])
        if request.html is not None:
            click.echo(f"\nDrew {request.html}")
    is_known_damaged = scrub is not None and bool(scrub.earlier)
    return _exit_code(report) or (_DAMAGED if is_known_damaged else 0)


def _print_plan(report: "AuditReport") -> None:
    from spindle.audit.repairs import repair_plan, repairs_of

    lines = repair_plan(repairs_of(report))
    # The names of files are printed byte for byte, also those that are not valid Unicode.
    click.echo(os.fsencode("\n".join(lines or ["# There is nothing to repair."])))


def _exit_code(report: "AuditReport") -> int:
    from spindle.audit.findings import FindingKind, is_unread

    incomplete = (FindingKind.BROKER_SILENT, FindingKind.METADATA_NOT_READ)
    is_incomplete = any(finding.kind in incomplete for finding in report.findings)
    if is_incomplete or is_unread(report.findings):
        return _UNREADABLE
    return _DAMAGED if report.findings else 0
