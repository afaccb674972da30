"""Options of the `spindle` source against the rules of Spark's `kafka` source."""

import re

import pytest

from spindle.client.offsets import EARLIEST, LATEST, READ_COMMITTED
from spindle.common.ids import TopicPartition
from spindle.pipeline.records.columns import ALL_COLUMNS, KAFKA_COLUMNS
from spindle.pipeline.sources.broker_limits import (
    AtOffsets,
    AtPosition,
    AtTime,
    AtTimes,
    End,
    NoMatch,
    OffsetLimit,
    offset_limit,
)
from spindle.pipeline.sources.broker_options import (
    Assign,
    BrokerReadOptions,
    Selection,
    Subscribe,
    SubscribePattern,
    broker_read_options,
    misspelt_options,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
REQUIRED = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def read(**options: str) -> BrokerReadOptions:
    return broker_read_options(REQUIRED | options)


def test_defaults_are_those_of_the_built_in_source() -> None:
    options = read()
    assert options.start == AtPosition(EARLIEST)
    assert options.stop == AtPosition(LATEST)
    assert options.no_match is NoMatch.ERROR
    assert options.columns == KAFKA_COLUMNS
    assert options.fail_on_data_loss
    assert options.min_partitions is None
    assert options.max_records_per_partition is None
    assert options.stall_timeout_ms == 120_000
    assert (options.offset_retries, options.offset_retry_interval_ms) == (3, 1000)
    assert not options.reads_committed


def test_case_of_option_names_does_not_matter() -> None:
    given = {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "a", "INCLUDEHEADERS": "TRUE"}
    assert broker_read_options(given).columns == ALL_COLUMNS


@pytest.mark.parametrize(
    ("name", "value", "selection"),
    [
        ("subscribe", " a , b,,a", Subscribe(("a", "b"))),
        ("subscribePattern", " a.* ", SubscribePattern("a.*")),
        ("assign", '{"a": [1, 0, 1]}', Assign((A0, A1))),
    ],
)
def test_selections(name: str, value: str, selection: Selection) -> None:
    options = broker_read_options({"kafka.bootstrap.servers": "h:1", name: value})
    assert options.selection == selection


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "got none"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "got assign and subscribe"),
        ({"subscribe": " , "}, "no topic in ' , '"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        ({"subscribePattern": "("}, "'(' is no regular expression"),
        ({"assign": "a"}, "want JSON like"),
        ({"assign": "{}"}, "want JSON like"),
        ({"assign": '{"a": 0}'}, "want JSON like"),
        ({"assign": '{"a": [-1]}'}, "want JSON like"),
        ({"assign": '{"a": [true]}'}, "want JSON like"),
    ],
)
def test_bad_selections(given: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        broker_read_options({"kafka.bootstrap.servers": "h:1"} | given)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, AtPosition(EARLIEST)),
        ({"startingoffsets": " Earliest "}, AtPosition(EARLIEST)),
        ({"startingoffsets": '{"a": {"0": 23, "1": -2}}'}, AtOffsets({A0: 23, A1: EARLIEST})),
        ({"startingoffsetsbytimestamp": '{"a": {"0": 5}}'}, AtTimes({A0: 5})),
        ({"startingtimestamp": " 7 "}, AtTime(7)),
    ],
)
def test_starts(options: dict[str, str], limit: OffsetLimit) -> None:
    assert offset_limit(options, End.START) == limit


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, AtPosition(LATEST)),
        ({"endingoffsets": "LATEST"}, AtPosition(LATEST)),
        ({"endingoffsets": '{"a": {"0": -1}}'}, AtOffsets({A0: LATEST})),
        ({"endingoffsetsbytimestamp": '{"a": {"0": 5}}'}, AtTimes({A0: 5})),
        ({"endingtimestamp": "7"}, AtTime(7)),
    ],
)
def test_ends(options: dict[str, str], limit: OffsetLimit) -> None:
    assert offset_limit(options, End.STOP) == limit


def test_one_timestamp_wins_over_timestamps_over_offsets() -> None:
    options = {
        "startingtimestamp": "7",
        "startingoffsetsbytimestamp": '{"a": {"0": 5}}',
        "startingoffsets": "earliest",
    }
    assert offset_limit(options, End.START) == AtTime(7)
    del options["startingtimestamp"]
    assert offset_limit(options, End.START) == AtTimes({A0: 5})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: 'latest' makes no sense"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "a-0 has -1 (latest)"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "offset -3, want at least 0"),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "want JSON like"),
        ({"startingOffsets": '{"a": {"0": 1.5}}'}, "want JSON like"),
        ({"startingOffsets": '{"a": {"0": "1"}}'}, "want JSON like"),
        ({"startingOffsets": '{"a": [0]}'}, "want JSON like"),
        ({"startingOffsets": "newest"}, "want JSON like"),
        ({"startingTimestamp": "yesterday"}, "want milliseconds"),
        ({"endingOffsets": "earliest"}, "endingOffsets: 'earliest' makes no sense"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "a-0 has -2 (earliest)"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "want error or latest"),
        (
            {"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 4}}'},
            "a-0 starts at 5, after its end 4",
        ),
        (
            {"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"1": 9}}'},
            "only in the start: a-0; only in the end: a-1",
        ),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "9 is after endingTimestamp 8"),
    ],
)
def test_bad_limits(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read(**options)


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_properties_that_the_built_in_source_refuses(name: str) -> None:
    with pytest.raises(ValueError, match=f"kafka.{name} is not supported"):
        read(**{f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe', want true or false"),
        ({"minPartitions": "0"}, "minPartitions: 0, want 1 to"),
        ({"minPartitions": "many"}, "'many', want an integer"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition: -1"),
        ({"fetchMaxBytes": "10"}, "fetchMaxBytes: 10, want 1024 to"),
        ({"columns": "offset,size"}, "'size' is not a column"),
        ({"isolationLevel": "x"}, "kafka.isolation.level is 'x'"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol is 'TLS'"),
        ({"kafka.bootstrap.servers": "h"}, "kafka.bootstrap.servers has 'h'"),
    ],
)
def test_bad_values_name_option_value_and_limit(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read(**options)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ValueError, match=re.escape("kafka.bootstrap.servers is missing")):
        broker_read_options({"subscribe": "a"})


def test_isolation_level_by_either_name() -> None:
    assert read(isolationLevel="read_committed").isolation_level == READ_COMMITTED
    assert read(**{"kafka.isolation.level": "READ_COMMITTED"}).reads_committed


def test_options_of_streams_and_groups_have_no_effect() -> None:
    extra = {
        "groupIdPrefix": "g",
        "kafka.group.id": "g",
        "maxOffsetsPerTrigger": "5",
        "minOffsetsPerTrigger": "1",
        "maxTriggerDelay": "1m",
    }
    assert read(**extra) == read()


def test_fetch_size_by_option_before_property() -> None:
    assert read(**{"kafka.fetch.max.bytes": "2048"}).fetch_max_bytes == 2048
    assert read(fetchMaxBytes="4096", **{"kafka.fetch.max.bytes": "2048"}).fetch_max_bytes == 4096


def test_options_that_look_like_another_are_told() -> None:
    given = REQUIRED | {
        "startingOffset": "earliest",
        "include_headers": "true",
        "path": "x",
        "startingOffsets": "earliest",
        "kafka.anything": "y",
    }
    assert misspelt_options(given) == {
        "startingOffset": "startingOffsets",
        "include_headers": "includeHeaders",
    }
