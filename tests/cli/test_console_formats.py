"""The conversion of lines to records and of records to lines."""

import pytest

from spindle.cli.tools.failures import ToolFailed, UsageError
from spindle.cli.tools.line_reader import LineFormat, key_values
from spindle.cli.tools.record_format import DEFAULT_FORMATTER, RecordFormat, check_formatter
from spindle.client.blocking.reader import ConsumedRecord
from spindle.common.ids import TopicPartition

RECORD = ConsumedRecord(
    TopicPartition("t", 2), 7, 1500, False, 3, b"k", b"v", (("a", b"1"), ("b", None))
)


def test_a_line_is_a_value() -> None:
    record = LineFormat().record("a\tb", 1, 5)
    assert (record.key, record.value, record.timestamp_ms) == (None, b"a\tb", 5)


def test_headers_key_and_value() -> None:
    line_format = LineFormat.of(
        {"parse.key": "true", "parse.headers": "TRUE", "null.marker": "NULL"}
    )
    record = line_format.record("h:1,i:NULL\tk\tv", 1, 0)
    assert list(record.headers) == [("h", b"1"), ("i", None)]
    assert (record.key, record.value) == (b"k", b"v")
    record = line_format.record("NULL\tNULL\tNULL", 1, 0)
    assert (list(record.headers), record.key, record.value) == ([], None, None)


@pytest.mark.parametrize(
    ("properties", "line", "message"),
    [
        ({"parse.key": "true"}, "x", "No key separator found on line number 3: 'x'"),
        ({"parse.headers": "true"}, "x", "No headers delimiter found on line number 3: 'x'"),
        (
            {"parse.headers": "true"},
            "x\ty",
            "No header key separator found in pair 'x' on line number 3",
        ),
    ],
)
def test_lines_that_lack_a_separator(properties: dict[str, str], line: str, message: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        LineFormat.of(properties).record(line, 3, 0)
    assert caught.value.message == message
    assert LineFormat.of({**properties, "ignore.error": "true"}).record(line, 3, 0).value


def test_separators_that_clash_are_refused() -> None:
    with pytest.raises(ToolFailed, match=r"headers.separator and headers.key.separator may not"):
        LineFormat.of({"headers.separator": ":"})


def test_properties_of_a_command_line() -> None:
    assert key_values(["a=b=c", "d"]) == {"a": "b=c", "d": ""}


def test_all_fields_of_a_record_are_printed() -> None:
    names = ("timestamp", "partition", "offset", "epoch", "headers", "key")
    record_format = RecordFormat.of(
        {f"print.{name}": "true" for name in names} | {"key.separator": "|"}
    )
    assert record_format.line(RECORD) == (
        b"CreateTime:1500|Partition:2|Offset:7|Epoch:3|a:1,b:null|k|v\n"
    )
    bare = RECORD._replace(timestamp_ms=-1, headers=(), key=None)
    assert (
        record_format.line(bare) == b"NO_TIMESTAMP|Partition:2|Offset:7|Epoch:3|NO_HEADERS|null|v\n"
    )
    assert record_format.line(RECORD._replace(has_append_time=True)).startswith(
        b"LogAppendTime:1500|"
    )


def test_numbers_are_printed_by_their_deserializer() -> None:
    name = "org.apache.kafka.common.serialization.LongDeserializer"
    record_format = RecordFormat.of({"value.deserializer": name})
    assert (
        record_format.line(RECORD._replace(value=(-2).to_bytes(8, "big", signed=True))) == b"-2\n"
    )
    with pytest.raises(ToolFailed, match="Size of data received by LongDeserializer is not 8"):
        record_format.line(RECORD)


def test_classes_that_are_not_known() -> None:
    with pytest.raises(UsageError, match=r"my.Deserializer is not known here"):
        RecordFormat.of({"key.deserializer": "my.Deserializer"})
    with pytest.raises(UsageError, match=r"my.Formatter is not known here"):
        check_formatter("my.Formatter")
    assert check_formatter(DEFAULT_FORMATTER)
    assert not check_formatter("org.apache.kafka.tools.consumer.NoOpMessageFormatter")
