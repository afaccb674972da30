"""The space of deleted replicas at the end of an execution: used until their files are removed."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from spindle.cli.durations import span_text
from spindle.cli.execution.progress_events import ProgressEvent
from spindle.cli.plan.deletions import OwnDeletions
from spindle.common.sizes import size_text
from spindle.common.text import join_first
from spindle.planner.model import DirectoryModel

_MAX_NAMED: Final = 3
_MS: Final = 1000


def deleted_space(
    directories: Iterable[DirectoryModel],
    own: OwnDeletions,
    now_s: Callable[[], float] = time.time,
) -> ProgressEvent | None:
    """Return a step about the bytes that `spindle disks list` still shows as used; None without.

    Args:
        own: the replicas that this execution moved away. A broker that has not heard of the end of
            a move does not report its replica as deleted yet.
        now_s: seconds since 1970.
    """
    sizes = {directory: _deleted_bytes(directory, own) for directory in directories}
    deleting = [directory for directory, size in sizes.items() if size]
    if not deleting:
        return None
    total_bytes = sum(sizes.values())
    delay_ms = max(directory.deletion_delay_ms for directory in deleting)
    until_s = now_s() + delay_ms / _MS
    clock = time.strftime("%H:%M:%S", time.localtime(until_s))
    names = join_first([str(directory) for directory in deleting], _MAX_NAMED)
    text = (
        f"deleted replicas still use {size_text(total_bytes)} of {names}: USED counts them until "
        f"their files are removed, at about {clock} (log.segment.delete.delay.ms: "
        f"{span_text(delay_ms / _MS)})"
    )
    facts = {
        "directories": [str(directory) for directory in deleting],
        "deletedBytes": total_bytes,
        "untilMs": int(until_s * _MS),
    }
    return ProgressEvent("deletedReplicas", text, facts)


def _deleted_bytes(directory: DirectoryModel, own: OwnDeletions) -> int:
    if not directory.is_online:
        return 0
    return max(directory.deleted_bytes, own.bytes_of((directory.broker_id, directory.path)))
