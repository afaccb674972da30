"""Types and limits of values, and the messages of refused ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import ConfigError
from spindle.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    READ_ONLY,
    REQUIRED,
    SHORT,
    STRING,
    ConfigKey,
)
from spindle.config.topic_keys import TOPIC_KEYS
from spindle.config.validators import ListOf, OneOf, OneOfIgnoringCase, Range
from spindle.config.values import ConfigType, parse_type, text_of


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        (" TRUE ", BOOLEAN, True),
        ("false", BOOLEAN, False),
        (" +12 ", INT, 12),
        ("-2147483648", INT, -(2**31)),
        ("9223372036854775807", LONG, 2**63 - 1),
        ("-32768", SHORT, -32768),
        ("0.5", DOUBLE, 0.5),
        (".5", DOUBLE, 0.5),
        ("1e3", DOUBLE, 1000.0),
        ("1d", DOUBLE, 1.0),
        ("Infinity", DOUBLE, float("inf")),
        ("  x y ", STRING, "x y"),
        ("", LIST, ()),
        (" a , b,c ", LIST, ("a", "b", "c")),
        ("a,", LIST, ("a", "")),
    ],
)
def test_a_text_becomes_the_value_of_its_type(text: str, type: ConfigType, value: object) -> None:
    assert parse_type("k", text, type) == value


@pytest.mark.parametrize(
    ("text", "type", "reason"),
    [
        ("yes", BOOLEAN, "Expected value to be either true or false"),
        ("1_000", INT, "Not a number of type INT"),
        ("2147483648", INT, "Not a number of type INT"),
        ("1.0", LONG, "Not a number of type LONG"),
        ("", LONG, "Not a number of type LONG"),
        ("32768", SHORT, "Not a number of type SHORT"),
        ("0x10", DOUBLE, "Not a number of type DOUBLE"),
        ("infinity", DOUBLE, "Not a number of type DOUBLE"),
        ("", DOUBLE, "Not a number of type DOUBLE"),
    ],
)
def test_a_text_of_another_type_is_refused(text: str, type: ConfigType, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_type("k", text, type)
    assert str(caught.value) == f"Invalid value {text} for configuration k: {reason}"


# The messages of Apache Kafka 4.3.1.
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and "
            "9 or equal to -1",
        ),
        (
            "leader.replication.throttled.replicas",
            "*, 1:2",
            "Invalid value [*, 1:2] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas "
            "in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            "segment.bytes",
            "5",
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "cleanup.policy",
            "x",
            "Invalid value x for configuration cleanup.policy: String must be one of: compact, "
            "delete",
        ),
        ("cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more "
            "than 1",
        ),
        (
            "compression.type",
            "brotli",
            "Invalid value brotli for configuration compression.type: String must be one of: "
            "uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
    ],
)
def test_a_value_is_refused_with_kafkas_message(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TOPIC_KEYS[name].parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("leader.replication.throttled.replicas", "", ()),
        ("leader.replication.throttled.replicas", "0:1, 1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("compression.gzip.level", "-1", -1),
    ],
)
def test_a_value_within_the_limits_is_accepted(name: str, text: str, value: object) -> None:
    assert TOPIC_KEYS[name].parse(text) == value


def test_a_required_key_has_no_default() -> None:
    key = ConfigKey("k", INT, REQUIRED, None, READ_ONLY, "A number.")
    assert key.default_text() is None
    with pytest.raises(ConfigError, match='Missing required configuration "k" which has no'):
        key.default_value()


def test_a_list_may_be_empty_or_null_only_where_its_key_allows_it() -> None:
    with pytest.raises(ConfigError, match=r"must not be empty\. Valid values include: any non-"):
        ListOf(may_be_empty=False).check("k", ())
    with pytest.raises(ConfigError, match="'k' values must not be null"):
        ListOf().check("k", None)
    ListOf(may_be_null=True).check("k", None)


def test_only_one_of_ignoring_case_ignores_case() -> None:
    OneOfIgnoringCase("A").check("k", "a")
    with pytest.raises(ConfigError):
        OneOf("A").check("k", "a")


def test_a_range_describes_its_limits() -> None:
    assert str(Range(0)) == "[0,...]"
    assert str(Range(0, 0.5)) == "[0,...,0.5]"


# The texts that Java prints.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1e7, "1.0E7"),
        (1.5e7, "1.5E7"),
        (123456789.125, "1.23456789125E8"),
        (0.001, "0.001"),
        (0.0001234, "1.234E-4"),
        (1.0, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (9999999.0, "9999999.0"),
        (5e-324, "4.9E-324"),
        (1e21, "1.0E21"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-1e10, "-1.0E10"),
        (0.0, "0.0"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
        (True, "true"),
        (("a", "b"), "a,b"),
        (None, None),
    ],
)
def test_a_value_has_the_text_that_java_gives_it(value: Any, text: str | None) -> None:
    assert text_of(value) == text


@given(st.floats(allow_nan=False))
def test_a_double_is_read_back_from_its_text(value: float) -> None:
    text = text_of(value)
    assert text is not None
    assert parse_type("k", text, DOUBLE) == value
