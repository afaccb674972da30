"""Single records: decoded only where something looks into them (tools, compaction, coordinators).

Header keys are text. Bytes that are no UTF-8 are carried through as surrogate escapes, so that a
record which is decoded and encoded again keeps every byte.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from spindle.common.errors import CorruptRecords
from spindle.common.ports import Bytes
from spindle.protocol.records.batch import HEADER_BYTES, NO_SEQUENCE, BatchHeader, add_to_sequence
from spindle.protocol.records.compression import DEFAULT_LIMIT_BYTES, decompress
from spindle.protocol.records.varint import read_varint, read_varlong, varint_bytes, write_varint

RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]

_MIN_RECORD_BYTES: Final = 7


class Record(NamedTuple):
    """One record of a log. Timestamp in ms or -1; sequence -1 without an idempotent producer."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()
    sequence: int = NO_SEQUENCE


def decode_records(
    buffer: Bytes,
    position: int,
    header: BatchHeader,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> list[Record]:
    """All records of the batch at `position`, in order of their offsets as stored.

    Raises:
        CorruptRecords: the records do not parse exactly, or unpack to more than `limit_bytes`.
    """
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptRecords(f"batch at byte {position} ends at {end}, past {len(buffer)} bytes")
    payload = memoryview(buffer)[position + HEADER_BYTES : end]
    data = bytes(decompress(header.codec, payload, limit_bytes))
    count = header.record_count
    if not 0 <= count <= len(data) // _MIN_RECORD_BYTES:
        raise CorruptRecords(
            f"batch with base offset {header.base_offset}: {count} records in {len(data)} bytes"
        )
    records: list[Record] = []
    at = 0
    for _ in range(count):
        record, at = _decode_record(data, at, header)
        records.append(record)
    if at != len(data):
        raise CorruptRecords(
            f"batch with base offset {header.base_offset}: {len(data) - at} bytes follow the last "
            f"of {count} records"
        )
    return records


def _decode_record(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, at = read_varint(data, position)
    end = at + length
    if length < _MIN_RECORD_BYTES - 1 or end > len(data):
        raise CorruptRecords(f"record at byte {position}: length {length}, {len(data) - at} left")
    timestamp_delta, at = read_varlong(data, at + 1)
    offset_delta, at = read_varint(data, at)
    key, at = _read_field(data, at, end)
    value, at = _read_field(data, at, end)
    header_count, at = read_varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    if header_count:
        headers, at = _decode_headers(data, at, end, header_count)
    if at != end:
        raise CorruptRecords(f"record at byte {position}: fields end at {at}, the record at {end}")
    timestamp = header.base_timestamp + timestamp_delta
    sequence = header.base_sequence
    return Record(
        header.base_offset + offset_delta,
        header.max_timestamp if header.has_log_append_time else timestamp,
        key,
        value,
        headers,
        add_to_sequence(sequence, offset_delta) if sequence >= 0 else NO_SEQUENCE,
    ), end


def _decode_headers(
    data: bytes, position: int, end: int, count: int
) -> tuple[list[tuple[str, bytes | None]], int]:
    if not 0 <= count <= end - position:
        raise CorruptRecords(f"record headers at byte {position}: count {count}")
    headers: list[tuple[str, bytes | None]] = []
    at = position
    for _ in range(count):
        key, at = _read_field(data, at, end)
        if key is None:
            raise CorruptRecords(f"record header at byte {at}: null key")
        value, at = _read_field(data, at, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return headers, at


def _read_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, position)
    if length < 0:
        if length != -1:
            raise CorruptRecords(f"field at byte {position}: length {length}")
        return None, at
    if at + length > end:
        raise CorruptRecords(f"field at byte {position}: length {length}, {end - at} bytes left")
    return data[at : at + length], at + length


def encode_record(
    output: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Bytes | None,
    value: Bytes | None,
    headers: RecordHeaders = (),
) -> None:
    """Append one record in the format of a version 2 batch."""
    encoded_headers = [
        (name.encode("utf-8", "surrogateescape"), content) for name, content in headers
    ]
    length = (
        1
        + varint_bytes(timestamp_delta)
        + varint_bytes(offset_delta)
        + _field_bytes(key)
        + _field_bytes(value)
        + varint_bytes(len(encoded_headers))
    )
    for name, content in encoded_headers:
        length += _field_bytes(name) + _field_bytes(content)
    write_varint(output, length)
    output.append(0)
    write_varint(output, timestamp_delta)
    write_varint(output, offset_delta)
    _write_field(output, key)
    _write_field(output, value)
    write_varint(output, len(encoded_headers))
    for name, content in encoded_headers:
        _write_field(output, name)
        _write_field(output, content)


def _field_bytes(field: Bytes | None) -> int:
    return 1 if field is None else varint_bytes(len(field)) + len(field)


def _write_field(output: bytearray, field: Bytes | None) -> None:
    if field is None:
        output.append(1)  # zig-zag of -1
        return
    write_varint(output, len(field))
    output += field
