"""The offset checkpoints of a log directory: read them, and find lost entries."""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

from spindle.audit.file_limits import refuse_odd_file
from spindle.audit.findings import Collector, FindingKind
from spindle.audit.replica_place import CheckpointedOffsets
from spindle.columnar.directory_files import FILE_SYSTEM
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.text import join_first
from spindle.log.formats.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    read_offset_checkpoint,
)

_WITH_ALL_LOGS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS)
"""The checkpoints with an entry of each log after a clean shutdown."""
_NAMED: Final = 3
_CHECKPOINT_MARGIN_S: Final = 1.0
"""A broker collects the offsets of a checkpoint shortly before it writes the file."""
_MAX_MISSING: Final = 1000
"""Maximum number of missing replicas that a checkpoint reports as findings."""
_NO_OFFSETS: Final[Mapping[TopicPartition, int]] = {}


class DirectoryCheckpoints:
    """The checkpoints of one log directory; one that is damaged is a finding.

    Args:
        directory: the root of the log directory.
    """

    def __init__(self, findings: Collector, directory: Path) -> None:
        self._findings = findings
        self._directory = directory
        self._offsets = {name: self._read(directory / name) for name in OFFSET_CHECKPOINTS}
        self._has_cleaner_file = (
            self._offsets[CLEANER_OFFSETS] is not None and (directory / CLEANER_OFFSETS).is_file()
        )

    def _read(self, path: Path) -> Mapping[TopicPartition, int] | None:
        """Return the offsets in a file, None if it is damaged."""
        try:
            refuse_odd_file(path)
            return read_offset_checkpoint(FILE_SYSTEM, str(path))
        except FileNotFoundError:
            return {}
        except CorruptLog as error:
            self._findings.add(FindingKind.CHECKPOINT_FILE, path, error.finding)
        except OSError as error:
            self._findings.add_unreadable(path, error)
        return None

    def _named(self, checkpoint: str) -> Mapping[TopicPartition, int]:
        return self._offsets[checkpoint] or _NO_OFFSETS

    def of(self, partition: TopicPartition) -> CheckpointedOffsets:
        """Return the entries of a partition."""
        return CheckpointedOffsets(
            self._named(RECOVERY_POINTS).get(partition),
            self._named(LOG_STARTS).get(partition),
            self._named(HIGH_WATERMARKS).get(partition),
            self._named(CLEANER_OFFSETS).get(partition),
            self._has_cleaner_file,
        )

    def check(
        self, current: Set[TopicPartition], known: Set[TopicPartition], *, is_closed: bool
    ) -> None:
        """Compare the entries with the directories of partitions.

        Args:
            current: the partitions with a log in use, without the metadata log.
            known: the partitions with any directory.
            is_closed: the broker was shut down cleanly, so all logs in use have entries.
        """
        self._check_negative()
        missing = sorted(self._named(RECOVERY_POINTS).keys() - known)
        if len(missing) > _MAX_MISSING:
            evidence = f"{len(missing) - _MAX_MISSING} more of its partitions have no directory"
            self._findings.add(
                FindingKind.CHECKPOINT_ENTRY, self._directory / RECOVERY_POINTS, evidence
            )
        for partition in missing[:_MAX_MISSING]:
            self._findings.add(
                FindingKind.REPLICA_MISSING,
                self._directory / str(partition),
                f"{RECOVERY_POINTS} names {partition}, which has no directory here",
            )
        for name in _WITH_ALL_LOGS if is_closed else ():
            offsets = self._offsets[name]
            if offsets is None:
                continue  # the file is a finding already
            lost = sorted(current - offsets.keys())
            if lost:
                # If a name was damaged, an entry names a partition that is not here.
                foreign = sorted(offsets.keys() - known)
                instead = f", but entries of {join_first(foreign, _NAMED)}" if foreign else ""
                self._findings.add(
                    FindingKind.CHECKPOINT_ENTRY,
                    self._directory / name,
                    f"it has no entries of {join_first(lost, _NAMED)}{instead}",
                )

    def _check_negative(self) -> None:
        for name in OFFSET_CHECKPOINTS:
            negative = {key: at for key, at in self._named(name).items() if at < 0}
            if negative:
                partition, offset = min(negative.items())
                more = f", and {len(negative) - 1} more negative ones" if len(negative) > 1 else ""
                self._findings.add(
                    FindingKind.CHECKPOINT_ENTRY,
                    self._directory / name,
                    f"{partition} has offset {offset}{more}: offsets are 0 or more",
                )

    def check_after_kill(self, created: Mapping[TopicPartition, float]) -> None:
        """Report recovery points that are older than their file.

        A broker writes the entries of all logs at once, so the file has those of the logs that were
        there before it; and compaction reads only what is on the device, so a recovery point that
        was written after a clean offset is not below it.

        Args:
            created: when the replica of each partition was created, in seconds since 1970.
        """
        offsets = self._offsets[RECOVERY_POINTS]
        written = _written_at(self._directory / RECOVERY_POINTS)
        if offsets is None or written is None:
            return  # the file is a finding already
        lost = sorted(
            partition
            for partition, at in created.items()
            if partition not in offsets and at + _CHECKPOINT_MARGIN_S < written
        )
        cleaned = _written_at(self._directory / CLEANER_OFFSETS)
        behind = sorted(
            partition
            for partition, clean in self._named(CLEANER_OFFSETS).items()
            if cleaned is not None
            and cleaned + _CHECKPOINT_MARGIN_S < written
            and 0 <= offsets.get(partition, clean) < clean
        )
        for partitions, wrong in (
            (lost, "it has no entries of {}, which were there before it was written"),
            (behind, "the recovery points of {} are below their clean offsets"),
        ):
            if partitions:
                self._findings.add(
                    FindingKind.CHECKPOINT_ENTRY,
                    self._directory / RECOVERY_POINTS,
                    wrong.format(join_first(partitions, _NAMED)),
                )


def _written_at(path: Path) -> float | None:
    """Return when a file was written, None if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
