"""Audit of one replica: its directory is read once, twice if its broker runs and damage shows.

A running broker appends, rolls, merges, truncates, renames and deletes meanwhile. Each of these can
cause a false finding in one pass, but not the same one in two. So a finding in a directory in use
counts only if a second pass, a moment later, has it again.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from spindle.audit.checkpoint_checks import LogRange, check_checkpoints
from spindle.audit.digests import DigestBuilder, LogDigest
from spindle.audit.epoch_checks import check_epochs
from spindle.audit.file_limits import refuse_odd_files
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.index_files import check_index_tails
from spindle.audit.merge import JoinedBatches
from spindle.audit.producer_checks import ProducerChecks, ProducerSnapshot
from spindle.audit.replica_place import ClosingState, ReplicaPlace, state_of
from spindle.audit.segment_audit import SegmentAudit
from spindle.audit.segment_part import SegmentPart
from spindle.audit.transaction_checks import TransactionChecks
from spindle.columnar.directory_files import FILE_SYSTEM
from spindle.columnar.segment_files import SegmentFile, list_segments
from spindle.common.errors import CorruptLog
from spindle.common.uuids import Uuid
from spindle.log.formats.checkpoints import CLEANER_OFFSETS, read_offset_checkpoint
from spindle.log.formats.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_offset_name,
)
from spindle.log.formats.partition_metadata import read_partition_metadata
from spindle.log.formats.producer_snapshot import read_producer_snapshot

_NAME_DIGITS: Final = 20
_LAST_OFFSET: Final = 2**63 - 1
COMPACTED_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True, slots=True)
class AuditedReplica:
    """The result of the audit of a replica.

    Attributes:
        topic_id: None if the directory does not name it.
        start_offset, end_offset: of the batches that were read.
        latest_epoch: the newest leader epoch of a batch, -1 if there is none.
        size_bytes, batch_count: of the batches that were read.
        digest: of the batches; None if the log changed in a way that leaves gaps in it.
        is_compacted: the log shows signs of compaction.
        left_out: findings beyond those that are listed.
        epochs: (leader epoch, first offset, last offset) of the last runs of batches with one.
        has_gaps: offsets are missing between batches, whatever the reason.
        first_epoch_offset: where `leader-epoch-checkpoint` begins, None without entries.
    """

    place: ReplicaPlace
    topic_id: Uuid | None
    start_offset: int
    end_offset: int
    latest_epoch: int
    size_bytes: int
    batch_count: int
    findings: tuple[AuditFinding, ...]
    digest: LogDigest | None = None
    is_compacted: bool = False
    left_out: int = 0
    epochs: tuple[tuple[int, int, int], ...] = ()
    has_gaps: bool = False
    first_epoch_offset: int | None = None


def audit_replica(
    place: ReplicaPlace,
    *,
    pause: Callable[[], None],
    on_bytes: Callable[[int], None] = lambda size_bytes: None,
    throttle: Callable[[int], None] = lambda size_bytes: None,
) -> AuditedReplica | None:
    """Audit one replica; None if its directory is gone, because it was moved or deleted.

    Args:
        pause: waits before the second pass.
        on_bytes: called with the bytes of batches as they are read in the first pass.
        throttle: called with them in both passes; it may wait.
    """

    def count(size_bytes: int) -> None:
        on_bytes(size_bytes)
        throttle(size_bytes)

    try:
        replica = _one_pass(place, count)
        if replica.findings and _has_started(place):
            # A broker has started since the listing, and may be writing files that look unfinished.
            place = replace(place, state=ClosingState.IN_USE)
            replica = replace(replica, place=place)
        if not needs_second_pass(replica):
            return replica
        pause()
        again = _one_pass(place, throttle)
    except FileNotFoundError:
        return None
    except OSError as error:
        return unreadable_replica(place, error)
    return confirmed_replica(replica, again)


def _has_started(place: ReplicaPlace) -> bool:
    """Return whether a broker has begun to use a directory since it was listed."""
    if place.state is ClosingState.IN_USE:
        return False
    return state_of(place.path.parent) is not place.state


def _one_pass(place: ReplicaPlace, on_bytes: Callable[[int], None]) -> AuditedReplica:
    opened = ReplicaPass(place)
    return opened.join(task.run(on_bytes) for task in opened.tasks)


def needs_second_pass(found: AuditedReplica) -> bool:
    """Return whether a running broker may explain the findings."""
    return found.place.state is ClosingState.IN_USE and bool(found.findings)


def confirmed_replica(found: AuditedReplica, again: AuditedReplica) -> AuditedReplica:
    """Return the result of a second pass with the findings that the first one had, too."""
    before = {_place_of(finding) for finding in found.findings}
    kept = tuple(finding for finding in again.findings if _place_of(finding) in before)
    return replace(again, findings=kept)


def unreadable_replica(place: ReplicaPlace, error: OSError) -> AuditedReplica:
    """Return the result for a replica that could not be read."""
    findings = Collector(str(place.path))
    findings.add_unreadable(error.filename or place.path, error)
    return AuditedReplica(place, None, 0, 0, -1, 0, 0, tuple(findings.found))


def _place_of(finding: AuditFinding) -> tuple[FindingKind, str, int | None, int | None]:
    return finding.kind, finding.path, finding.position, finding.offset


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment of a replica as a task for any process that can read the file.

    Attributes:
        snapshot_offsets: of all producer snapshots of the replica, ascending.
        is_finished: the segment was rolled or closed cleanly.
    """

    place: ReplicaPlace
    segment: SegmentFile
    snapshot_offsets: tuple[int, ...]
    is_finished: bool

    def run(self, on_bytes: Callable[[int], None]) -> SegmentPart:
        """Read the segment; read errors become findings."""
        audit = SegmentAudit(
            self.place.path,
            self.segment,
            self.snapshot_offsets,
            checks_records=self.place.checks_records,
            on_bytes=on_bytes,
        )
        return audit.run(is_finished=self.is_finished)


