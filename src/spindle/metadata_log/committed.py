"""Decoding of batches of the metadata log into the records that listeners get."""

from collections.abc import Iterator
from typing import NamedTuple

from spindle.common.errors import CorruptRecords
from spindle.common.ports import Bytes
from spindle.protocol.message import Message
from spindle.protocol.metadata_frame import parse_frame
from spindle.protocol.records.batch import BatchHeader, batches
from spindle.protocol.records.record import decode_records


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


def decode_batch(records: Bytes, position: int, header: BatchHeader) -> CommittedBatch:
    """Decode one batch. A control batch of the quorum has no records for listeners."""
    messages = []
    if not header.is_control:
        for record in decode_records(records, position, header):
            if record.value is None:
                raise CorruptRecords(f"metadata record at offset {record.offset} has no value")
            messages.append(parse_frame(record.value)[0])
    return CommittedBatch(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.max_timestamp,
        header.size_bytes,
        messages,
    )
