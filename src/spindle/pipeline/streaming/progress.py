"""The lag of a stream, from the progress that Spark reports.

Spark takes metrics only from sources in Java. For a Python source the progress has the offsets
where a batch ended and the ends of the log at that time, and the lag is their difference.
"""

import json
from typing import Any, NamedTuple

from spindle.pipeline.streaming.position import position_from_json


class OffsetsBehind(NamedTuple):
    """How many offsets the partitions are behind; names are those of Spark's `kafka` source."""

    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    total_offsets_behind_latest: int


def offsets_behind_latest(source_progress: Any) -> OffsetsBehind | None:
    """Return the lag of a source after a batch, None if the batch does not report it.

    Args:
        source_progress: An element of `StreamingQueryProgress.sources` that reads `spindle`.
    """
    end, latest = (_parsed(source_progress[name]) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    reached = position_from_json(end).offsets
    lags = [
        max(0, offset - reached.get(partition, 0))
        for partition, offset in position_from_json(latest).offsets.items()
    ]
    if not lags:
        return None
    return OffsetsBehind(min(lags), max(lags), sum(lags) / len(lags), sum(lags))


def _parsed(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset
