"""Repairs: findings to moves of files, and these to a script. Nothing here runs them.

A file or directory is never deleted, but moved to a folder outside of the log directories, so that
every step can be undone. Commands that need a decision stand in the plan as comments.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spindle.audit.findings import AuditFinding, FindingKind, RepairKind
from spindle.audit.log_directory import ListedLogDirectory
from spindle.log.formats.names import INDEX_SUFFIX

_HEAD: Final = (
    "# Repairs of log directories. Read each comment before you run the command below it.",
    "set -eu",
    ': "${QUARANTINE:?set it to a folder outside of all log directories; nothing is deleted}"',
)
_IN_TRANSACTION_INDEX: Final = (
    FindingKind.TRANSACTION_INDEX_FILE,
    FindingKind.TRANSACTION_INDEX_ENTRY,
)
_IN_CHECKPOINT: Final = (FindingKind.CHECKPOINT_BEYOND_END, FindingKind.CHECKPOINT_ENTRY)
_BY_THE_BROKER: Final = (RepairKind.REBUILD, RepairKind.MAKE_ANEW)


@dataclass(frozen=True, slots=True)
class RepairStep:
    """The repair of one finding.

    Attributes:
        moves: files or directories to move to the quarantine, in this order.
        is_safe: the moves and the next start of the broker repair it, and lose nothing.
        note: a sentence for the person who repairs; empty if the moves say all.
    """

    finding: AuditFinding
    moves: tuple[Path, ...] = ()
    is_safe: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class DirectoryRepairs:
    """The repairs of one log directory, replicas that are to be copied again first."""

    directory: ListedLogDirectory
    steps: tuple[RepairStep, ...]

    @property
    def owner(self) -> str:
        """The broker of the directory, in words."""
        properties = self.directory.properties
        node = None if properties is None else properties.node_id
        return "the broker" if node is None else f"the broker of node {node}"


def repairs_of(
    directories: Sequence[ListedLogDirectory], findings: Iterable[AuditFinding]
) -> list[DirectoryRepairs]:
    """Return the repairs of the directories that have findings."""
    by_directory: dict[Path, list[AuditFinding]] = {each.path: [] for each in directories}
    for finding in findings:
        home = next((p for p in by_directory if Path(finding.path).is_relative_to(p)), None)
        if home is not None:
            by_directory[home].append(finding)
    return [
        DirectoryRepairs(directory, tuple(_steps(by_directory[directory.path])))
        for directory in directories
        if by_directory[directory.path]
    ]


def _steps(findings: list[AuditFinding]) -> Iterator[RepairStep]:
    moved: set[Path] = set()
    # A replica that is copied again needs no other repair.
    copied = {each.replica for each in findings if each.kind.repair is RepairKind.COPY_AGAIN}
    for finding in sorted(findings, key=lambda each: each.kind.repair is not RepairKind.COPY_AGAIN):
        is_covered = finding.kind.repair in _BY_THE_BROKER and finding.replica in copied
        if finding.replica and is_covered:
            yield RepairStep(finding, note="The replica is copied again as a whole, see above.")
            continue
        step = _step(finding)
        yield replace(step, moves=tuple(each for each in step.moves if _is_new(each, moved)))


def _step(finding: AuditFinding) -> RepairStep:
    path, kind = Path(finding.path), finding.kind
    match kind.repair:
        case RepairKind.MAKE_ANEW:
            return RepairStep(
                finding, is_safe=True, note="The broker makes the file again at its start."
            )
        case RepairKind.REBUILD if kind is FindingKind.PRODUCER_SNAPSHOT_FILE:
            note = "The broker passes the file over at its start, and makes it again."
            return RepairStep(finding, is_safe=True, note=note)
        case RepairKind.REBUILD if kind in _IN_CHECKPOINT:
            note = "The broker corrects the checkpoint at its start."
            return RepairStep(finding, is_safe=True, note=note)
        case RepairKind.REBUILD if kind is FindingKind.PRODUCER_SNAPSHOT_ENTRY:
            # Without any snapshot a log of Kafka that was closed in order begins without producers.
            note = "Only if another .snapshot without a finding stays beside it, or for Spindle:"
            return RepairStep(finding, (path,), note=note)
        case RepairKind.REBUILD if kind in _IN_TRANSACTION_INDEX:
            # A broker rebuilds all indexes of a segment that has no offset index. This one goes
            # first: without the other alone, a broker would forget aborted transactions.
            return RepairStep(finding, (path.with_suffix(INDEX_SUFFIX), path), is_safe=True)
        case RepairKind.REBUILD:
            return RepairStep(finding, (path,), is_safe=True)
        case RepairKind.COPY_AGAIN:
            # Without its only replica a partition would begin again, empty.
            note = "Only if another replica of the partition is in sync, and leads:"
            return RepairStep(finding, (Path(finding.replica),), note=note)
        case RepairKind.DROP | RepairKind.CHOOSE:
            return RepairStep(finding, (path,), note="If nothing in it is needed:")
        case _:
            return RepairStep(finding, note=kind.repair.value)


def repair_plan(repairs: Sequence[DirectoryRepairs]) -> list[str]:
    """Return the lines of a shell script, none if there is nothing to repair."""
    lines: list[str] = []
    for each in repairs:
        path = each.directory.path
        lines += ["", _comment(f"{path}: stop {each.owner} first.")]
        for step in each.steps:
            finding = step.finding
            lines.append(_comment(f"{finding.kind.text}: {finding.path}: {finding.evidence}."))
            if step.note and (step.moves or not _needs_moves(step)):
                lines.append(_comment(f"  {step.note}"))
            lines += [_move(p) if step.is_safe else _comment(f"  {_move(p)}") for p in step.moves]
        lines.append(_comment(f"Start {each.owner}, and audit {path} again."))
    return [*_HEAD, *lines] if lines else []


def _needs_moves(step: RepairStep) -> bool:
    """Return whether the note speaks of moves; another finding of the plan may have them."""
    return step.note.endswith(":")


def _comment(text: str) -> str:
    """Return a comment. A name or a file with a line break must not become a command."""
    readable = text.encode("utf-8", "backslashreplace").decode()
    return "\n".join(f"# {line}".rstrip() for line in readable.splitlines())


def _is_new(path: Path, moved: set[Path]) -> bool:
    is_new = path not in moved and not moved.intersection(path.parents)
    moved.add(path)
    return is_new


def _move(path: Path) -> str:
    folder = '"$QUARANTINE"' + shlex.quote(f"/{path.parent}".replace("//", "/"))
    # A second run of the script finds nothing to move.
    name = shlex.quote(str(path))
    # A file that an earlier plan has moved there stays, under another name.
    return (
        f"[ ! -e {name} ] || {{ mkdir -p {folder} && mv --backup=numbered -- {name} {folder}/; }}"
    )
