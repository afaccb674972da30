"""The kinds of damage, and a finding of one kind at one place.

Each kind has a severity, a usual cause and a repair.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final


class Severity(Enum):
    """The severity of a finding.

    ERROR: records are lost, damaged or in danger, or the broker does not start with these files.
        WARNING: a file that the broker can rebuild is wrong, or space is wasted.
    """

    ERROR = "error"
    WARNING = "warning"


class RepairKind(Enum):
    """The kinds of repair; `audit.repairs` turns them into commands."""

    REBUILD = "move the file away while the broker is stopped: it makes the file again at its start"
    REBUILD_BOTH = (
        "move the .index and the .timeindex of the segment away while the broker is stopped: it "
        "makes both again at its start (Apache Kafka makes a time index only with its offset index)"
    )
    MAKE_ANEW = "start the broker again: it makes the file at its start"
    CORRECT = "start the broker again: it corrects the file at its start"
    COPY_AGAIN = (
        "let another replica lead, move this replica's directory away while the broker is stopped, "
        "and start it: it copies the records from the leader; without another replica, the records "
        "around the damage are all that is left"
    )
    COPY_MISSING = (
        "start the broker again, if another replica of the partition leads: it makes the replica "
        "anew and copies the records; if there is no other replica, look for the directory first"
    )
    DROP = "move the directory away once its records are known to be elsewhere"
    CHOOSE = "keep the copy that the metadata names, and move the other one away"
    IDENTITY = (
        "restore the file from a backup, or write it again: version, cluster.id and node.id as in "
        "the other directories of the node, and the directory.id that the metadata has for this "
        "one; leave the rest of the directory as it is"
    )
    RESTART = "start the broker: it reports to the controller where the replica is"
    PASS_OVER = (
        "let consumers pass over the offsets of the batch, or delete the records up to it with "
        "`spindle topic delete-records`"
    )
    MOUNT = "mount the disk, or correct the path, then audit again; do not start the broker before"
    DISK = "look at the disk and at the rights of the files, then audit again"
    LOG_START = (
        "do not start the broker with this file: correct the offset in it, or move the file away; "
        "without it, records that clients have deleted come back where their segment is still there"
    )
    VOTE = (
        "let the other voters elect a leader first, then move the file away while this node is "
        "stopped: without the file the node has forgotten for whom it voted"
    )
    DECIDE = (
        "move none of them away yet: audit all replicas of the partition together with a log "
        "directory that has the metadata log, or compare the records at this offset with "
        "`spindle kafka dump-log`"
    )
    READ_METADATA = (
        "audit with the release that wrote the metadata log, or with --bootstrap-server, which "
        "reads the metadata from the brokers"
    )
    CONNECT = "start the node, or look at the network between it and this machine, then audit again"


_REBUILD, _COPY, _DROP = RepairKind.REBUILD, RepairKind.COPY_AGAIN, RepairKind.DROP
_BOTH, _CORRECT = RepairKind.REBUILD_BOTH, RepairKind.CORRECT
_CHOOSE, _IDENTITY, _DISK = RepairKind.CHOOSE, RepairKind.IDENTITY, RepairKind.DISK
_DAMAGE: Final = "the disk, its controller or a program other than the broker changed bytes"
_LOST_TAIL: Final = "bytes did not reach the disk before power was lost, or the file was cut"
_STALE: Final = "the file was copied from elsewhere, changed by hand, or damaged"


class FindingKind(Enum):
    """(name, severity, usual cause, repair) of each kind of damage."""

    BATCH_CHECKSUM = ("batch-checksum", Severity.ERROR, _DAMAGE, _COPY)
    BATCH_HEADER = ("batch-header", Severity.ERROR, _DAMAGE, _COPY)
    RECORDS = ("records", Severity.ERROR, "a producer wrote records that nobody can read", _COPY)
    BATCH_TOO_LARGE = (
        "batch-too-large",
        Severity.ERROR,
        "a producer wrote a batch that is made to fill the memory of its readers",
        RepairKind.PASS_OVER,
    )
    SEGMENT_TORN = ("segment-torn", Severity.ERROR, _LOST_TAIL, _COPY)
    SEGMENT_ZEROS = ("segment-zeros", Severity.ERROR, _LOST_TAIL, _COPY)
    SEGMENT_NAME = ("segment-name", Severity.ERROR, "the file was renamed or replaced", _COPY)
    SEGMENT_MISSING = ("segment-missing", Severity.ERROR, "a segment's file was removed", _COPY)
    OFFSET_OVERLAP = ("offset-overlap", Severity.ERROR, _DAMAGE, _COPY)
    OFFSET_GAP = (
        "offset-gap",
        Severity.ERROR,
        "a segment or batches were removed from the middle of the log",
        _COPY,
    )
    LOG_SHORT = ("log-short", Severity.ERROR, _LOST_TAIL, _COPY)
    FILE_NAME = ("file-name", Severity.ERROR, "the file was copied or renamed by hand", _DROP)
    EPOCH_ORDER = ("epoch-order", Severity.ERROR, _DAMAGE, _COPY)
    EPOCH_MISMATCH = ("epoch-mismatch", Severity.ERROR, _STALE, _COPY)
    EPOCH_FILE = ("epoch-file", Severity.ERROR, _STALE, _COPY)
    EPOCH_BEYOND_END = ("epoch-beyond-end", Severity.WARNING, _STALE, _CORRECT)
    OFFSET_INDEX_MISSING = (
        "offset-index-missing",
        Severity.WARNING,
        "the file was removed",
        RepairKind.MAKE_ANEW,
    )
    OFFSET_INDEX_SIZE = ("offset-index-size", Severity.WARNING, _LOST_TAIL, _REBUILD)
    OFFSET_INDEX_ORDER = ("offset-index-order", Severity.WARNING, _DAMAGE, _REBUILD)
    OFFSET_INDEX_ENTRY = ("offset-index-entry", Severity.WARNING, _STALE, _REBUILD)
    OFFSET_INDEX_SHORT = ("offset-index-short", Severity.WARNING, _LOST_TAIL, _REBUILD)
    TIME_INDEX_MISSING = (
        "time-index-missing",
        Severity.WARNING,
        "the file was removed",
        _BOTH,
    )
    TIME_INDEX_SIZE = ("time-index-size", Severity.WARNING, _LOST_TAIL, _BOTH)
    TIME_INDEX_ORDER = ("time-index-order", Severity.WARNING, _DAMAGE, _BOTH)
    TIME_INDEX_ENTRY = ("time-index-entry", Severity.WARNING, _STALE, _BOTH)
    TIME_INDEX_SHORT = ("time-index-short", Severity.WARNING, _LOST_TAIL, _BOTH)
    TRANSACTION_INDEX_FILE = ("transaction-index-file", Severity.ERROR, _DAMAGE, _REBUILD)
    TRANSACTION_INDEX_ENTRY = ("transaction-index-entry", Severity.ERROR, _STALE, _REBUILD)
    PRODUCER_SNAPSHOT_FILE = ("producer-snapshot-file", Severity.WARNING, _DAMAGE, _REBUILD)
    PRODUCER_SNAPSHOT_ENTRY = ("producer-snapshot-entry", Severity.ERROR, _STALE, _REBUILD)
    QUORUM_STATE = ("quorum-state", Severity.ERROR, _STALE, RepairKind.VOTE)
    METADATA_SNAPSHOT = ("metadata-snapshot", Severity.ERROR, _DAMAGE, _COPY)
    METADATA_NOT_READ = (
        "metadata-not-read",
        Severity.WARNING,
        "another release wrote the metadata log, or it is damaged",
        RepairKind.READ_METADATA,
    )
    PARTITION_METADATA = ("partition-metadata", Severity.ERROR, _STALE, _COPY)
    META_PROPERTIES = ("meta-properties", Severity.ERROR, _STALE, _IDENTITY)
    DIRECTORY_IDENTITY = (
        "directory-identity",
        Severity.ERROR,
        "a directory is a copy of another one, or belongs to another node or cluster",
        _IDENTITY,
    )
    CHECKPOINT_FILE = ("checkpoint-file", Severity.ERROR, _DAMAGE, _REBUILD)
    CHECKPOINT_BEYOND_END = ("checkpoint-beyond-end", Severity.WARNING, _STALE, _CORRECT)
    CHECKPOINT_ENTRY = ("checkpoint-entry", Severity.WARNING, _STALE, _CORRECT)
    LOG_START = ("log-start", Severity.ERROR, _STALE, RepairKind.LOG_START)
    REPLICA_MISSING = (
        "replica-missing",
        Severity.ERROR,
        "the replica's directory was removed or renamed",
        RepairKind.COPY_MISSING,
    )
    REPLICA_DUPLICATE = (
        "replica-duplicate",
        Severity.ERROR,
        "a replica was copied by hand, or a disk came back after its replicas were created again",
        _CHOOSE,
    )
    REPLICA_STRAY = (
        "replica-stray",
        Severity.WARNING,
        "the partition was moved or deleted while the broker or the disk was away",
        _DROP,
    )
    REPLICA_DIFFERS = (
        "replica-differs",
        Severity.ERROR,
        "bytes changed before their checksum was made, or files were restored from a backup",
        _COPY,
    )
    REPLICA_UNDECIDED = (
        "replica-undecided",
        Severity.ERROR,
        "bytes changed before their checksum was made, or files were restored from a backup",
        RepairKind.DECIDE,
    )
    REPLICA_UNCOMPARED = (
        "replica-not-compared",
        Severity.WARNING,
        "the checkpoints of high watermarks were lost or damaged",
        RepairKind.DECIDE,
    )
    REPLICA_ORPHANED = (
        "replica-orphaned",
        Severity.WARNING,
        "the partition was moved or deleted while the broker or the disk was away",
        _DROP,
    )
    TOPIC_ID_STALE = (
        "topic-id-stale",
        Severity.WARNING,
        "the topic was deleted and created again while the broker or the disk was away",
        _DROP,
    )
    DIRECTORY_ASSIGNMENT = (
        "directory-assignment",
        Severity.WARNING,
        "a move was cut short, or the replica was moved by hand",
        RepairKind.RESTART,
    )
    FUTURE_ORPHANED = (
        "future-orphaned",
        Severity.WARNING,
        "a move between directories lost the replica that it copied from",
        _CHOOSE,
    )
    DIRECTORY_NAME = (
        "directory-name",
        Severity.ERROR,
        "something other than a broker put a directory there; a broker does not start with it",
        _DROP,
    )
    REPLICA_SIZE = (
        "replica-size",
        Severity.ERROR,
        "something other than the broker cut a file of the log while the broker runs",
        _COPY,
    )
    DIRECTORY_EMPTY = (
        "directory-empty",
        Severity.ERROR,
        "the disk is not mounted, or the path is wrong",
        RepairKind.MOUNT,
    )
    DIRECTORY_OFFLINE = (
        "directory-offline",
        Severity.ERROR,
        "the disk refused to read or write, or is not mounted",
        _DISK,
    )
    BROKER_SILENT = (
        "broker-silent",
        Severity.ERROR,
        "the node is down or hangs, or the network is cut",
        RepairKind.CONNECT,
    )
    PARTITION_OFFLINE = (
        "partition-offline",
        Severity.ERROR,
        "the brokers or disks of its replicas in sync are down",
        RepairKind.CONNECT,
    )
    UNREADABLE = ("unreadable", Severity.ERROR, "the disk or the rights refuse to read", _DISK)

    def __init__(self, text: str, severity: Severity, cause: str, repair: RepairKind) -> None:
        self.text = text
        self.severity = severity
        self.cause = cause
        self.repair = repair


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One case of damage.

    Attributes:
        path: the file or directory.
        evidence: the damage with its numbers, as part of a sentence.
        position: the byte in the file, None if the whole file is meant.
        offset: the offset in the log, None if there is none.
        replica: the directory of the replica, empty if there is none.
        remedy: the repair of this place; empty for the repair of the kind.
    """

    kind: FindingKind
    path: str
    evidence: str
    position: int | None = None
    offset: int | None = None
    replica: str = ""
    remedy: str = ""

    @property
    def repair(self) -> str:
        """How to repair it, as a part of a sentence."""
        return self.remedy or self.kind.repair.value

    @property
    def sentence(self) -> str:
        """The finding as one sentence: place, evidence, usual cause, repair."""
        place = self.path
        if self.position is not None:
            place += f" at byte {self.position}"
        if self.offset is not None:
            place += f" (offset {self.offset})"
        return (
            f"{place}: {self.evidence}; the usual cause: {self.kind.cause}; to repair it, "
            f"{self.repair}."
        )

    def document(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return {
            "kind": self.kind.text,
            "severity": self.kind.severity.value,
            "path": self.path,
            "position": self.position,
            "offset": self.offset,
            "replica": self.replica or None,
            "evidence": self.evidence,
            "cause": self.kind.cause,
            "repair": self.repair,
        }


_UNREAD: Final = (FindingKind.UNREADABLE, FindingKind.DIRECTORY_EMPTY)


def is_unread(findings: Iterable[AuditFinding]) -> bool:
    """Return whether a read failed, so that the next audit must try again."""
    return any(finding.kind in _UNREAD for finding in findings)


MAX_OF_A_KIND: Final = 100
"""Maximum number of listed findings of one kind in one file; further ones are only counted."""


@dataclass(slots=True)
class Collector:
    """Gathers the findings of one replica or log directory.

    Attributes:
        replica: the directory that the findings are about, as a path; empty for none.
    """

    replica: str = ""
    found: list[AuditFinding] = field(default_factory=list)
    left_out: Counter[FindingKind] = field(default_factory=Counter)
    _counts: Counter[tuple[FindingKind, str]] = field(default_factory=Counter)

    def add(
        self,
        kind: FindingKind,
        path: object,
        evidence: str,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Add a finding; beyond the limit of its kind in a file, only count it."""
        self._counts[kind, str(path)] += 1
        if self._counts[kind, str(path)] > MAX_OF_A_KIND:
            self.left_out[kind] += 1
            return
        self.found.append(AuditFinding(kind, str(path), evidence, position, offset, self.replica))

    def add_unreadable(self, path: object, error: OSError) -> None:
        """Add a finding about a file or directory that the disk or a limit refuses to read."""
        reason = error.strerror or str(error)
        self.add(FindingKind.UNREADABLE, path, f"it cannot be read: {reason}")

    def take(self, found: Iterable[AuditFinding], left_out: Mapping[FindingKind, int]) -> None:
        """Add the findings of another collector about a part of the replica."""
        for finding in found:
            self.add(
                finding.kind,
                finding.path,
                finding.evidence,
                position=finding.position,
                offset=finding.offset,
            )
        self.left_out.update(left_out)
