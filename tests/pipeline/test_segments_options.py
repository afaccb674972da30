"""The options of `spindle-segments`, and bounds from pushed filters."""

import datetime
from dataclasses import dataclass
from typing import Any

import pytest

from spindle.columnar.columns import ALL_COLUMNS, KAFKA_COLUMNS, select_columns
from spindle.common.ids import TopicPartition
from spindle.pipeline.options.limits import AtPosition
from spindle.pipeline.segments.options import parse_segment_options
from spindle.pipeline.segments.pushdown import PushedFilters, narrow
from spindle.protocol.sentinels import EARLIEST, LATEST

BASE = {"logDirs": "/d", "subscribe": "t"}


def test_defaults_are_those_of_a_batch_read() -> None:
    options = parse_segment_options(BASE)
    assert (options.start, options.stop) == (AtPosition(EARLIEST), AtPosition(LATEST))
    assert options.columns == KAFKA_COLUMNS
    assert options.fail_on_data_loss
    assert not options.is_read_committed
    assert not options.start_is_explicit


def test_names_are_case_insensitive() -> None:
    options = parse_segment_options(
        {"LOGDIRS": "/d", "Subscribe": "t", "failondataloss": "FALSE", "INCLUDEHEADERS": "true"}
    )
    assert not options.fail_on_data_loss
    assert options.columns == ALL_COLUMNS


def test_a_start_is_explicit_if_an_option_names_it() -> None:
    assert parse_segment_options({**BASE, "STARTINGTIMESTAMP": "5"}).start_is_explicit
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert not parse_segment_options({**BASE, **strategy}).start_is_explicit


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"logDirs": ""}, "logDirs is missing"),
        ({"end": "now"}, "option end: 'now', want auto, checkpoint or logEnd"),
        ({"taskBytes": "0"}, "option taskBytes: 0, want 1 to"),
        (
            {"replica": str(2**31)},
            "replica: '2147483648', want leader, a broker's id from 0",
        ),
        ({"columns": "key,kee"}, "'kee' is not a column"),
        ({"columns": "key,KEY"}, "named twice"),
        ({"topicIds": '{"t":"abc"}'}, "topicIds: 'abc' is not an id"),
        ({"topicIds": '{"t":"abc","t":"d"}'}, "topicIds: key 't' is there twice"),
    ],
)
def test_wrong_options_are_named(changes: dict[str, str], finding: str) -> None:
    with pytest.raises(ValueError, match=finding):
        parse_segment_options({**BASE, **changes})


def test_a_pattern_is_found_anywhere_in_a_name_and_selects_no_internal_topic() -> None:
    topics = parse_segment_options({"logDirs": "/d", "subscribePattern": "top|__"}).selection
    names = ("topic", "a-topic", "a__b", "other", "__consumer_offsets", "__cluster_metadata")
    wanted = [name for name in names if topics.wants(TopicPartition(name, 0))]
    assert wanted == ["topic", "a-topic", "a__b"]
    for internal in ("__cluster_metadata", "__consumer_offsets"):
        named = parse_segment_options({"logDirs": "/d", "subscribe": internal}).selection
        assert named.wants(TopicPartition(internal, 0))


def test_columns_keep_the_order_asked_for() -> None:
    assert select_columns("offset, Key", include_headers=True) == ("offset", "key", "headers")


@dataclass
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


class In(EqualTo):
    pass


class GreaterThan(EqualTo):
    pass


class LessThanOrEqual(EqualTo):
    pass


class LessThan(EqualTo):
    pass


def moment(micros: int) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=micros)


def test_filters_narrow_each_other() -> None:
    filters = narrow(
        PushedFilters(),
        [
            EqualTo(("topic",), "t"),
            In(("partition",), (1, 2, None)),
            In(("partition",), (2, 3)),
            GreaterThan(("offset",), 9),
            LessThan(("offset",), 20),
            EqualTo(("key",), b"k"),
            EqualTo(("headers", "key"), "k"),
        ],
        KAFKA_COLUMNS,
    )
    assert filters == PushedFilters(frozenset(("t",)), frozenset((2,)), 10, 20)
    assert filters.wants(TopicPartition("t", 2))
    assert not filters.wants(TopicPartition("t", 1))


def test_filters_on_offsets_limit_the_read() -> None:
    assert (
        narrow(PushedFilters(), [LessThanOrEqual(("offset",), 20)], KAFKA_COLUMNS).end_offset == 21
    )
    both = narrow(PushedFilters(), [In(("offset",), (7, 3, None))], KAFKA_COLUMNS)
    assert (both.min_offset, both.end_offset) == (3, 8)
    assert narrow(PushedFilters(), [EqualTo(("offset",), None)], KAFKA_COLUMNS).end_offset == 0


def test_filters_on_fields_of_the_value_do_not_bound_the_record() -> None:
    """`columns=value` with `valueSchema=offset BIGINT, ...` has columns of these names, too."""
    filters = [
        EqualTo(("topic",), "news"),
        EqualTo(("partition",), 7),
        EqualTo(("offset",), 5),
        EqualTo(("timestamp",), moment(5000)),
    ]
    assert narrow(PushedFilters(), filters, ("value",)) == PushedFilters()
    assert narrow(PushedFilters(), filters[1:3], ("offset", "value")) == PushedFilters(
        min_offset=5, end_offset=6
    )


def test_bounds_on_times_keep_every_row_that_can_match() -> None:
    def bounds(item: EqualTo) -> tuple[int | None, int | None]:
        filters = narrow(PushedFilters(), [item], KAFKA_COLUMNS)
        return filters.min_timestamp_ms, filters.max_timestamp_ms

    assert bounds(GreaterThan(("timestamp",), moment(5000))) == (6, None)
    assert bounds(GreaterThan(("timestamp",), moment(5001))) == (6, None)
    assert bounds(LessThan(("timestamp",), moment(5000))) == (None, 4)
    assert bounds(LessThanOrEqual(("timestamp",), moment(5999))) == (None, 5)
    assert bounds(EqualTo(("timestamp",), moment(7000))) == (7, 7)
    assert bounds(GreaterThan(("timestamp",), moment(-1500))) == (-1, None)
