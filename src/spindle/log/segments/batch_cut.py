"""Cut the bytes of a read at the end of the last whole batch."""

from struct import Struct
from typing import Final, NamedTuple

from spindle.common.errors import CorruptRecords
from spindle.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES

_OFFSET_AND_LENGTH: Final = Struct(">qi")


class WholeBatches(NamedTuple):
    """The end of the whole batches, and the start and base offset of the last one."""

    end: int
    last: int
    last_base_offset: int


def cut_at_batch(data: memoryview, end_offset: int) -> WholeBatches:
    """Return the part of `data` that consists of whole batches below `end_offset`.

    The caller guarantees that the first batch is whole and below `end_offset`. If a length is
    impossible, the batches before it are returned, so that readers get as far as the damage.

    Raises:
        CorruptRecords: the first bytes are not a batch.
    """
    position = 0
    last = 0
    last_base_offset = 0
    limit = len(data) - LOG_OVERHEAD_BYTES
    unpack = _OFFSET_AND_LENGTH.unpack_from
    while position <= limit:
        base_offset, length = unpack(data, position)
        if base_offset >= end_offset or position + length > limit:
            break
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            if position:
                break
            raise CorruptRecords(f"batch at byte {position} of a read: length {length}")
        last = position
        last_base_offset = base_offset
        position += length + LOG_OVERHEAD_BYTES
    return WholeBatches(position, last, last_base_offset)
