"""Repairs: turn findings into moves of files, and these into a script. This module runs none of
them.

Files and directories are never deleted, but moved to a folder outside of the log directories, so
that every step can be undone. Commands that need a decision are comments of the script.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spindle.audit.findings import AuditFinding, FindingKind, RepairKind
from spindle.audit.log_directory import ListedLogDirectory
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ClosingState
from spindle.audit.report import AuditReport, rebuild_command, rebuild_remedy
from spindle.common.text import count_noun
from spindle.log.formats.checkpoints import LOG_STARTS, RECOVERY_POINTS
from spindle.log.formats.names import INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX

_HEAD: Final = (
    "# Repairs of log directories. Read each comment before you run the command below it.",
    "set -eu",
    ': "${QUARANTINE:?set it to a folder outside of all log directories; nothing is deleted}"',
)
_BY_THE_BROKER: Final = (
    RepairKind.REBUILD,
    RepairKind.REBUILD_BOTH,
    RepairKind.MAKE_ANEW,
    RepairKind.CORRECT,
)
_IN_TRANSACTION_INDEX: Final = (
    FindingKind.TRANSACTION_INDEX_FILE,
    FindingKind.TRANSACTION_INDEX_ENTRY,
)
_COPIED_AGAIN: Final = "The replica is to be copied again as a whole, see its other finding."
_ONLY_A_FOLLOWER: Final = "Only if another replica of the partition is in sync, and leads:"
_CORRECTED: Final = "The broker corrects the file at its start."


@dataclass(frozen=True, slots=True)
class RepairStep:
    """The repair of one finding.

    Attributes:
        moves: files or directories to move to the quarantine, in this order.
        is_safe: the moves and the next start of the broker repair it, and lose nothing.
        note: a sentence for the operator; empty if the moves suffice.
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
        """The broker of the directory, as text."""
        properties = self.directory.properties
        node = None if properties is None else properties.node_id
        return "the broker" if node is None else f"the broker of node {node}"


def repairs_of(report: AuditReport) -> list[DirectoryRepairs]:
    """Return the repairs of the directories that have findings."""
    by_directory: dict[Path, list[AuditFinding]] = {
        directory.path: [] for directory in report.directories
    }
    for finding in report.findings:
        home = next((p for p in by_directory if Path(finding.path).is_relative_to(p)), None)
        if home is not None:
            by_directory[home].append(finding)
    return [
        DirectoryRepairs(
            directory, tuple(_Repairs(report, directory, by_directory[directory.path]).steps())
        )
        for directory in report.directories
        if by_directory[directory.path]
    ]


