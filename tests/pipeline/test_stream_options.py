"""Options of streaming reads against the rules of Spark's `kafka` source."""

import pytest

from spindle.common.ids import TopicPartition
from spindle.pipeline.options.limits import AtOffsets, AtPosition, AtTime
from spindle.pipeline.streaming.admission import TriggerLimits
from spindle.pipeline.streaming.options import StreamReadOptions, stream_read_options
from spindle.protocol.sentinels import EARLIEST, LATEST

REQUIRED = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def stream(**options: str) -> StreamReadOptions:
    return stream_read_options(REQUIRED | options)


def test_defaults_are_those_of_the_built_in_source() -> None:
    options = stream()
    assert options.read.start == AtPosition(LATEST)
    assert options.limits == TriggerLimits(max_delay_ms=15 * 60 * 1000)
    assert not options.limits.needs_sizes
    assert options.commit_group is None


def test_a_stream_may_start_at_latest() -> None:
    assert stream(startingOffsets="earliest").read.start == AtPosition(EARLIEST)
    assert stream(startingOffsets="latest").read.start == AtPosition(LATEST)
    given = stream(startingOffsets='{"a": {"0": -1, "1": 7}}').read.start
    assert given == AtOffsets({TopicPartition("a", 0): LATEST, TopicPartition("a", 1): 7})
    assert stream(startingTimestamp="5", startingOffsets="latest").read.start == AtTime(5)


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_options_for_an_end_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"option {option}: a stream has no end"):
        stream(**{option: "latest"})


def test_limits_of_a_trigger() -> None:
    given = {
        "MINOFFSETSPERTRIGGER": "1", "maxOffsetsPerTrigger": "2",
        "minBytesPerTrigger": "3", "maxBytesPerTrigger": "4", "maxTriggerDelay": "5s",
    }  # fmt: skip
    assert stream(**given).limits == TriggerLimits(1, 2, 3, 4, 5000)
    assert stream(**given).limits.needs_sizes


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("100", 100), ("100ms", 100), ("2s", 2000), ("3m", 180_000), ("3min", 180_000),
     (" 1H ", 3_600_000), ("1d", 86_400_000)],
)  # fmt: skip
def test_a_delay_is_a_time_as_spark_reads_it(text: str, expected_ms: int) -> None:
    assert stream(maxTriggerDelay=text).limits.max_delay_ms == expected_ms


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("maxOffsetsPerTrigger", "0", "option maxOffsetsPerTrigger: 0, want 1 to"),
        ("minOffsetsPerTrigger", "x", "option minOffsetsPerTrigger: 'x', want an integer"),
        ("maxBytesPerTrigger", "-1", "option maxBytesPerTrigger: -1, want 1 to"),
        ("maxTriggerDelay", "1 week", "option maxTriggerDelay: '1 week', want a time like 15m"),
        ("commitOffsetsTo", " ", "option commitOffsetsTo is empty"),
    ],
)
def test_unusable_values_are_named(option: str, value: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        stream(**{option: value})


@pytest.mark.parametrize("unit", ["Offsets", "Bytes"])
def test_limits_that_contradict_each_other_are_refused(unit: str) -> None:
    with pytest.raises(ValueError, match=f"min{unit}PerTrigger 3 is above option max{unit}"):
        stream(**{f"min{unit}PerTrigger": "3", f"max{unit}PerTrigger": "2"})
