"""Select the batches of an append, and assign their offsets and epochs."""

from collections.abc import Sequence

from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.log.errors import UnexpectedAppendOffset
from spindle.protocol.records.batch import (
    BatchHeader,
    batches,
    check_crc,
    patch_offset_and_epoch,
)


def writable(records: Bytes) -> bytearray | memoryview:
    """Return the same buffer if it can be written to, else a copy."""
    if isinstance(records, bytearray):
        return records
    if isinstance(records, memoryview) and not records.readonly:
        return records
    return bytearray(records)


def place_batches(
    buffer: bytearray | memoryview,
    found: Sequence[tuple[int, BatchHeader]],
    first_offset: int,
    leader_epoch: int,
) -> list[tuple[int, BatchHeader]]:
    """Give consecutive offsets from `first_offset` and the leader's epoch to batches, in place."""
    placed: list[tuple[int, BatchHeader]] = []
    next_offset = first_offset
    for position, header in found:
        patch_offset_and_epoch(buffer, position, next_offset, leader_epoch)
        patched = tuple.__new__(BatchHeader, (next_offset, header[1], leader_epoch, *header[3:]))
        placed.append((position, patched))
        next_offset += header.last_offset_delta + 1
    return placed


def follower_batches(
    records: Bytes, leader_epoch: int, log_end_offset: int, topic_partition: TopicPartition
) -> tuple[list[tuple[int, BatchHeader]], int]:
    """Return the batches that a follower of `leader_epoch` appends, and how many bytes they have.

    Raises:
        CorruptRecords: a checksum is wrong or offsets do not ascend.
        UnexpectedAppendOffset: the first batch begins below the log end.
    """
    accepted: list[tuple[int, BatchHeader]] = []
    end = 0
    next_offset = log_end_offset
    for position, header in batches(records):
        if header.leader_epoch > leader_epoch:
            break
        check_crc(records, position, header)
        if header.base_offset < next_offset and accepted:
            raise CorruptRecords(
                f"batch with base offset {header.base_offset} follows a later one in the append to "
                f"{topic_partition}"
            )
        if header.base_offset < next_offset:
            raise UnexpectedAppendOffset(
                topic_partition, header.base_offset, header.last_offset, log_end_offset
            )
        next_offset = header.next_offset
        accepted.append((position, header))
        end = position + header.size_bytes
    return accepted, end