class _Repairs:
    """The repairs of a log directory, and the effect of the next start.

    A start after an unclean shutdown reads each log from its recovery point, and truncates each
    segment at its first damaged batch. Later segments stay, also after a gap, about which a
    follower asks its leader; only the metadata log ends at its first gap. So a repair that makes a
    start read more is safe only without damage.
    """

    def __init__(
        self, report: AuditReport, directory: ListedLogDirectory, findings: list[AuditFinding]
    ) -> None:
        self._report = report
        self._findings = findings
        self._is_closed = directory.state is ClosingState.CLOSED
        self._replicas = [
            replica for replica in report.replicas if replica.place.path.parent == directory.path
        ]
        self._copied = {f.replica for f in findings if f.kind.repair is RepairKind.COPY_AGAIN}
        self._unread = {f.replica for f in findings if f.kind is FindingKind.UNREADABLE}
        self._wrong_snapshots = {
            Path(f.path)
            for f in findings
            if f.kind in (FindingKind.PRODUCER_SNAPSHOT_FILE, FindingKind.PRODUCER_SNAPSHOT_ENTRY)
        }

    def steps(self) -> Iterator[RepairStep]:
        """Yield the repair of each finding."""
        moved: set[Path] = set()
        # A replica that is copied again needs no other repair.
        for finding in sorted(
            self._findings, key=lambda each: each.kind.repair is not RepairKind.COPY_AGAIN
        ):
            step = self._step(finding)
            yield replace(step, moves=tuple(move for move in step.moves if _is_new(move, moved)))

    def _step(self, finding: AuditFinding) -> RepairStep:
        path, repair = Path(finding.path), finding.kind.repair
        if self._is_copied_again(finding):
            return RepairStep(finding, note=_COPIED_AGAIN)
        match repair:
            case RepairKind.MAKE_ANEW:
                note = "The broker makes the file again at its start."
                return RepairStep(finding, is_safe=self._is_read(finding), note=note)
            case RepairKind.CORRECT:
                return self._corrected(finding)
            case RepairKind.REBUILD if finding.kind is FindingKind.CHECKPOINT_FILE:
                return self._without_checkpoint(finding)
            case RepairKind.REBUILD if path in self._wrong_snapshots:
                return self._without_snapshot(finding)
            case RepairKind.REBUILD if finding.kind in _IN_TRANSACTION_INDEX:
                # A broker rebuilds all indexes of a segment that has no offset index. Move the
                # offset index first: if only the other index were missing, a broker would lose
                # aborted transactions.
                moves = (path.with_suffix(INDEX_SUFFIX), path)
                return RepairStep(finding, moves, self._is_read(finding))
            case RepairKind.REBUILD_BOTH:
                # A broker of Apache Kafka begins an empty time index beside a whole offset index.
                moves = (path.with_suffix(INDEX_SUFFIX), path)
                return RepairStep(finding, moves, self._is_read(finding))
            case RepairKind.REBUILD:
                return RepairStep(finding, (path,), self._is_read(finding))
            case RepairKind.COPY_AGAIN:
                return RepairStep(finding, (Path(finding.replica),), note=self._copy_note(finding))
            case RepairKind.DROP | RepairKind.CHOOSE:
                return RepairStep(finding, (path,), note="If nothing in it is needed:")
            case _:
                return RepairStep(finding, note=repair.value)

    def _is_copied_again(self, finding: AuditFinding) -> bool:
        """Return whether a start that rebuilds the indexes would truncate the replica at damage."""
        is_by_broker = finding.kind.repair in _BY_THE_BROKER
        return is_by_broker and bool(finding.replica) and finding.replica in self._copied

    def _is_read(self, finding: AuditFinding) -> bool:
        """Return whether the whole replica could be read, as a start that rebuilds indexes does."""
        return finding.replica not in self._unread

    def _recovers_whole(self) -> bool:
        """Return whether a start that reads all logs of the directory completely truncates none."""
        ends_early = any(
            replica.has_gaps and replica.place.is_metadata_log for replica in self._replicas
        )
        return not ends_early and not self._copied and not self._unread

    def _starts_whole(self) -> bool:
        """Return whether the next start truncates no log: none is read after a clean shutdown."""
        return self._is_closed or self._recovers_whole()

    def _corrected(self, finding: AuditFinding) -> RepairStep:
        if self._starts_whole():
            return RepairStep(finding, is_safe=True, note=_CORRECTED)
        note = (
            "The next start reads the logs from there, and cuts each segment at its first damaged "
            "batch."
        )
        return RepairStep(finding, note=note)

    def _without_checkpoint(self, finding: AuditFinding) -> RepairStep:
        """Return the repair of an unreadable checkpoint: the next start works without it."""
        path = Path(finding.path)
        match path.name:
            case name if name == RECOVERY_POINTS:
                is_safe = self._recovers_whole()
                note = (
                    "Without it, the next start reads all logs from their start, and cuts each "
                    "segment at its first damaged batch. Once that is repaired, or restore the "
                    "file from a backup:"
                )
            case name if name == LOG_STARTS:
                is_safe = self._starts_whole() and all(map(_begins_at_its_epochs, self._replicas))
                note = (
                    "Without it, records that clients have deleted come back where their segment "
                    "is still there:"
                )
            case _:
                is_safe = self._starts_whole()
                note = (
                    "Without it the broker starts, and cuts each segment behind the recovery "
                    "points at its first damaged batch. Once that is repaired:"
                )
        return RepairStep(finding, (path,), is_safe, "" if is_safe else note)

    def _without_snapshot(self, finding: AuditFinding) -> RepairStep:
        """Return the repair of a producer snapshot.

        A broker skips an unreadable snapshot, but would use the producers of one with wrong
        entries. Without any snapshot, a cleanly closed log of Apache Kafka starts without
        producers, and producers whose records were deleted are only in snapshots.
        """
        path = Path(finding.path)
        if finding.kind is FindingKind.PRODUCER_SNAPSHOT_FILE:
            note = "The broker passes the file over at its start, and makes it again."
            return RepairStep(finding, is_safe=True, note=note)
        others = {*path.parent.glob(f"*{PRODUCER_SNAPSHOT_SUFFIX}")} - self._wrong_snapshots
        if others:
            return RepairStep(finding, (path,), self._is_read(finding))
        note = (
            "Only for Spindle: a broker of Apache Kafka forgets all producers without a snapshot:"
        )
        return RepairStep(finding, (path,), note=note)

    def _copy_note(self, finding: AuditFinding) -> str:
        """Return the condition for moving a replica away: a partition must keep another replica."""
        placement = self._report.placement
        replica = next((r for r in self._replicas if str(r.place.path) == finding.replica), None)
        if replica is not None and rebuild_remedy(replica, placement):
            command = rebuild_command(replica.place)
            return (
                f"While its broker runs, if another replica leads: {command}. With the broker "
                "stopped, only if another replica of the partition is in sync, and leads:"
            )
        if placement is None or replica is None:
            return _ONLY_A_FOLLOWER
        place = replica.place
        if place.is_metadata_log:
            if list(placement.voters) == [place.node_id]:
                return (
                    "It is the only voter: without it, all metadata of the cluster is lost. Never:"
                )
            return "Only if another voter leads, and has all records of this one:"
        partition = (
            None
            if replica.topic_id is None
            else placement.partition(replica.topic_id, place.partition.partition)
        )
        if partition is None or len(partition.replicas) > 1:
            return _ONLY_A_FOLLOWER
        return (
            "It is the only replica of the partition: without it, the partition begins again, "
            "empty. Only if its records are not needed:"
        )


