"""Metrics of compaction: for each log directory, because each one has a pass of its own."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from prometheus_client import Metric

from spindle.disks.cleaner import CleanerCounts
from spindle.runtime.broker.compaction import Compaction
from spindle.runtime.metrics.families import counters, gauge, gauges

_CLEANER: Final = "kafka_log_log_cleaner"
_MANAGER: Final = "kafka_log_log_cleaner_manager"
_MS: Final = 1000

Found: TypeAlias = Sequence[tuple[dict[str, str], CleanerCounts]]


def cleaner_metrics(compaction: Compaction, now_ms: int) -> Iterator[Metric]:
    """Yield the numbers of the last searches and passes, and the sums over all passes."""
    labelled_counts = [({"log_dir": path}, counts) for path, counts in compaction.counts().items()]
    yield from _search_metrics(labelled_counts, now_ms)
    yield from _pass_metrics(labelled_counts)
    yield gauge(
        f"{_CLEANER}_dead_thread_count",
        "Online directories whose cleaner task has died.",
        compaction.ended_tasks,
    )


def _search_metrics(found: Found, now_ms: int) -> Iterator[Metric]:
    yield gauges(
        f"{_MANAGER}_max_dirty_percent",
        "Share of dirty bytes of the dirtiest log, at the last search for a log to compact.",
        [(labels, int(100 * counts.max_dirty_ratio)) for labels, counts in found],
    )
    yield gauges(
        f"{_MANAGER}_time_since_last_run_seconds",
        "Time since the last search for a log to compact.",
        [
            (labels, max(0, now_ms - counts.last_search_ms) / _MS)
            for labels, counts in found
            if counts.last_search_ms is not None
        ],
    )
    yield gauges(
        f"{_MANAGER}_uncleanable_partitions_count",
        "Logs whose last compaction pass failed. They are tried again after a minute to an hour.",
        [(labels, counts.uncleanable) for labels, counts in found],
    )
    yield gauges(
        f"{_MANAGER}_uncleanable_bytes",
        "Dirty bytes of the logs whose last compaction pass failed.",
        [(labels, counts.uncleanable_bytes) for labels, counts in found],
    )
    yield gauges(
        f"{_CLEANER}_max_compaction_delay_seconds",
        "Time for which a record has waited longer than max.compaction.lag.ms, at the last search.",
        [(labels, counts.max_overdue_ms / _MS) for labels, counts in found],
    )


def _pass_metrics(found: Found) -> Iterator[Metric]:
    finished = [(labels, counts, counts.last) for labels, counts in found]
    yield gauges(
        f"{_CLEANER}_cleaner_recopy_percent",
        "Bytes that the last pass has kept, in percent of those that it has read.",
        [
            (labels, int(100 * last.written_bytes / max(last.read_bytes, 1)))
            for labels, _, last in finished
            if last is not None
        ],
    )
    yield gauges(
        f"{_CLEANER}_max_clean_time_seconds",
        "Time of the last pass.",
        [(labels, counts.last_took_ms / _MS) for labels, counts in found],
    )
    yield gauges(
        f"{_CLEANER}_max_buffer_utilization_percent",
        "Share of the key map that the last pass has filled.",
        [(labels, int(100 * last.map_use)) for labels, _, last in finished if last is not None],
    )
    yield counters(
        f"{_CLEANER}_passes",
        "Finished compaction passes.",
        [(labels, counts.passes) for labels, counts in found],
    )
    yield counters(
        f"{_CLEANER}_failed_passes",
        "Compaction passes that failed; the log says why.",
        [(labels, counts.failed_passes) for labels, counts in found],
    )
    yield counters(
        f"{_CLEANER}_read_bytes",
        "Bytes that finished passes have read, for the keys and for the copies.",
        [(labels, counts.read_bytes) for labels, counts in found],
    )
    yield counters(
        f"{_CLEANER}_written_bytes",
        "Bytes that finished passes have written.",
        [(labels, counts.written_bytes) for labels, counts in found],
    )
