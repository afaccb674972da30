"""`spindle audit`: options, progress, table or JSON, and the plan of repairs."""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

import click

from spindle.cli.audit.cluster import audited_cluster, cluster_documents, cluster_lines
from spindle.cli.audit.screen import progress_bar, report_document, report_lines
from spindle.cli.audit.spark import spark_workers
from spindle.cli.pages.audit_page import audit_page
from spindle.cli.pages.html_option import HTML, write_page
from spindle.cli.sizes import parse_size
from spindle.cli.terminal import Line, show
from spindle.cli.tools.failures import FAILURES, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from spindle.audit.applied_repairs import FolderStates
    from spindle.audit.cluster_audit import ClusterAudit
    from spindle.audit.progress_file import ProgressFile
    from spindle.audit.report import AuditReport
    from spindle.audit.workers import AuditWorkers

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


@click.command("audit", cls=_AuditCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="one for each core",
    help="Processes that read at the same time.",
)
@click.option("--records", "checks_records", is_flag=True, help="Decode all records, too.")
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
    help="Keep results in FILE, and go on from those that an interrupted audit left there. "
    "With --spark it is a folder.",
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
@click.option("--command-config", "file", metavar="FILE", help="Property file of the client.")
@click.option(
    "--fetch",
    "fetches_replicas",
    is_flag=True,
    help="Fetch the replicas that are in no PATH from their brokers, and check their batches.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@HTML
@click.option("--repair-plan", "has_plan", is_flag=True, help="Print the repairs as a script.")
@click.option(
    "--apply",
    "applies",
    is_flag=True,
    help="Run the repairs that lose nothing: move files that a broker makes again away.",
)
@click.option(
    "--quarantine",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="The folder to which --apply moves files.",
)
def audit(
    paths: tuple[str, ...],
    jobs: int,
    checks_records: bool,
    bytes_per_second: int | None,
    progress_path: Path | None,
    spark_master: str | None,
    servers: str | None,
    file: str | None,
    fetches_replicas: bool,
    as_json: bool,
    has_plan: bool,
    html: Path | None,
    applies: bool,
    quarantine: Path | None,
) -> int:
    """Look for damage in log directories of Spindle or Apache Kafka.

    PATH is a log directory of a stopped or of a running broker. Without --apply nothing is changed.
    The exit code is 0 if all is in order, 1 if there are findings, and 2 if the audit could not be
    made in full: an option is wrong, a PATH is no log directory, or something could not be read or
    asked. It needs the extra spindle-log[spark], Spark only with --spark, a broker only with -b.
    """
    try:
        if as_json and has_plan:
            raise ValueError("--json prints the findings, --repair-plan a script: give one")
        if not paths and servers is None:
            raise ValueError("which log directories? Give their paths, or --bootstrap-server")
        roots = [_log_directory(text) for text in dict.fromkeys(paths)]
        _refuse_inside(roots, progress_path, html, quarantine)
        before = _before_repairs(roots, quarantine, applies=applies, prints=as_json or has_plan)
        with audited_cluster(servers, file, fetches_replicas=fetches_replicas) as cluster:
            run = partial(
                _run,
                roots,
                jobs=jobs,
                checks_records=checks_records,
                bytes_per_second=bytes_per_second,
                is_quiet=as_json or has_plan,
                cluster=cluster,
            )
            report, seconds = _resumed(run, progress_path, spark_master)
        now_ms = time.time_ns() // 1_000_000
        document = report_document(report, seconds, now_ms, cluster_documents(cluster))
        if html is not None:
            write_page(html, audit_page(document))
        if quarantine is not None:
            from spindle.cli.audit.applying import apply_and_report

            is_done = apply_and_report(report, quarantine.resolve(), before)
            return 0 if is_done else _exit_code(report)
    except FAILURES as error:
        click.echo(failure(error).plainly, err=True)
        return _UNREADABLE
    except (ImportError, ValueError) as error:
        click.echo(error, err=True)
        return _UNREADABLE
    if as_json:
        click.echo(json.dumps(document, indent=1))
    elif has_plan:
        _print_plan(report)
    else:
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        show([*map(Line, cluster_lines(cluster, width)), *report_lines(report, seconds, width)])
        if html is not None:
            click.echo(f"\nDrew {html}")
    return _exit_code(report)


def _log_directory(text: str) -> Path:
    path = Path(text).resolve()
    try:
        names = os.listdir(path)
    except OSError as error:
        raise ValueError(f"{text} cannot be read as a log directory: {error.strerror}") from None
    if "meta.properties" in names or any("-checkpoint" in name for name in names):
        return path
    inside = [name for name in sorted(names) if (path / name / "meta.properties").is_file()]
    hint = f"; audit those inside of it: {', '.join(inside)}" if inside else ""
    raise ValueError(
        f"{text} is no log directory: it has neither meta.properties nor checkpoints{hint}"
    )


def _refuse_inside(roots: list[Path], *files: Path | None) -> None:
    """Refuse to write into a log directory."""
    for file in files:
        if file is not None and any(file.resolve().is_relative_to(root) for root in roots):
            raise ValueError(f"{file} must be outside of the log directories")


def _before_repairs(
    roots: list[Path], quarantine: Path | None, *, applies: bool, prints: bool
) -> "FolderStates":
    """Return the states of folders that may be repaired; refuse what cannot be repaired.

    Raises:
        ConfigError: a log directory is in use.
        ValueError: the options contradict each other.
    """
    from spindle.audit.applied_repairs import folder_states
    from spindle.cli.audit.applying import locked

    if applies != (quarantine is not None):
        raise ValueError("--apply moves files to a folder: give both --apply and --quarantine")
    if not applies:
        return {}
    if prints:
        raise ValueError("--apply says what it did: give neither --json nor --repair-plan")
    with locked(roots):
        return folder_states(roots)


def _resumed(
    run: "Callable[[ProgressFile | None, AuditWorkers], tuple[AuditReport, float]]",
    path: Path | None,
    spark_master: str | None,
) -> "tuple[AuditReport, float]":
    """Run the audit, here or on Spark, with what keeps its progress, if it has that."""
    from spindle.audit.progress_file import progress_file
    from spindle.audit.workers import audit_all

    if spark_master is not None:
        with spark_workers(spark_master, path) as workers:
            return run(None, workers)
    if path is None:
        return run(None, audit_all)
    with progress_file(path) as progress:
        return run(progress, audit_all)


def _run(
    roots: list[Path],
    progress: "ProgressFile | None",
    workers: "AuditWorkers",
    *,
    jobs: int,
    checks_records: bool,
    bytes_per_second: int | None,
    is_quiet: bool,
    cluster: "ClusterAudit | None",
) -> "tuple[AuditReport, float]":
    from spindle.audit.run import run_audit
    from spindle.cli.audit.metadata import load_placement

    started = time.monotonic()
    with progress_bar(not is_quiet) as show:
        report = run_audit(
            roots,
            jobs=jobs,
            checks_records=checks_records,
            load_placement=partial(load_placement, roots)
            if cluster is None
            else cluster.load_placement,
            cluster=cluster,
            on_progress=show,
            bytes_per_second=bytes_per_second,
            progress=progress,
            workers=workers,
        )
    return report, time.monotonic() - started


def _print_plan(report: "AuditReport") -> None:
    from spindle.audit.repairs import repair_plan, repairs_of

    lines = repair_plan(repairs_of(report.directories, report.findings))
    # The names of files are printed byte for byte, also those that are not valid Unicode.
    click.echo(os.fsencode("\n".join(lines or ["# There is nothing to repair."])))


def _exit_code(report: "AuditReport") -> int:
    from spindle.audit.findings import FindingKind

    unseen = (FindingKind.UNREADABLE, FindingKind.BROKER_SILENT)
    if any(finding.kind in unseen for finding in report.findings):
        return _UNREADABLE
    return _DAMAGED if report.findings else 0
