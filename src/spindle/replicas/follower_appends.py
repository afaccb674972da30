"""Work of followers on the logs of one directory; runs on the directory's I/O thread."""

from collections.abc import Sequence

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
) -> list[LogPosition | Exception]:
    """Prepare the logs for new leaders.

    Returns:
        For each log the position from which it fetches, or the exception that it caused.

    Raises:
        OSError: the directory has failed.
    """
    results: list[LogPosition | Exception] = []
    counts = [log.truncation_count for log in logs]
    for log in logs:
        try:
            results.append(begin_to_follow(log, now_ms))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - an error of one log must not fail the others
            results.append(error)
    _note_truncations(store, logs, counts)
    return results


def apply_leader_answers(
    store: DirectoryStore, work: Sequence[tuple[Log, LogWork]], now_ms: int
) -> list[LogPosition | Exception]:
    """Append or truncate as the leaders' fetch responses require.

    Returns:
        For each log its position afterwards, or the exception that its response caused. An
        exception of one log does not stop the others.

    Raises:
        OSError: the directory has failed.
    """
    results: list[LogPosition | Exception] = []
    logs = [log for log, _ in work]
    counts = [log.truncation_count for log in logs]
    for log, answer in work:
        try:
            results.append(apply_leader_answer(log, answer, now_ms))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - an error of one log must not fail the others
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
