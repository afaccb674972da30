"""Work of followers on the logs of one directory; runs on the directory's I/O thread."""

from collections.abc import Sequence

from spindle.common.errors import CorruptLog
from spindle.disks.directory_store import DirectoryStore
from spindle.log.log import Log
from spindle.replication.follower_log import (
    LogPosition,
    LogWork,
    apply_leader_answer,
    begin_to_follow,
)


def begin_to_follow_all(
    store: DirectoryStore, logs: Sequence[Log], now_ms: int
) -> list[LogPosition]:
    """Prepare the logs for new leaders; return the position from which each one fetches."""
    counts = [log.truncation_count for log in logs]
    positions = [begin_to_follow(log, now_ms) for log in logs]
    _note_truncations(store, logs, counts)
    return positions


def apply_leader_answers(
    store: DirectoryStore, work: Sequence[tuple[Log, LogWork]], now_ms: int
) -> list[LogPosition | Exception]:
    """Append or truncate as the leaders' answers demand.

    Returns:
        For each log its position afterwards, or the exception that its answer caused. The other
        logs go on.

    Raises:
        OSError, CorruptLog: the directory has failed.
    """
    results: list[LogPosition | Exception] = []
    logs = [log for log, _ in work]
    counts = [log.truncation_count for log in logs]
    for log, item in work:
        try:
            results.append(apply_leader_answer(log, item, now_ms))
        except (OSError, CorruptLog):
            raise
        except Exception as error:  # noqa: BLE001 - one log's trouble is not the others'
            results.append(error)
    _note_truncations(store, logs, counts)
    return results


def _note_truncations(
    store: DirectoryStore, logs: Sequence[Log], counts_before: Sequence[int]
) -> None:
    truncated = [
        log for log, count in zip(logs, counts_before, strict=True) if log.truncation_count != count
    ]
    if truncated:
        store.note_truncated(truncated)
