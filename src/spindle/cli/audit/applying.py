"""`spindle audit --apply`: the safe repairs, under the locks of the log directories."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spindle.common.text import count_noun
from spindle.runtime.disks.directory_lock import DirectoryLock

if TYPE_CHECKING:
    from spindle.audit.applied_repairs import FolderStates
    from spindle.audit.report import AuditReport


@contextmanager
def locked(roots: list[Path]) -> Iterator[None]:
    """Hold the locks of log directories, as their brokers do.

    Do not lock an empty directory: its disk may not be mounted.

    Raises:
        ConfigError: a broker, or another repair, is using a directory.
    """
    with ExitStack() as stack:
        for root in filter(_has_files, roots):
            stack.callback(DirectoryLock(str(root)).release)
        yield


def _has_files(root: Path) -> bool:
    return root.is_dir() and any(root.iterdir())


def apply_and_report(report: "AuditReport", quarantine: Path, before: "FolderStates") -> bool:
    """Run the safe repairs and print them; return True if nothing is left to the operator.

    Args:
        before: the states of the folders before the audit.

    Raises:
        ConfigError: a log directory is in use.
        OSError: a file cannot be moved.
    """
    from spindle.audit.applied_repairs import apply_repairs
    from spindle.audit.repairs import repairs_of

    repairs = repairs_of(report)
    with locked([repair.directory.path for repair in repairs]):
        moved, left = apply_repairs(repairs, quarantine, before)
    for path, target in moved:
        _print(f"moved {path} to {target}")
    counts = Counter((step.finding.kind, step.finding.path, step.is_safe) for step in left)
    for step in left:
        more = counts.pop((step.finding.kind, step.finding.path, step.is_safe), 0) - 1
        if more < 0:
            continue
        kind = step.finding.kind
        advice = (
            "it has changed since it was read: audit again" if step.is_safe else step.finding.repair
        )
        places = f" (and {count_noun(more, 'more place')})" if more else ""
        _print(f"left {kind.text} {step.finding.path}: {step.finding.evidence}{places}; {advice}")
    _print(
        f"{count_noun(len(moved), 'file')} moved; {count_noun(len(left), 'finding')} left to you"
        + ("; see --repair-plan for the commands" if left else "")
    )
    owners = dict.fromkeys(
        repair.owner
        for repair in repairs
        if any(path.is_relative_to(repair.directory.path) for path, _ in moved)
    )
    if owners:
        _print(f"Start {', '.join(owners)}: a broker makes the files again. Then audit again.")
    return not left


def _print(text: str) -> None:
    click.echo(os.fsencode(text))
