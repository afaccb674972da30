"""The first offset of a share partition without state: `share.auto.offset.reset` (KIP-932)."""

import re
from typing import Final

from spindle.common.errors import ApiError, CorruptLog, error_code
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.share.settings import ShareDeliveryConfig
from spindle.serving.handlers.list_offsets import search_timestamp

_EARLIEST: Final = "earliest"
_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_SECONDS: Final = (86_400, 3_600, 60, 1)


async def first_offset(
    replicas: ReplicaManager, partition: Partition, config: ShareDeliveryConfig, now_ms: int
) -> int:
    """Return the offset at which the group begins to read a partition.

    Raises:
        ApiError: the log cannot be searched.
        LogDirectoryFailed: the directory is offline.
    """
    latest = partition.last_stable_offset if config.is_read_committed else partition.high_watermark
    reset = config.auto_offset_reset
    if reset == _EARLIEST:
        return partition.log.log_start_offset
    duration_ms = duration_of(reset)
    if duration_ms is None:
        return latest
    try:
        at = await search_timestamp(replicas, partition, max(now_ms - duration_ms, 0))
    except CorruptLog as error:
        raise ApiError(error_code(error), str(error)) from None
    return latest if at is None else min(at.offset, latest)


def duration_of(reset: str) -> int | None:
    """Return the duration in ms of `by_duration:` with an ISO-8601 duration; None for others."""
    match = _DURATION.fullmatch(reset)
    if match is None:
        return None
    parts = zip(match.groups(), _SECONDS, strict=True)
    return int(1000 * sum(float(text) * seconds for text, seconds in parts if text))
