"""Second looks at log directories and clusters: a broker at work is seen in the middle of it."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from spindle.audit.closing_state import ClosingState
from spindle.audit.findings import AuditFinding
from spindle.audit.log_directory import compare_directories, list_log_directory
from spindle.audit.odd_files import refuse_odd_file
from spindle.audit.placement import ClusterPlacement, compare_with_metadata
from spindle.common.errors import CorruptLog
from spindle.common.uuids import Uuid
from spindle.log.formats.names import PARTITION_METADATA
from spindle.pipeline.segments.small_files import read_topic_id

_LOOKS: Final = 4


def confirmed_findings(
    paths: Sequence[Path],
    load_placement: Callable[[], ClusterPlacement | None],
    second_look_ms: int,
) -> list[AuditFinding]:
    """Return what is wrong with the roots, and with the places of the replicas.

    A broker that creates, moves and deletes replicas is seen in the middle of it; what counts in
    directories in use is there in several looks.
    """
    return confirm(lambda: _look(paths, load_placement), second_look_ms)


def confirm(
    look: Callable[[], tuple[list[AuditFinding], bool]], second_look_ms: int
) -> list[AuditFinding]:
    """Return the findings that several looks have.

    Args:
        look: returns its findings, and whether a broker is at work, so that they may pass.
        second_look_ms: the wait before the next look.
    """
    found, is_in_use = look()
    for _ in range(_LOOKS - 1):
        if not found or not is_in_use:
            break
        time.sleep(second_look_ms / 1000)
        before = {(finding.kind, finding.path) for finding in found}
        again, is_in_use = look()
        found = [finding for finding in again if (finding.kind, finding.path) in before]
    return found


def _look(
    paths: Sequence[Path], load_placement: Callable[[], ClusterPlacement | None]
) -> tuple[list[AuditFinding], bool]:
    """Return the findings of one look at the roots, and whether a directory is in use."""
    listed = [list_log_directory(path) for path in paths]
    topic_ids = {place.path: _topic_id(place.path) for each in listed for place in each.replicas}
    found = [finding for directory in listed for finding in directory.findings]
    found += compare_directories(listed, topic_ids)
    placement = load_placement()
    if placement is not None:
        found += compare_with_metadata(placement, listed, topic_ids)
    return found, any(each.state is ClosingState.IN_USE for each in listed)


def _topic_id(replica: Path) -> Uuid | None:
    try:
        refuse_odd_file(replica / PARTITION_METADATA)
        return read_topic_id(replica)
    except (CorruptLog, OSError):
        return None  # a finding of the replica
