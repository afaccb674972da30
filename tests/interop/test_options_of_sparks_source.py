"""Starting offsets and times: accepted and refused as by the parser of Spark's `kafka` source."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pyspark
import pytest
from peers.paths import JAVA_SOURCES, java, spark_connector_jars

from spindle.pipeline.options.limits import AtOffsets, AtPosition, AtTime, AtTimes
from spindle.pipeline.streaming.options import stream_read_options
from spindle.protocol.sentinels import EARLIEST, LATEST

pytestmark = pytest.mark.timeout(60)
REQUIRED = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
MAX_OFFSET = 2**63 - 1
OFFSETS, TIMES, TIME = "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"
ALIKE = [
    *((TIME, text) for text in ("5", "+5", " 5 ", "٥", "", "5_0", "5.0", "x", str(MAX_OFFSET))),
    (TIME, str(MAX_OFFSET + 1)),
    *((OFFSETS, text) for text in ("", "earliest ", " LATEST", "newest", "[]", "{}", '{"a":{}}')),
    (OFFSETS, '{"a":{"0":23,"1":-1,"2":-2}}'),
    (OFFSETS, f'{{"a":{{"0":{MAX_OFFSET}}}}}'),
    (OFFSETS, '{"a":{"+1":1,"٥":2,"07":3}}'),
    (OFFSETS, '{"a":{" 1":1}}'),
    (OFFSETS, '{"a":{"2147483648":1}}'),
    (OFFSETS, '{"a":{"0":"1"}}'),
    (OFFSETS, '{"a":{"0":true}}'),
    (TIMES, '{"a":{"0":5}}'),
    (TIMES, ""),
]
REFUSED_ONLY_HERE = [
    (OFFSETS, f'{{"a":{{"0":{MAX_OFFSET + 1}}}}}', "a-0 -> -9223372036854775808"),
    (OFFSETS, '{"a":{"0":1.5}}', "a-0 -> 1"),
    (OFFSETS, '{"a":{"0":null}}', "a-0 -> 0"),
    (OFFSETS, '{"a":{"0":1,"0":2}}', "a-0 -> 2"),
    (OFFSETS, '{"a":{"0":1},"a":{"1":2}}', "a-1 -> 2"),
    (OFFSETS, '{"a":{"1":1,"+1":2}}', "a-1 -> 2"),
    # The source plans with these, and its Java client then refuses them.
    (OFFSETS, '{"a":{"0":-3}}', "a-0 -> -3"),
    (OFFSETS, '{"a":{"-1":1}}', "a--1 -> 1"),
    (TIME, "-5", "-5"),
    (TIMES, '{"a":{"0":-5}}', "a-0 -> -5"),
]


def ours(option: str, text: str) -> str:
    """Return how a stream of `spindle` understands an option, in the words of Spark's source."""
    try:
        start = stream_read_options(REQUIRED | {option: text}).read.start
    except ValueError:
        return "refused"
    match start:
        case AtPosition(position):
            return {EARLIEST: "EarliestOffsetRangeLimit", LATEST: "LatestOffsetRangeLimit"}[
                position
            ]
        case AtTime(timestamp_ms):
            return f"GlobalTimestampRangeLimit({timestamp_ms},ERROR)"
        case AtOffsets(places):
            return f"SpecificOffsetRangeLimit({_map(places)})"
        case AtTimes(places):
            return f"SpecificTimestampRangeLimit({_map(places)},ERROR)"


def _map(places: object) -> str:
    assert isinstance(places, dict)
    return f"Map({', '.join(f'{partition} -> {value}' for partition, value in places.items())})"


@pytest.fixture(scope="module")
def theirs() -> dict[tuple[str, str], str]:
    """How Spark's source understands all options of this module."""
    asked = [*ALIKE, *((option, text) for option, text, _ in REFUSED_ONLY_HERE)]
    jars = [*Path(pyspark.__path__[0], "jars").glob("*.jar"), *spark_connector_jars()]
    run = subprocess.run(
        [java(), "-cp", ":".join(map(str, jars)), str(JAVA_SOURCES / "spark/OffsetOptions.java")],
        input="".join(f"{option} {text}\n" for option, text in asked),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return dict(zip(asked, run.stdout.splitlines(), strict=True))


def test_values_are_understood_alike(theirs: dict[tuple[str, str], str]) -> None:
    assert {case: ours(*case) for case in ALIKE} == {case: theirs[case] for case in ALIKE}


def test_values_of_which_the_source_makes_others_are_refused(
    theirs: dict[tuple[str, str], str],
) -> None:
    for option, text, understood in REFUSED_ONLY_HERE:
        assert ours(option, text) == "refused"
        assert re.search(
            rf"\b{re.escape(understood)}\b|\({re.escape(understood)}", theirs[option, text]
        )
