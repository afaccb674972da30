"""Options that all sources share: the same values, refused in the same words.

The parser of Spark's built-in `kafka` source understands them alike (tests/interop compares them).
Where it would use another value than the written one (an offset beyond 64 bits, a fraction, null,
the last of two entries), the value is refused here.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.options import SOURCE_OPTIONS, broker_read_options
from spindle.pipeline.options.limits import AtOffsets, AtPosition, AtTime, AtTimes, OffsetLimit
from spindle.pipeline.options.topics import Assign, Selection, Subscribe, SubscribePattern
from spindle.pipeline.options.unknown import unknown_options, warn_of_unknown_options
from spindle.pipeline.segments.options import parse_batch_options, parse_segment_options
from spindle.pipeline.streaming.options import stream_read_options
from spindle.protocol.sentinels import EARLIEST, LATEST

SERVERS = {"kafka.bootstrap.servers": "h:1"}
REQUIRED = SERVERS | {"subscribe": "a"}
A0, A1, A5 = (TopicPartition("a", number) for number in (0, 1, 5))
MAX_OFFSET = 2**63 - 1


def stream_read(given: Mapping[str, str]) -> Any:
    return stream_read_options(given).read


BATCHES: list[Callable[[Mapping[str, str]], Any]] = [
    broker_read_options,
    parse_segment_options,
    parse_batch_options,
]
every_source = pytest.mark.parametrize("parse", [*BATCHES, stream_read])


@every_source
@pytest.mark.parametrize(
    ("name", "value", "selection"),
    [
        ("subscribe", " a , b,,a", Subscribe(("a", "b"))),
        ("subscribePattern", " a.* ", SubscribePattern("a.*")),
        ("assign", ' {"a": [1, 0, 1]} ', Assign((A0, A1))),
    ],
)
def test_options_select_topics(
    parse: Callable[[Mapping[str, str]], Any], name: str, value: str, selection: Selection
) -> None:
    assert parse(SERVERS | {name: value}).selection == selection


@every_source
@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "want exactly one of the options assign, subscribe, subscribePattern; got none"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "got assign and subscribe"),
        ({"subscribe": " , "}, "option subscribe: no topic in ' , '"),
        ({"subscribePattern": " "}, "option subscribePattern is empty"),
        ({"subscribePattern": "("}, "option subscribePattern: '(' is not a regular expression"),
        ({"assign": "a"}, "option assign: want JSON like"),
        ({"assign": "{}"}, "option assign: no partition in '{}'"),
        ({"assign": '{"a": 0}'}, "option assign: want JSON like"),
        ({"assign": '{"a": [-1]}'}, "a has partition -1, want an integer from 0 to 2147483647"),
        ({"assign": '{"a": [2147483648]}'}, "a has partition 2147483648, want an integer from 0"),
        ({"assign": '{"a": [true]}'}, "a has partition True, want an integer"),
        ({"assign": '{"a": [0], "a": [1]}'}, "option assign: key 'a' is there twice in"),
    ],
)
def test_selections_that_are_refused(
    parse: Callable[[Mapping[str, str]], Any], given: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse(SERVERS | given)


@every_source
@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"startingOffsets": " Earliest "}, AtPosition(EARLIEST)),
        ({"startingOffsets": '{"a": {"0": 23, "1": -2}}'}, AtOffsets({A0: 23, A1: EARLIEST})),
        ({"startingOffsets": f'{{"a": {{"0": {MAX_OFFSET}}}}}'}, AtOffsets({A0: MAX_OFFSET})),
        ({"startingOffsets": '{"a": {"+1": 1, "05": 2}}'}, AtOffsets({A1: 1, A5: 2})),
        ({"startingOffsets": "{}"}, AtOffsets({})),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, AtTimes({A0: 5})),
        ({"startingTimestamp": " 7 "}, AtTime(7)),
        ({"startingTimestamp": "+7"}, AtTime(7)),
        ({"startingTimestamp": "٧"}, AtTime(7)),
        ({"startingTimestamp": str(MAX_OFFSET)}, AtTime(MAX_OFFSET)),
    ],
)
def test_options_set_the_start_of_a_read(
    parse: Callable[[Mapping[str, str]], Any], options: dict[str, str], limit: OffsetLimit
) -> None:
    assert parse(REQUIRED | options).start == limit


@every_source
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("", "option startingOffsets: want JSON like"),
        ("newest", "option startingOffsets: want JSON like"),
        ("null", "option startingOffsets: want JSON like"),
        ('{"a": [0]}', "option startingOffsets: want JSON like"),
        ('{"a": {"0": 1}} x', "option startingOffsets: want JSON like"),
        ('{"a": {"x": 1}}', "option startingOffsets: a has partition 'x', want an integer from 0"),
        ('{"a": {" 1": 1}}', "a has partition ' 1', want an integer from 0 to 2147483647"),
        ('{"a": {"2147483648": 1}}', "a has partition '2147483648', want an integer from 0"),
        ('{"a": {"0": -3}}', f"a-0 has -3, want an offset from 0 to {MAX_OFFSET}"),
        ('{"a": {"0": 9223372036854775808}}', "a-0 has 9223372036854775808, want an offset"),
        ('{"a": {"0": 1.5}}', "a-0 has 1.5, want an offset"),
        ('{"a": {"0": "1"}}', "a-0 has '1', want an offset"),
        ('{"a": {"0": true}}', "a-0 has True, want an offset"),
        ('{"a": {"0": null}}', "a-0 has None, want an offset"),
        ('{"a": {"0": 1, "0": 2}}', "option startingOffsets: key '0' is there twice in"),
        ('{"a": {"0": 1}, "a": {"1": 2}}', "option startingOffsets: key 'a' is there twice in"),
        ('{"a": {"1": 1, "+1": 2}}', "option startingOffsets: a-1 is there twice in"),
    ],
)  # fmt: skip
def test_offsets_that_are_refused(
    parse: Callable[[Mapping[str, str]], Any], value: str, complaint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse(REQUIRED | {"startingOffsets": value})


@every_source
@pytest.mark.parametrize(
    "text", ["", "-5", "5_0", "5.0", "yesterday", str(MAX_OFFSET + 1), "9" * 5000]
)
def test_times_that_are_refused(parse: Callable[[Mapping[str, str]], Any], text: str) -> None:
    complaint = "want milliseconds since 1970 as an integer from 0 to 9223372036854775807"
    with pytest.raises(ValueError, match=f"option startingTimestamp: .*{complaint}"):
        parse(REQUIRED | {"startingTimestamp": text})


@every_source
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsetsByTimestamp": '{"a": {"0": -5}}'},
         "option startingOffsetsByTimestamp: a-0: -5, want milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "'guess', want error or latest"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss: 'maybe', want true or false"),
        ({"failOnDataLoss": "True "}, "option failOnDataLoss: 'True ', want true or false"),
        ({"minPartitions": "0"}, "option minPartitions: 0, want 1 to 2147483647"),
        ({"minPartitions": "2147483648"}, "option minPartitions: 2147483648, want 1 to 2147483647"),
        ({"minPartitions": "many"}, "option minPartitions: 'many', want an integer from 1 to"),
        ({"minPartitions": " 5"}, "option minPartitions: ' 5', want an integer from 1 to"),
        ({"minTimestamp": "-1"}, f"option minTimestamp: -1, want 0 to {MAX_OFFSET}"),
        ({"isolationLevel": "x"},
         "option isolationLevel: 'x', want read_uncommitted or read_committed"),
        ({"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"},
         "options isolationLevel and kafka.isolation.level differ"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset is not supported"),
        ({"kafka.request.timeout.ms": "1_000"},
         "option kafka.request.timeout.ms is '1_000', want an integer from 1 to 2147483647"),
    ],
)  # fmt: skip
def test_malformed_values_are_refused(
    parse: Callable[[Mapping[str, str]], Any], options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse(REQUIRED | options)


@pytest.mark.parametrize("parse", BATCHES)
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: 'latest' makes no sense for a batch"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "a-0 has -1 (latest)"),
        ({"endingOffsets": "earliest"}, "endingOffsets: 'earliest' makes no sense for a batch"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "a-0 has -2 (earliest)"),
        ({"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 4}}'},
         "a-0 starts at 5, after its end 4"),
        ({"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"1": 9}}'},
         "only in the start: a-0; only in the end: a-1"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 9}}',
          "endingOffsetsByTimestamp": '{"a": {"1": 9}}'},
         "only in the start: a-0; only in the end: a-1"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "9 is after endingTimestamp 8"),
    ],
)  # fmt: skip
def test_limits_of_a_batch_that_are_refused(
    parse: Callable[[Mapping[str, str]], Any], options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parse(REQUIRED | options)


@pytest.mark.parametrize("parse", BATCHES)
@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, AtPosition(LATEST)),
        ({"endingOffsets": "LATEST"}, AtPosition(LATEST)),
        ({"endingOffsets": '{"a": {"0": -1}}'}, AtOffsets({A0: LATEST})),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 5}}'}, AtTimes({A0: 5})),
        ({"endingTimestamp": "7", "endingOffsets": "latest"}, AtTime(7)),
    ],
)
def test_options_set_the_end_of_a_read(
    parse: Callable[[Mapping[str, str]], Any], options: dict[str, str], limit: OffsetLimit
) -> None:
    assert parse(REQUIRED | options).stop == limit


def test_options_without_effect_are_reported_with_the_most_similar_option() -> None:
    given = REQUIRED | {
        "startingOffset": "earliest",
        "include_headers": "true",
        "path": "x",
        "kafka.securty.protocol": "SSL",
        "kafka.Group.Id": "known, and without effect",
        "kafka.anything": "y",
    }
    assert unknown_options(given, SOURCE_OPTIONS) == {
        "startingOffset": "startingOffsets",
        "include_headers": "includeHeaders",
        "path": None,
        "kafka.securty.protocol": "kafka.security.protocol",
        "kafka.anything": None,
    }


def test_a_process_warns_once_of_an_option() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(2):
            warn_of_unknown_options({"kafka.securty.protocol": "SSL"}, ())
    assert [str(warning.message) for warning in told] == [
        "option kafka.securty.protocol has no effect; is kafka.security.protocol meant?"
    ]
    assert [(warning.filename, warning.line) for warning in told] == [("spindle", None)]
