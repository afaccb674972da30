"""Options of a streaming read: those of Spark's `kafka` source, and a few more.

The topics, the rows and the tasks of each batch are chosen as in a batch read (see
`spindle.pipeline.brokers.options`). A new stream starts at `startingOffsets`, which is
`latest` by default; a stream that has a checkpoint continues from there. Options of streams:

    maxOffsetsPerTrigger     the most offsets of a batch, shared in proportion to the backlogs
    minOffsetsPerTrigger     a batch waits for this many offsets, at most maxTriggerDelay (15m)
    maxBytesPerTrigger, minBytesPerTrigger    the same in bytes, estimated from the sizes of the
                             logs and their numbers of offsets; not in the `kafka` source
    commitOffsetsTo          a consumer group to which the offsets of finished batches are
                             committed, so that tools show its lag; not in the `kafka` source
    taskBytes                the size of a task, estimated in the same way; only in streams, and in
                             `spindle-segments`
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spindle.pipeline.brokers.options import BrokerReadOptions, read_options
from spindle.pipeline.options.limits import AtPosition, stream_start
from spindle.pipeline.options.values import MAX_LONG, lower_names, number_in, optional_number
from spindle.pipeline.streaming.admission import DEFAULT_MAX_DELAY_MS, TriggerLimits
from spindle.protocol.sentinels import LATEST

_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """A validated streaming read.

    Attributes:
        read: The topics, rows and tasks; its start is that of a stream without a checkpoint.
        commit_group: The group that gets the offsets of finished batches, or None.
        task_bytes: The size of a task; None to choose it by the number of cores.
    """

    read: BrokerReadOptions
    limits: TriggerLimits
    commit_group: str | None
    task_bytes: int | None = None


def stream_read_options(given: Mapping[str, str]) -> StreamReadOptions:
    """Check the options of a streaming read and return them.

    Args:
        given: as Spark passes them; upper and lower case of keys do not matter.

    Raises:
        ValueError: an option is missing, contradicts another, or has no usable value.
    """
    options = lower_names(given)
    read = read_options(options, stream_start(options), AtPosition(LATEST))
    group = options.get("commitoffsetsto")
    if group is not None and not group.strip():
        raise ValueError("option commitOffsetsTo is empty, want the name of a consumer group")
    task_bytes = optional_number(options, "taskBytes", 1, MAX_LONG)
    return StreamReadOptions(read, _limits(options), group, task_bytes)


def _limits(options: Mapping[str, str]) -> TriggerLimits:
    limits = TriggerLimits(
        min_offsets=optional_number(options, "minOffsetsPerTrigger", 1, MAX_LONG),
        max_offsets=optional_number(options, "maxOffsetsPerTrigger", 1, MAX_LONG),
        min_bytes=optional_number(options, "minBytesPerTrigger", 1, MAX_LONG),
        max_bytes=optional_number(options, "maxBytesPerTrigger", 1, MAX_LONG),
        max_delay_ms=_duration_ms("maxTriggerDelay", options.get("maxtriggerdelay")),
    )
    for unit, least, most in (
        ("Offsets", limits.min_offsets, limits.max_offsets),
        ("Bytes", limits.min_bytes, limits.max_bytes),
    ):
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"option min{unit}PerTrigger {least} is above option max{unit}PerTrigger {most}"
            )
    return limits


def _duration_ms(option: str, text: str | None) -> int:
    """Return a time as Spark reads it: a number with ms, s, m, min, h or d; without a unit ms."""
    if text is None:
        return DEFAULT_MAX_DELAY_MS
    match = re.fullmatch(r"([0-9]+)([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError(f"option {option}: {text!r}, want a time like 15m, 90s or 500ms")
    unit_ms = _UNITS_MS[match[2]]
    return number_in(option, match[1], 0, MAX_LONG // unit_ms) * unit_ms