def _begins_at_its_epochs(replica: AuditedReplica) -> bool:
    """Return whether a log start offset above the first batch is excluded.

    The epochs are truncated at the log start when it rises.
    """
    first = replica.first_epoch_offset
    return not replica.batch_count or (first is not None and first <= replica.start_offset)


def repair_plan(repairs: Sequence[DirectoryRepairs]) -> list[str]:
    """Return the lines of a shell script, none if there is nothing to repair."""
    lines: list[str] = []
    for repair in repairs:
        path = repair.directory.path
        lines += ["", _comment(f"{path}: stop {repair.owner} first.")]
        shown = Counter((step.finding.kind, step.finding.path) for step in repair.steps)
        for step in repair.steps:
            finding = step.finding
            more = shown.pop((finding.kind, finding.path), 0) - 1
            if more >= 0:
                lines.append(_comment(f"{finding.kind.text}: {finding.path}: {finding.evidence}."))
            if more > 0:
                lines.append(
                    _comment(f"  The same in {count_noun(more, 'more place')} of the file.")
                )
            if more < 0 and not step.moves:
                continue
            if step.note and (step.moves or not _needs_moves(step)):
                lines.append(_comment(f"  {step.note}"))
            lines += [_move(p) if step.is_safe else _comment(f"  {_move(p)}") for p in step.moves]
        lines.append(_comment(f"Start {repair.owner}, and audit {path} again."))
    return [*_HEAD, *lines] if lines else []


def _needs_moves(step: RepairStep) -> bool:
    """Return whether the note refers to moves, which another finding of the plan may have."""
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
