"""An export that follows its topics: one run after the other, as records arrive.

Brokers that cannot be reached are waited for. A run that failed for a passing reason is made again:
every run continues where the table ends.
"""

import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from spindle.client.errors import ConnectionLost, RequestTimedOut, is_worth_retrying
from spindle.common.errors import RETRIABLE, ApiError, ErrorCode
from spindle.common.text import count_noun
from spindle.pipeline.errors import LogChanged
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.export.model import (
    ExportConflict,
    ExportFailed,
    ExportResult,
    joined,
)
from spindle.pipeline.user_errors import ReportedCause, reported_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_FAILED_RUNS: Final = 5
_MAX_PAUSE_S: Final = 30.0
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_PASSING: Final = frozenset(
    f"{kind.__module__}.{kind.__qualname__}"
    for kind in (ConnectionLost, RequestTimedOut, LogChanged)
)
_REFUSAL: Final = f"{ApiError.__module__}.{ApiError.__qualname__}"


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """When a continuous export commits: at `target_bytes` of new log, or after `max_delay_ms`.

    `poll_ms` is the time between two questions for new records, and the first pause after a
    failure; the pauses grow to 30 seconds.

    Raises:
        ValueError: a limit below 1.
    """

    target_bytes: int = 128 * 1024 * 1024
    max_delay_ms: int = 60_000
    poll_ms: int = 1000

    def __post_init__(self) -> None:
        for name in ("target_bytes", "max_delay_ms", "poll_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: want 1 or more")


Follow: TypeAlias = bool | FollowSettings
"""The argument `follow` of an export: False for one run, True to keep up, or how to keep up."""


def commit_line(result: ExportResult) -> str:
    """Return one line about a run: the time of day, the table, its new rows and its version."""
    bad = f", {count_noun(result.dead_letters, 'dead letter')}" if result.dead_letters else ""
    gone = f", {result.deleted:,} deleted" if result.deleted else ""
    rows = f"{result.rows:,} {'row' if result.rows == 1 else 'rows'}"
    return f"{time.strftime('%H:%M:%S')} {result.path}: {rows}{gone}{bad}, version {result.version}"


def run_or_follow(spark: "SparkSession", job: ExportJob, follow: Follow) -> ExportResult:
    """Run an export once, or keep up with its topics until SIGINT or SIGTERM.

    While it keeps up, it prints a line on standard error for every commit and for every outage. The
    first signal ends it after the current run, a second one ends the process. In another thread
    than the main one no signal can be received: use `follow_export` with its argument `stopped`.

    Returns:
        The result of the run, or the sum of all runs; `version` is that of the last one.

    Raises:
        ValueError: `follow` in another thread than the main one.
    """
    if follow is False:
        return job.run(spark)
    if threading.current_thread() is not threading.main_thread():
        raise ValueError(
            "follow=True ends by a signal, which only the main thread receives; in another thread "
            "call follow_export(spark, job, stopped=EVENT)"
        )
    settings = None if follow is True else follow
    total = ExportResult(str(job.table), None, 0, 0, 0, ())
    stopped = threading.Event()
    with stop_signals(stopped):
        _print(f"{job.table}: waits for records and commits them, until Ctrl-C or SIGTERM")
        for result in follow_export(spark, job, settings, stopped, _print):
            total = _sum(total, result)
            _print(commit_line(result))
    return total


