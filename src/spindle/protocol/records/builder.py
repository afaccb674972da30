"""Build record batches, for coordinators, the metadata log, tools and compaction."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from spindle.common.checksums import crc32c
from spindle.common.ports import Bytes
from spindle.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AND_ATTRIBUTES,
    CRC_COVERS_FROM,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from spindle.protocol.records.compression import compress
from spindle.protocol.records.record import Record, RecordHeaders, encode_record
from spindle.protocol.sentinels import NO_TIMESTAMP

_NO_HEADERS: Final = b"\0"


class SimpleRecord(NamedTuple):
    """A record without an offset. Timestamp in ms since the epoch, -1 for none."""

    key: Bytes | None = None
    value: Bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: RecordHeaders = ()


def build_batch(
    records: Sequence[SimpleRecord],
    base_offset: int = 0,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Return a batch of records with consecutive offsets from `base_offset`.

    With `log_append_time_ms` every record of the batch has that time; the records' own timestamps
    stay in the bytes, but readers do not use them.

    Raises:
        ValueError: no record, or an undefined codec.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = records[0].timestamp_ms
    max_timestamp = max(record.timestamp_ms for record in records)
    body = b"".join(
        [
            encode_record(
                delta,
                record.timestamp_ms - base_timestamp,
                record.key,
                record.value,
                record.headers,
            )
            for delta, record in enumerate(records)
        ]
    )
    attributes = codec | is_transactional * TRANSACTIONAL_FLAG | is_control * CONTROL_FLAG
    if log_append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE_FLAG
        max_timestamp = log_append_time_ms
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return seal_batch(header, compress(codec, body))


def build_batch_of_values(
    values: Sequence[bytes], timestamp_ms: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """Return the batch that `build_batch` returns for records that have these values only.

    Raises:
        ValueError: no value.
    """
    if not values:
        raise ValueError("a batch has at least one record")
    parts: list[bytes] = []
    for delta, value in enumerate(values):
        parts += (_head_of_value(delta, len(value)), value, _NO_HEADERS)
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        0,
        len(values) - 1,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        len(values),
    )
    return seal_batch(header, b"".join(parts))


@lru_cache(maxsize=1 << 14)
def _head_of_value(offset_delta: int, value_bytes: int) -> bytes:
    """Return what stands before the value in a record that has nothing else."""
    record = encode_record(offset_delta, 0, None, bytes(value_bytes))
    return record[: -value_bytes - len(_NO_HEADERS)]


def rebuild_batch(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    codec: int | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return the batch of `header` with `records` as its content.

    Base offset, last offset, epochs, producer fields, flags and the type of timestamp stay, so that
    a batch that lost records to compaction still covers the same offsets. (For a batch without any
    record left see `empty_batch`.) The delete horizon of the header stays unless a new one is
    given. `level` is the codec's, see `compress`.
    """
    if not records:
        return empty_batch(header)
    horizon_ms = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    attributes = header.attributes if codec is None else header.attributes & ~CODEC_MASK | codec
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
        base_timestamp = horizon_ms
    else:
        base_timestamp = records[0].timestamp_ms
    max_timestamp = header.max_timestamp
    if not header.has_log_append_time:
        max_timestamp = max(record.timestamp_ms for record in records)
    body = b"".join(
        [
            encode_record(
                record.offset - header.base_offset,
                record.timestamp_ms - base_timestamp,
                record.key,
                record.value,
                record.headers,
            )
            for record in records
        ]
    )
    rebuilt = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    return seal_batch(rebuilt, compress(rebuilt.codec, body, level))


def empty_batch(header: BatchHeader) -> bytes:
    """Return a batch without records that covers the offsets and producer sequences of `header`.

    It is not compressed, and has no base timestamp and no delete horizon.
    """
    emptied = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return seal_batch(emptied, b"")


def seal_batch(header: BatchHeader, payload: Bytes) -> bytes:
    """Return header and (compressed) records as one batch; compute its length and CRC."""
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)
    batch = bytearray(HEADER.pack(*header._replace(batch_length=length, magic=MAGIC, crc=0)))
    batch += payload
    crc = crc32c(memoryview(batch)[CRC_COVERS_FROM:])
    CRC_AND_ATTRIBUTES.pack_into(batch, CRC_POSITION, crc, header.attributes)
    return bytes(batch)
