"""The record batch of format version 2 (magic 2): its header, its checksum, and patches of both.

The data plane reads only these 61 bytes and checks the CRC. The CRC does not cover base offset,
batch length, partition leader epoch and magic, so a leader sets offset and epoch without
recomputing it; it covers timestamp type and maximum timestamp. (KIP-98, KIP-32; delete horizon:
KIP-534.)
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from spindle.common.checksums import crc32c
from spindle.common.errors import CorruptRecords
from spindle.common.ports import Bytes

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""The size of base offset and batch length, which `batch_length` does not count."""
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_COVERS_FROM: Final = 21

HEADER: Final = Struct(">qiibIhiqqqhii")
CRC_AND_ATTRIBUTES: Final = Struct(">Ih")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT32: Final = Struct(">I")
_INT16: Final = Struct(">h")
_MAX_TIMESTAMP_POSITION: Final = 35
_MAX_SEQUENCE: Final = 2**31 - 1


class BatchHeader(NamedTuple):
    """The fixed part of a batch, field by field as on the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch in bytes, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record as produced; compaction may have removed the record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are undefined."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_log_append_time(self) -> bool:
        """True if the timestamp of all records is `max_timestamp`, the time of the append."""
        return self.attributes & TIMESTAMP_TYPE_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time at which tombstones and markers may be removed (stored as the base timestamp)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; after 2**31-1 comes 0. -1 without a sequence."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE


def add_to_sequence(sequence: int, increment: int) -> int:
    """Add to a producer sequence; after 2**31-1 comes 0."""
    return (sequence + increment) & _MAX_SEQUENCE


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Return the header at `position`.

    Raises:
        CorruptRecords: fewer than 61 bytes are left, or the magic is not 2, or the length is
            too small for a batch. Nothing else is checked (see `check_crc`).
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptRecords(
            f"batch at byte {position}: {len(buffer) - position} bytes are left, "
            f"a header has {HEADER_BYTES}"
        )
    # Without the checks of `_make`: the structure has as many fields as the header.
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptRecords(f"batch at byte {position}: magic {header.magic}, expected {MAGIC}")
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise CorruptRecords(
            f"batch at byte {position}: length {header.batch_length} is below the minimum "
            f"{HEADER_BYTES - LOG_OVERHEAD_BYTES}"
        )
    return header


def batches(
    buffer: Bytes, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of the whole batches in `buffer[position:end]`.

    Stop silently before a batch that is not complete, because a fetch may end within one.

    Raises:
        CorruptRecords: as `read_header`.
    """
    limit = len(buffer) if end is None else end
    while limit - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        next_position = position + header.batch_length + LOG_OVERHEAD_BYTES
        if next_position > limit:
            return
        yield position, header
        position = next_position


def computed_crc(buffer: Bytes, position: int, header: BatchHeader) -> int:
    """Return the CRC-32C of the batch's bytes; of `header` only their count is used."""
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    checksum: int = crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : end])
    return checksum


def check_crc(buffer: Bytes, position: int, header: BatchHeader) -> None:
    """Raise CorruptRecords unless the stored checksum is that of the batch's bytes."""
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    checksum = crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : end])
    if checksum != header.crc:
        raise CorruptRecords(
            f"batch with base offset {header.base_offset} at byte {position}: "
            f"stored crc {header.crc}, computed crc {checksum}"
        )


def patch_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write the leader's base offset and partition leader epoch, which the CRC does not cover."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def patch_timestamp(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    max_timestamp_ms: int,
    *,
    is_log_append_time: bool,
) -> BatchHeader:
    """Write timestamp type, maximum timestamp and the new checksum; return the new header."""
    if is_log_append_time:
        attributes = header.attributes | TIMESTAMP_TYPE_FLAG
    else:
        attributes = header.attributes & ~TIMESTAMP_TYPE_FLAG
    _INT16.pack_into(buffer, position + CRC_COVERS_FROM, attributes)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    crc = computed_crc(buffer, position, header)
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp_ms, crc=crc)