class ReplicaPass:
    """One pass over a replica's directory: its small files, and the tasks of its segments.

    Raises:
        FileNotFoundError: the directory is gone.
        OSError: it cannot be listed, or has files that no broker writes.
    """

    def __init__(self, place: ReplicaPlace) -> None:
        self.place = place
        self.findings = Collector(str(place.path))
        self.has_changed = False
        self._names = os.listdir(place.path)
        refuse_odd_files(place.path)
        self._found_topic_id = self._topic_id()
        self._producer_snapshots = self._snapshots(self._names)
        self._segments = list_segments(place.path)
        offsets = tuple(snapshot.offset for snapshot in self._producer_snapshots)
        is_closed = place.state is ClosingState.CLOSED
        self.tasks = [
            SegmentTask(place, segment, offsets, is_closed or segment != self._segments[-1])
            for segment in self._segments
        ]

    def join(self, parts: Iterable[SegmentPart]) -> AuditedReplica:
        """Return the result.

        Args:
            parts: those of `tasks`, in their order.

        Raises:
            FileNotFoundError: the directory is gone.
        """
        place, names, segments = self.place, self._names, self._segments
        producers = ProducerChecks(self.findings, self._producer_snapshots)
        transactions = TransactionChecks(self.findings)
        batches = JoinedBatches(self.findings)
        digest = DigestBuilder()
        size_bytes, batch_count, tails = 0, 0, []
        for part in parts:
            self.findings.take(part.findings, part.left_out)
            self.has_changed = self.has_changed or part.is_gone
            batches.take(part.path, part.base_offset, part.batches)
            producers.take(part.producers)
            transactions.take(part.transactions)
            digest.take(part.digest)
            tails += [] if part.index_tail is None else [part.index_tail]
            size_bytes += part.size_bytes
            batch_count += part.batch_count
        if not place.path.is_dir():
            raise FileNotFoundError(str(place.path))
        check_index_tails(self.findings, tails)
        self._check_names(names, segments)
        first_base = segments[0].base_offset if segments else 0
        start = first_base if batches.first_offset is None else batches.first_offset
        end = max(batches.next_offset or 0, segments[-1].base_offset if segments else 0)
        log_start = max(first_base, place.checkpointed.log_start or 0)
        is_compacted = self._is_compacted(batches)
        first_epoch_offset = self._check_epochs(batches, log_start, end)
        self._check_start(first_base, first_epoch_offset)
        has_lost = not is_compacted and self._check_gaps(batches, log_start)
        # Lost or compacted batches explain what would otherwise be a contradiction.
        has_removed = is_compacted or has_lost or self.has_changed
        producers.finish(
            end,
            is_compacted=has_removed,
            may_be_short=place.state is ClosingState.KILLED or self.has_changed,
        )
        transactions.finish(is_compacted=has_removed)
        if not self.has_changed:
            gaps = tuple(gap.first_missing for gap in batches.gaps)
            log = LogRange(first_base, end, first_epoch_offset, gaps)
            check_checkpoints(self.findings, place, log)
        if place.is_metadata_log:
            self._check_metadata_log(batches)
        return AuditedReplica(
            place,
            self._found_topic_id,
            start,
            end,
            batches.epoch_runs[-1].epoch if batches.epoch_runs else -1,
            size_bytes,
            batch_count,
            tuple(self.findings.found),
            None if self.has_changed else digest.digest(),
            is_compacted,
            self.findings.left_out.total(),
            batches.last_epochs(),
            bool(batches.gaps),
            first_epoch_offset,
        )

    def _check_metadata_log(self, batches: JoinedBatches) -> None:
        from spindle.audit.metadata_log_checks import check_metadata_snapshots, check_quorum_state

        check_quorum_state(self.findings, self.place.path, batches.epoch_runs)
        check_metadata_snapshots(self.findings, self.place.path, self._names)

    def _topic_id(self) -> Uuid | None:
        path, kind = self.place.path, FindingKind.PARTITION_METADATA
        file = path / PARTITION_METADATA
        try:
            topic_id = read_partition_metadata(FILE_SYSTEM, str(path))
        except CorruptLog as error:
            self.findings.add(kind, file, f"the topic id cannot be read: {error.finding}")
            return None
        except OSError as error:
            self.findings.add_unreadable(file, error)
            return None
        if topic_id is None:
            evidence = (
                "there is no topic id: the broker hosts the log only if the metadata records the "
                "replica in this directory"
            )
            self.findings.add(kind, file, evidence)
        return topic_id

    def _snapshots(self, names: Iterable[str]) -> list[ProducerSnapshot]:
        snapshots = []
        for name in names:
            offset = parse_offset_name(name, PRODUCER_SNAPSHOT_SUFFIX)
            if offset is None:
                continue
            path = self.place.path / name
            try:
                entries = read_producer_snapshot(FILE_SYSTEM, str(path))
            except FileNotFoundError:
                continue
            except CorruptLog as error:
                kind = FindingKind.PRODUCER_SNAPSHOT_FILE
                self.findings.add(kind, path, error.finding, position=error.position)
                continue
            except OSError as error:
                self.findings.add_unreadable(path, error)
                continue
            snapshots.append(ProducerSnapshot(offset, path, tuple(entries)))
        return sorted(snapshots, key=lambda snapshot: snapshot.offset)

    def _check_names(self, names: Iterable[str], segments: list[SegmentFile]) -> None:
        bases = {segment.base_offset for segment in segments}
        orphans: dict[int, list[str]] = {}
        for name in sorted(names):
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                base = parse_offset_name(name, suffix)
                if base is None:
                    if name.endswith(suffix):
                        self._add_name(name)
                elif len(name) != _NAME_DIGITS + len(suffix) or base > _LAST_OFFSET:
                    self._add_name(name)
                elif base not in bases and suffix != LOG_SUFFIX:
                    orphans.setdefault(base, []).append(name)
        for orphan in orphans.values():
            self.findings.add(
                FindingKind.SEGMENT_MISSING,
                self.place.path / orphan[0],
                f"there is an index, but no segment {orphan[0].partition('.')[0]}{LOG_SUFFIX}",
            )
        if not segments and self.place.state is ClosingState.CLOSED:
            self.findings.add(
                FindingKind.SEGMENT_MISSING, self.place.path, "the log has no segment at all"
            )

    def _add_name(self, name: str) -> None:
        self.findings.add(
            FindingKind.FILE_NAME,
            self.place.path / name,
            f"a name of a segment's file is an offset with {_NAME_DIGITS} digits",
        )

    def _is_compacted(self, batches: JoinedBatches) -> bool:
        """Return whether compaction may have removed batches.

        A topic whose policy is `delete` now may have been compacted before; then a clean offset or
        a rewritten batch shows it. Missing offsets alone show nothing.
        """
        place = self.place
        return (
            place.is_compacted is True
            or batches.is_rewritten
            or not place.checkpointed.has_cleaner_file
            or self._has_clean_offset()
            or place.partition.topic in COMPACTED_TOPICS
        )

    def _has_clean_offset(self) -> bool:
        """Return whether a compaction pass has ended, including after the listing."""
        place = self.place
        if place.checkpointed.cleaner is not None or place.state is not ClosingState.IN_USE:
            return place.checkpointed.cleaner is not None
        try:
            path = place.path.parent / CLEANER_OFFSETS
            return place.partition in read_offset_checkpoint(FILE_SYSTEM, str(path))
        except (CorruptLog, OSError):
            return True  # a pass may have ended; the file does not rule it out

    def _check_epochs(self, batches: JoinedBatches, log_start: int, end: int) -> int | None:
        """Compare the epochs with the batches; return where they begin, None if not known."""
        path = self.place.path / LEADER_EPOCH_CHECKPOINT
        content: bytes | None = None
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            pass
        except OSError as error:
            self.findings.add_unreadable(path, error)
            return None
        is_closed = self.place.state is ClosingState.CLOSED
        return check_epochs(
            self.findings,
            path,
            content,
            batches.epoch_runs,
            checked_from=log_start if is_closed else None,
            # The end of a log that is read while it grows is not known.
            end_offset=end if is_closed else None,
        )

    def _check_start(self, first_base: int, first_epoch_offset: int | None) -> None:
        """Report a log that lost its first segments: its epochs begin at its former start.

        Retention renames the segments first and truncates the epochs afterwards, so a broker that
        was killed in between leaves the segments under their `.deleted` names.
        """
        if first_epoch_offset is None or first_epoch_offset >= first_base or self.has_changed:
            return
        is_deleting = any(name.endswith(DELETED_SUFFIX) for name in self._names)
        if is_deleting and self.place.state is not ClosingState.CLOSED:
            return
        self.findings.add(
            FindingKind.SEGMENT_MISSING,
            self.place.path,
            f"its leader epochs begin at offset {first_epoch_offset}, but its first segment at "
            f"{first_base}: offsets {first_epoch_offset} to {first_base - 1} are missing",
            offset=first_epoch_offset,
        )

    def _check_gaps(self, batches: JoinedBatches, log_start: int) -> bool:
        """Report the gaps of a log that was never compacted; return whether there are any."""
        gaps = [] if self.has_changed else [g for g in batches.gaps if g.following > log_start]
        for gap in gaps:
            self.findings.add(
                FindingKind.OFFSET_GAP,
                gap.path,
                f"offsets {gap.first_missing} to {gap.following - 1} before it are missing, and "
                "the log was never compacted",
                position=gap.position,
                offset=gap.first_missing,
            )
        return bool(gaps)
