"""The format in which `kafka-console-consumer` prints a record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from spindle.cli.tools.failures import ToolFailed, UsageError
from spindle.client.blocking.reader import ConsumedRecord

DEFAULT_FORMATTER: Final = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_FORMATTERS: Final = (
    DEFAULT_FORMATTER,
    "org.apache.kafka.tools.consumer.LoggingMessageFormatter",
    "org.apache.kafka.tools.consumer.NoOpMessageFormatter",
)
_PACKAGE: Final = "org.apache.kafka.common.serialization."
_INTEGERS: Final = {"ShortDeserializer": 2, "IntegerDeserializer": 4, "LongDeserializer": 8}
_TEXTS: Final = ("StringDeserializer", "ByteArrayDeserializer")


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The printed parts of a record, and the separators between them, as bytes."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    delivery: bool = False
    epoch: bool = False
    headers: bool = False
    key: bool = False
    value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    key_type: str = ""
    value_type: str = ""
    header_type: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return the format that properties of the formatter describe.

        Raises:
            UsageError: a deserializer that is not known here.
        """

        def flag(name: str, default: str = "false") -> bool:
            return properties.get(f"print.{name}", default).strip().lower() == "true"

        def separator(name: str, default: str) -> bytes:
            return properties.get(name, default).encode("utf-8", "surrogateescape")

        return cls(
            timestamp=flag("timestamp"),
            partition=flag("partition"),
            offset=flag("offset"),
            delivery=flag("delivery"),
            epoch=flag("epoch"),
            headers=flag("headers"),
            key=flag("key"),
            value=flag("value", "true"),
            key_separator=separator("key.separator", "\t"),
            line_separator=separator("line.separator", "\n"),
            headers_separator=separator("headers.separator", ","),
            null_literal=separator("null.literal", "null"),
            key_type=_deserializer(properties.get("key.deserializer", "")),
            value_type=_deserializer(properties.get("value.deserializer", "")),
            header_type=_deserializer(properties.get("headers.deserializer", "")),
        )

    def line(self, record: ConsumedRecord) -> bytes:
        """Return one record as it is printed, with the end of its line.

        Raises:
            ToolFailed: a field does not have the form that its deserializer wants.
        """
        parts = []
        if self.timestamp:
            kind = "LogAppendTime" if record.has_append_time else "CreateTime"
            known = record.timestamp_ms >= 0
            parts.append(f"{kind}:{record.timestamp_ms}".encode() if known else b"NO_TIMESTAMP")
        if self.partition:
            parts.append(b"Partition:%d" % record.partition.partition)
        if self.offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.delivery:
            parts.append(b"Delivery:NOT_PRESENT")
        if self.epoch:
            parts.append(b"Epoch:%d" % record.leader_epoch)
        if self.headers:
            parts.append(self._headers(record))
        if self.key:
            parts.append(self._field(record.key, self.key_type))
        if self.value:
            parts.append(self._field(record.value, self.value_type))
        return self.key_separator.join(parts) + self.line_separator

    def _headers(self, record: ConsumedRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode() + b":" + self._field(value, self.header_type)
            for name, value in record.headers
        )

    def _field(self, data: bytes | None, type_name: str) -> bytes:
        if data is None:
            return self.null_literal
        size_bytes = _INTEGERS.get(type_name)
        if size_bytes is None:
            return data
        if len(data) != size_bytes:
            raise ToolFailed(
                f"Size of data received by {type_name} is not {size_bytes}",
                "org.apache.kafka.common.errors.SerializationException",
            )
        return str(int.from_bytes(data, "big", signed=True)).encode()


def _deserializer(name: str) -> str:
    short = name.strip().removeprefix(_PACKAGE)
    if short and short not in _INTEGERS and short not in _TEXTS:
        known = ", ".join((*_INTEGERS, *_TEXTS))
        raise UsageError(f"{name} is not known here; known deserializers: {known}")
    return short


def check_formatter(name: str) -> bool:
    """Return whether a formatter prints anything.

    Raises:
        UsageError: it is not known here.
    """
    if name not in _FORMATTERS:
        raise UsageError(f"{name} is not known here; known formatters: {', '.join(_FORMATTERS)}")
    return not name.endswith("NoOpMessageFormatter")
