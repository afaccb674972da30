"""Options of the `spindle` source against the rules of Spark's `kafka` source."""

import re

import pytest

from spindle.columnar.columns import ALL_COLUMNS, KAFKA_COLUMNS
from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.options import (
    BrokerReadOptions,
    broker_read_options,
)
from spindle.pipeline.options.limits import (
    AtPosition,
    AtTime,
    AtTimes,
    End,
    NoMatch,
    offset_limit,
)
from spindle.protocol.sentinels import EARLIEST, LATEST, READ_COMMITTED

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
    assert not options.is_read_committed


def test_case_of_option_names_does_not_matter() -> None:
    given = {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "a", "INCLUDEHEADERS": "TRUE"}
    assert broker_read_options(given).columns == ALL_COLUMNS


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
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition: -1"),
        ({"fetchMaxBytes": "10"}, "fetchMaxBytes: 10, want 1024 to"),
        ({"columns": "offset,size"}, "'size' is not a column"),
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
    assert read(**{"kafka.isolation.level": "READ_COMMITTED"}).is_read_committed


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
