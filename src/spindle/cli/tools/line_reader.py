"""Lines of standard input as records, as `kafka-console-producer` reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from spindle.cli.tools.failures import ToolFailed
from spindle.protocol.records.builder import SimpleRecord

_KAFKA = "org.apache.kafka.common.KafkaException"


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The separators of headers, key and value in a line: `h1:v1,h2:v2 TAB key TAB value`."""

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    ignore_error: bool = False
    null_marker: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return the format that properties of the reader describe.

        Raises:
            ToolFailed: two separators are the same.
        """
        result = cls(
            parse_key=_flag(properties, "parse.key"),
            key_separator=properties.get("key.separator", "\t"),
            parse_headers=_flag(properties, "parse.headers"),
            headers_delimiter=properties.get("headers.delimiter", "\t"),
            headers_separator=properties.get("headers.separator", ","),
            headers_key_separator=properties.get("headers.key.separator", ":"),
            ignore_error=_flag(properties, "ignore.error"),
            null_marker=properties.get("null.marker"),
        )
        separators = (
            ("headers.delimiter", result.headers_delimiter),
            ("headers.separator", result.headers_separator),
            ("headers.key.separator", result.headers_key_separator),
        )
        for number, (name, text) in enumerate(separators):
            for other, same in separators[number + 1 :]:
                if text == same:
                    raise ToolFailed(f"{name} and {other} may not be equal", _KAFKA)
        return result

    def record(self, line: str, number: int, timestamp_ms: int) -> SimpleRecord:
        """Return the record of a line.

        Args:
            number: of the line, from 1.

        Raises:
            ToolFailed: a separator is missing, unless such errors are to be ignored.
        """
        left = line
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if self.parse_headers:
            text, left = self._split(left, self.headers_delimiter, "headers delimiter", number)
            headers = self._headers(text, number) if text is not None else ()
        key = None
        if self.parse_key:
            text, left = self._split(left, self.key_separator, "key separator", number)
            key = self._bytes(text)
        return SimpleRecord(key, self._bytes(left), timestamp_ms, headers)

    def _split(self, text: str, separator: str, name: str, number: int) -> tuple[str | None, str]:
        head, result, rest = text.partition(separator)
        if result:
            return head, rest
        if self.ignore_error:
            return None, text
        raise ToolFailed(f"No {name} found on line number {number}: '{text}'", _KAFKA)

    def _headers(self, text: str, number: int) -> tuple[tuple[str, bytes | None], ...]:
        headers: list[tuple[str, bytes | None]] = []
        if text == self.null_marker:
            return ()
        for pair in text.split(self.headers_separator):
            name, has_separator, value = pair.partition(self.headers_key_separator)
            if has_separator:
                headers.append((name, self._bytes(value)))
            elif self.ignore_error:
                headers.append((name, None))
            else:
                raise ToolFailed(
                    f"No header key separator found in pair '{pair}' on line number {number}",
                    _KAFKA,
                )
        return tuple(headers)

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None or (self.null_marker is not None and text == self.null_marker):
            return None
        return text.encode("utf-8", "surrogateescape")


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def key_values(texts: list[str]) -> dict[str, str]:
    """Return the properties of `key=value` texts; a key alone has an empty value."""
    pairs = (text.partition("=") for text in texts)
    return {key: value for key, _, value in pairs}
