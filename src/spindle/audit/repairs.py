"""A plan of repairs: findings to commands for a shell. Nothing here runs them.

A file or directory is never deleted, but moved to a folder outside of the log directories, so that
every step can be undone. Commands that need a decision stand in the plan as comments.
"""

import shlex
from collections.abc import Iterable, Sequence
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
_IS_MISSING: Final = (FindingKind.OFFSET_INDEX_MISSING, FindingKind.TIME_INDEX_MISSING)


def repair_plan(
    directories: Sequence[ListedLogDirectory], findings: Iterable[AuditFinding]
) -> list[str]:
    """Return the lines of a shell script, none if there is nothing to repair."""
    by_directory: dict[Path, list[AuditFinding]] = {each.path: [] for each in directories}
    for finding in findings:
        home = next((p for p in by_directory if Path(finding.path).is_relative_to(p)), None)
        if home is not None:
            by_directory[home].append(finding)
    lines: list[str] = []
    for directory in directories:
        found = by_directory[directory.path]
        if found:
            lines += ["", *_of_directory(directory, found)]
    return [*_HEAD, *lines] if lines else []


def _of_directory(directory: ListedLogDirectory, findings: list[AuditFinding]) -> list[str]:
    node = None if directory.properties is None else directory.properties.node_id
    owner = "the broker" if node is None else f"the broker of node {node}"
    lines = [_comment(f"{directory.path}: stop {owner} first.")]
    moved: set[Path] = set()
    # A replica that is copied again needs no other repair.
    copied = {each.replica for each in findings if each.kind.repair is RepairKind.COPY_AGAIN}
    for finding in sorted(findings, key=lambda each: each.kind.repair is not RepairKind.COPY_AGAIN):
        is_covered = finding.kind.repair is RepairKind.REBUILD and finding.replica in copied
        lines.append(_comment(f"{finding.kind.text}: {finding.path}: {finding.evidence}."))
        if finding.replica and is_covered:
            lines.append("#   The replica is copied again as a whole, see above.")
            continue
        lines += _steps(finding, moved)
    return [*lines, _comment(f"Start {owner}, and audit {directory.path} again.")]


def _steps(finding: AuditFinding, moved: set[Path]) -> list[str]:
    path = Path(finding.path)
    match finding.kind.repair:
        case RepairKind.REBUILD if finding.kind in _IS_MISSING:
            return ["#   The broker makes the file again at its start."]
        case RepairKind.REBUILD if finding.kind is FindingKind.PRODUCER_SNAPSHOT_FILE:
            return ["#   The broker passes the file over at its start, and makes it again."]
        case RepairKind.REBUILD if finding.kind is FindingKind.PRODUCER_SNAPSHOT_ENTRY:
            # Without any snapshot a log of Kafka that was closed in order begins without producers.
            return [
                "#   Only if another .snapshot without a finding stays beside it, or for Spindle:",
                _comment(f"  {_move(path)}"),
            ]
        case RepairKind.REBUILD:
            paths = [path]
            if finding.kind in _IN_TRANSACTION_INDEX:
                # A broker rebuilds all indexes of a segment that has no offset index.
                paths.append(path.with_suffix(INDEX_SUFFIX))
            if finding.kind is FindingKind.CHECKPOINT_BEYOND_END:
                return ["#   The broker corrects the checkpoint at its start."]
            return [_move(each) for each in paths if _is_new(each, moved)]
        case RepairKind.COPY_AGAIN:
            replica = Path(finding.replica)
            if not _is_new(replica, moved):
                return []
            # Without its only replica a partition would begin again, empty.
            return [
                "#   Only if another replica of the partition is in sync, and leads:",
                _comment(f"  {_move(replica)}"),
            ]
        case RepairKind.DROP | RepairKind.CHOOSE:
            return [_comment(f"  If nothing in it is needed: {_move(path)}")]
        case _:
            return [f"#   {finding.kind.repair.value}"]


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