@contextmanager
def stop_signals(stopped: threading.Event) -> Iterator[None]:
    """Set an event at the first SIGINT or SIGTERM; a second one ends the process at once.

    A run that is killed loses nothing, so the second signal may have its default effect.
    """

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sum(total: ExportResult, result: ExportResult) -> ExportResult:
    return ExportResult(
        result.path,
        result.version,
        total.rows + result.rows,
        total.files + result.files,
        total.size_bytes + result.size_bytes,
        joined([*total.partitions, *result.partitions]),
        total.portions + result.portions,
        total.dead_letters + result.dead_letters,
        total.deleted + result.deleted,
    )


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def follow_export(
    spark: "SparkSession",
    job: ExportJob,
    settings: FollowSettings | None = None,
    stopped: threading.Event | None = None,
    tell: Callable[[str], None] = _warn,
) -> Iterator[ExportResult]:
    """Export what is there, then what arrives; yield the result of every run that added rows.

        for result in follow_export(spark, ExportJob("delta", "/data/flights", options)):
            print(result.rows)

    Each run is an export as any other: it may be killed at any point, and the next one continues.
    Once the brokers have answered, an outage of any length is waited for. After a conflict with
    another export, and after a task that failed for a passing reason, the next run follows; the
    fifth such run in a row fails.

    Args:
        stopped: Ends the iteration when it is set. The current run is finished first.
        tell: Gets a line when brokers cannot be reached, once for an outage, and when a run failed.

    Raises:
        ExportRefused, ExportConflict, ExportFailed, DataLoss, ValueError: as `export_delta`.
        ApiError, ClientError: a topic does not exist, the brokers refuse the client, or they could
            not be reached at the start.
    """
    chosen, ended = settings or FollowSettings(), stopped or threading.Event()
    # A wrong address is an error at once, and no outage.
    job.pending_bytes()
    troubles = _Troubles(chosen, ended, tell)
    while not ended.is_set():
        try:
            result = job.run(spark)
        except Exception as error:
            if not troubles.can_go_on_after(error):
                raise
            continue
        troubles.are_over(run_succeeded=True)
        # A topic that is created while the export follows is exported from its first record.
        job = replace(job, settings={**job.settings, "begin": "earliest"})
        if not result.is_empty:
            yield result
        _wait(job, chosen, ended, troubles)


def _wait(
    job: ExportJob, settings: FollowSettings, ended: threading.Event, troubles: "_Troubles"
) -> None:
    """Wait until there is enough to export, or something waited for long enough."""
    first_seen: float | None = None
    while not ended.wait(settings.poll_ms / 1000):
        try:
            pending_bytes = job.pending_bytes()
        except Exception as error:
            if not troubles.can_go_on_after(error):
                raise
            continue
        troubles.are_over()
        if pending_bytes is None:
            continue
        now = time.monotonic()
        first_seen = now if first_seen is None else first_seen
        if pending_bytes >= settings.target_bytes:
            return
        if (now - first_seen) * 1000 >= settings.max_delay_ms:
            return


class _Troubles:
    """Counts what went wrong in a row, and waits after it."""

    def __init__(
        self, settings: FollowSettings, ended: threading.Event, tell: Callable[[str], None]
    ) -> None:
        self._first_pause_s = settings.poll_ms / 1000
        self._ended = ended
        self._tell = tell
        self._outage_attempts = 0
        self._failed_runs = 0

    def are_over(self, run_succeeded: bool = False) -> None:
        """End a series of failures: the brokers have answered, or a run has succeeded."""
        self._outage_attempts = 0
        if run_succeeded:
            self._failed_runs = 0

    def can_go_on_after(self, error: Exception) -> bool:
        """Return True, after a pause, if what failed may succeed the next time."""
        if _is_outage(error):
            self._outage_attempts += 1
            if self._outage_attempts == 1:
                self._tell(f"the brokers do not answer, and are asked again: {error}")
            self._pause(self._outage_attempts)
            return True
        self._failed_runs += 1
        if self._failed_runs >= _MAX_FAILED_RUNS or not _may_pass(error):
            return False
        self._tell(f"the run failed, and is made again: {_reason(error)}")
        self._pause(self._failed_runs)
        return True

    def _pause(self, attempts: int) -> None:
        # The exponent is limited, too: an outage of hours has thousands of attempts.
        self._ended.wait(min(self._first_pause_s * 2 ** min(attempts - 1, 20), _MAX_PAUSE_S))


def _is_outage(error: Exception) -> bool:
    """Return True if brokers did not answer or are not ready; a deleted topic is no outage."""
    if isinstance(error, ApiError) and error.code in _GONE:
        return False
    return is_worth_retrying(error)


def _may_pass(error: Exception) -> bool:
    """Return True if a new run may succeed: another was first, or a task lost its broker."""
    if isinstance(error, ExportConflict | LogChanged):
        return True
    cause = _cause_in_a_task(error)
    if cause is None:
        return False
    if cause.kind == _REFUSAL:
        return cause.text.partition(":")[0] in {code.name for code in RETRIABLE - _GONE}
    return cause.kind in _PASSING


def _cause_in_a_task(error: Exception) -> ReportedCause | None:
    if isinstance(error, ExportFailed):
        return error.cause
    is_of_spark = type(error).__module__.startswith(("pyspark.", "py4j."))
    return reported_cause(str(error)) if is_of_spark else None


def _reason(error: Exception) -> str:
    cause = _cause_in_a_task(error)
    return str(error) if cause is None else cause.text
