"""Re-check findings.

A running broker's files are inconsistent for moments, so report only what several scans see.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from spindle.audit.file_limits import refuse_odd_file
from spindle.audit.findings import AuditFinding
from spindle.audit.log_directory import compare_directories, list_log_directory
from spindle.audit.placement import ClusterPlacement, MetadataNotRead, compare_with_metadata
from spindle.audit.replica_place import ClosingState
from spindle.columnar.directory_files import read_topic_id
from spindle.common.errors import CorruptLog
from spindle.common.uuids import Uuid
from spindle.log.formats.names import PARTITION_METADATA

_LOOKS: Final = 4


def confirmed_findings(
    paths: Sequence[Path],
    load_placement: Callable[[], ClusterPlacement | None],
    recheck_ms: int,
) -> list[AuditFinding]:
    """Return the findings about the roots and the placement of replicas.

    A scan may see a broker in the middle of creating, moving or deleting replicas; in directories
    in use, only findings of every scan count.
    """
    return confirm_findings(lambda: _look(paths, load_placement), recheck_ms)


def confirm_findings(
    scan: Callable[[], tuple[list[AuditFinding], bool]], recheck_ms: int
) -> list[AuditFinding]:
    """Return the findings that several scans have in common.

    Args:
        scan: returns its findings, and whether a broker is running, so that they may be temporary.
        recheck_ms: the pause before the next scan.
    """
    findings, is_in_use = scan()
    for _ in range(_LOOKS - 1):
        if not findings or not is_in_use:
            break
        time.sleep(recheck_ms / 1000)
        before = {(finding.kind, finding.path) for finding in findings}
        again, is_in_use = scan()
        findings = [finding for finding in again if (finding.kind, finding.path) in before]
    return findings


def _look(
    paths: Sequence[Path], load_placement: Callable[[], ClusterPlacement | None]
) -> tuple[list[AuditFinding], bool]:
    """Return the findings of one scan of the roots, and whether a directory is in use."""
    listed = [list_log_directory(path) for path in paths]
    topic_ids = {place.path: _topic_id(place.path) for entry in listed for place in entry.replicas}
    findings = [finding for directory in listed for finding in directory.findings]
    findings += compare_directories(listed, topic_ids)
    try:
        placement = load_placement()
    except MetadataNotRead as error:
        findings.append(error.finding())
    else:
        if placement is not None:
            findings += compare_with_metadata(placement, listed, topic_ids)
    return findings, any(entry.state is ClosingState.IN_USE for entry in listed)


def _topic_id(replica: Path) -> Uuid | None:
    try:
        refuse_odd_file(replica / PARTITION_METADATA)
        return read_topic_id(replica)
    except (CorruptLog, OSError):
        return None  # the audit of the replica reports it
