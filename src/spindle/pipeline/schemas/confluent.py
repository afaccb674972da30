"""Confluent's wire format: a zero byte, a schema id of four bytes (big endian), and the payload.

A Protobuf payload begins with the indexes of its message in the schema's file.
"""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spindle.pipeline.schemas.avro import AvroDecoder
from spindle.pipeline.schemas.decoding import (
    Decoded,
    Decoder,
    error_column,
    joined,
    merged_errors,
    spread,
    without_surrogates,
)
from spindle.pipeline.schemas.protobuf import ProtobufDecoder
from spindle.pipeline.schemas.registry import RegistrySettings, SchemaNotFound, schema_by_id

_MAGIC: Final = b"\0"
_HEADER_BYTES: Final = 5
_NO_HEADER: Final = "no Confluent wire format: want a zero byte and a schema id in front"

_OTHER_MESSAGE: Final = "the message indexes name another message"


@dataclass(frozen=True)
class ConfluentDecoder:
    """Takes the header off and hands the payload, whatever its schema id, to one decoder.

    This is right for JSON, whose values need no schema, and for Protobuf, whose messages are read
    with any version of their schema. `prefixes` are the bytes of which one must come first in the
    payload; they are taken off as well.
    """

    payload: Decoder
    prefixes: tuple[bytes, ...] = ()

    @property
    def type(self) -> Any:
        """The struct type of the rows."""
        return self.payload.type

    def decode(self, values: Any) -> Decoded:
        """Return a row for each value of a BinaryArray."""
        is_framed = _is_framed(values)
        decoded = self._decoded_payloads(_payloads(values.filter(is_framed)))
        return _with_unframed(spread(decoded, is_framed), values, is_framed)

    def _decoded_payloads(self, payloads: Any) -> Decoded:
        if not self.prefixes:
            return self.payload.decode(payloads)
        rest = [self._without_prefix(payload) for payload in payloads.to_pylist()]
        decoded = self.payload.decode(pa.array(rest, pa.binary()))
        missing = {row: _OTHER_MESSAGE for row, payload in enumerate(rest) if payload is None}
        errors = merged_errors(error_column(missing, len(rest)), decoded.errors)
        return Decoded(decoded.columns, errors)

    def _without_prefix(self, payload: bytes) -> bytes | None:
        for prefix in self.prefixes:
            if payload.startswith(prefix):
                return payload[len(prefix) :]
        return None


def confluent_protobuf(payload: ProtobufDecoder) -> ConfluentDecoder:
    """Return a decoder of framed messages of the type that `payload` reads."""
    indexes = payload.message_indexes()
    listed = b"".join(_zigzag(number) for number in (len(indexes), *indexes))
    return ConfluentDecoder(payload, (listed, b"\0") if indexes == (0,) else (listed,))


def _zigzag(number: int) -> bytes:
    """Return a number that is not negative as Avro and Protobuf write signed varints."""
    rest, encoded = number << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


@dataclass(frozen=True)
class ConfluentAvroDecoder:
    """Reads each value with the schema of its id, and gives rows of `reader_schema`.

    A schema id that the registry does not have makes a value bad. If the registry gives no answer,
    `decode` raises RegistryError: nothing is known about the values then.
    """

    registry: RegistrySettings
    reader_schema: str

    @property
    def type(self) -> Any:
        """The struct type of the rows."""
        return self._reader().type

    def _reader(self) -> AvroDecoder:
        return AvroDecoder(self.reader_schema)

    def decode(self, values: Any) -> Decoded:
        """Return a row for each value of a BinaryArray."""
        is_framed = _is_framed(values)
        decoded = self._framed(values.filter(is_framed))
        return _with_unframed(spread(decoded, is_framed), values, is_framed)

    def _framed(self, values: Any) -> Decoded:
        ids = pc.binary_slice(values, len(_MAGIC), _HEADER_BYTES).dictionary_encode()
        payloads = _payloads(values)
        parts, order = [], []
        for code, schema_id in enumerate(ids.dictionary.to_pylist()):
            rows = pc.indices_nonzero(pc.equal(ids.indices, code))
            parts.append(self._decoded(int.from_bytes(schema_id, "big"), payloads.take(rows)))
            order.append(rows)
        if not parts:
            return Decoded(pa.nulls(0, self.type), None)
        decoded = joined(parts)
        back = pc.sort_indices(pa.concat_arrays(order))
        errors = None if decoded.errors is None else decoded.errors.take(back)
        return Decoded(decoded.columns.take(back), errors)

    def _decoded(self, number: int, payloads: Any) -> Decoded:
        try:
            schema = schema_by_id(self.registry, number)
        except SchemaNotFound:
            return self._all_bad(payloads, f"the registry has no schema with the id {number}")
        if schema.kind != "AVRO":
            return self._all_bad(payloads, f"schema {number} is of type {schema.kind}, not AVRO")
        try:
            writer = AvroDecoder(schema.text, self.reader_schema)
        except ValueError as error:
            reason = without_surrogates(f"schema {number}: {error}")
            return self._all_bad(payloads, reason)
        return writer.decode(payloads)

    def _all_bad(self, payloads: Any, reason: str) -> Decoded:
        errors = pa.array([reason] * len(payloads), pa.string())
        return Decoded(pa.nulls(len(payloads), self.type), errors)


def _is_framed(values: Any) -> Any:
    """Return for each value whether it has a header; a null has none."""
    is_long = pc.greater_equal(pc.binary_length(values), _HEADER_BYTES)
    return pc.fill_null(pc.and_(is_long, pc.starts_with(values, pattern=_MAGIC)), False)


def _payloads(values: Any) -> Any:
    return pc.binary_replace_slice(values, 0, _HEADER_BYTES, b"")


def _with_unframed(decoded: Decoded, values: Any, is_framed: Any) -> Decoded:
    """Return the rows with a reason for each value that has no header."""
    is_bad = pc.and_not(values.is_valid(), is_framed)
    if not pc.any(is_bad, min_count=0).as_py():
        return decoded
    errors = pc.if_else(is_bad, _NO_HEADER, pa.scalar(None, pa.string()))
    return Decoded(decoded.columns, merged_errors(errors, decoded.errors))
