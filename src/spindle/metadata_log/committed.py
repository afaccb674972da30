"""Decoding of batches of the metadata log into the records that listeners get."""

from collections.abc import Iterator
from typing import NamedTuple

from spindle.common.errors import CorruptRecords
from spindle.common.ports import Bytes
from spindle.protocol.message import Message
from spindle.protocol.metadata_frame import parse_frame
from spindle.protocol.records.batch import BatchHeader, batches
from spindle.protocol.records.record import decode_values


class CommittedBatch(NamedTuple):
    """One batch of the metadata log below the high watermark.

    A control batch of the quorum has no records: it only moves the offset. All listeners of a node
    share the records and must not change them.
    """

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    size_bytes: int
    records: list[Message]


def decode_batches(records: Bytes) -> Iterator[CommittedBatch]:
    """Yield the whole batches of `records`, decoded.

    Raises:
        CorruptRecords: a batch or a metadata record does not parse.
    """
    for position, header in batches(records):
        yield decode_batch(records, position, header)


def metadata_values(records: Bytes, position: int, header: BatchHeader) -> list[bytes]:
    """Return the framed metadata records of a batch that is no control batch.

    Raises:
        CorruptRecords: the batch does not parse, or a value is null.
    """
    values: list[bytes] = []
    for delta, value in enumerate(decode_values(records, position, header)):
        if value is None:
            offset = header.base_offset + delta
            raise CorruptRecords(f"metadata record at offset {offset} has no value")
        values.append(value)
    return values


def decode_batch(records: Bytes, position: int, header: BatchHeader) -> CommittedBatch:
    """Decode one batch. A control batch of the quorum has no records for listeners."""
    messages: list[Message] = []
    if not header.is_control:
        values = metadata_values(records, position, header)
        messages = [parse_frame(value)[0] for value in values]
    return CommittedBatch(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.max_timestamp,
        header.size_bytes,
        messages,
    )
