"""Checks of the offset checkpoints of a log directory against one log of it."""

from collections.abc import Collection
from typing import NamedTuple

from spindle.audit.findings import Collector, FindingKind, Severity
from spindle.audit.replica_place import ClosingState, ReplicaPlace
from spindle.log.formats.names import LogKind


class LogRange(NamedTuple):
    """The offsets of a log.

    Attributes:
        first_base: the base offset of the first segment.
        end: the offset after the last batch.
        first_epoch_offset: where `leader-epoch-checkpoint` begins, None without entries.
        gaps: the first missing offsets of gaps between batches.
    """

    first_base: int
    end: int
    first_epoch_offset: int | None
    gaps: Collection[int] = ()


def check_checkpoints(findings: Collector, place: ReplicaPlace, log: LogRange) -> None:
    """Report offsets that the log contradicts, unless a broker is using the directory.

    Args:
        findings: includes those of the log itself, because the end of a damaged log may be wrong.
    """
    said, end = place.checkpointed, log.end
    if place.kind is not LogKind.CURRENT or place.state is ClosingState.IN_USE:
        return
    _check_log_start(findings, place, log)
    if said.recovery_point is not None and said.recovery_point > end:
        findings.add(
            FindingKind.LOG_SHORT,
            place.path,
            f"records up to offset {said.recovery_point} were on the disk, now the log ends at "
            f"{end}",
            offset=end,
        )
    elif place.state is ClosingState.CLOSED:
        _check_recovery_point(findings, place, log)
        for name, offset in (
            ("high watermark", said.high_watermark),
            ("clean offset", said.cleaner),
        ):
            if offset is not None and offset > end:
                findings.add(
                    FindingKind.CHECKPOINT_BEYOND_END,
                    place.path,
                    f"the checkpoint has {name} {offset}, but the log ends at {end}",
                    offset=offset,
                )


def _check_log_start(findings: Collector, place: ReplicaPlace, log: LogRange) -> None:
    """Report a log start offset that makes the next start hide or remove records.

    The epochs are truncated at the log start when it rises, so they never begin before it.
    """
    said = place.checkpointed.log_start
    if said is None or said <= log.first_base:
        return
    if said > log.end:
        wrong = f"the log ends at {log.end}: the next start removes all of its records"
    elif log.first_epoch_offset is not None and log.first_epoch_offset < said:
        wrong = (
            f"its leader epochs begin at {log.first_epoch_offset}: the next start hides the "
            "records below the log start offset, and removes their segments"
        )
    else:
        return
    evidence = f"the checkpoint has log start offset {said}, but {wrong}"
    findings.add(FindingKind.LOG_START, place.path, evidence, offset=said)


def _check_recovery_point(findings: Collector, place: ReplicaPlace, log: LogRange) -> None:
    """Report a recovery point below the end of a cleanly closed log, which was flushed.

    A follower's recovery point may be at a gap, until the follower has asked its leader about it.
    """
    point, end = place.checkpointed.recovery_point, log.end
    is_sound = not any(finding.kind.severity is Severity.ERROR for finding in findings.found)
    if point is not None and point < end and point not in log.gaps and is_sound:
        findings.add(
            FindingKind.CHECKPOINT_ENTRY,
            place.path,
            f"the checkpoint has recovery point {point}, but the broker stopped in order, and the "
            f"log ends at {end}",
            offset=point,
        )
