"""Producer state on disk: `<offset>.snapshot`, the state of all producers before that offset."""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from spindle.common.checksums import crc32c
from spindle.common.errors import CorruptLog
from spindle.common.ports import FileSystem
from spindle.log.producers.entry import BatchMetadata, ProducerStateEntry
from spindle.protocol.sentinels import NO_OFFSET

_HEAD: Final = Struct(">hIi")
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1
_CRC_COVERS_FROM: Final = 6


def encode_producer_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Return the content of a snapshot file."""
    rows = [_encode_entry(entry) for entry in entries]
    content = bytearray(_HEAD.pack(_VERSION, 0, len(rows)))
    content += b"".join(rows)
    crc = crc32c(memoryview(content)[_CRC_COVERS_FROM:])
    _HEAD.pack_into(content, 0, _VERSION, crc, len(rows))
    return bytes(content)


def _encode_entry(entry: ProducerStateEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    first_offset = entry.current_transaction_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_data_offset,
        last.offset_delta if last else 0,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        NO_OFFSET if first_offset is None else first_offset,
    )


def read_producer_snapshot(file_system: FileSystem, path: str) -> list[ProducerStateEntry]:
    """Return the producers in a snapshot file.

    Raises:
        CorruptLog: another version, a wrong checksum or a wrong size.
    """
    content = file_system.read_bytes(path)
    if len(content) < _HEAD.size:
        raise CorruptLog(path, 0, f"{len(content)} bytes, want at least {_HEAD.size}")
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise CorruptLog(path, 0, f"snapshot version {version}, expected {_VERSION}")
    computed = crc32c(memoryview(content)[_CRC_COVERS_FROM:])
    if computed != crc:
        raise CorruptLog(path, 2, f"stored crc {crc}, computed crc {computed}")
    if len(content) != _HEAD.size + count * _ENTRY.size:
        raise CorruptLog(path, 6, f"{count} producers in {len(content)} bytes")
    return [_decode_entry(row) for row in _ENTRY.iter_unpack(content[_HEAD.size :])]


def _decode_entry(row: tuple[int, ...]) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first = row
    batches: tuple[BatchMetadata, ...] = ()
    if last_offset >= 0:
        batches = (BatchMetadata(last_sequence, last_offset, delta, timestamp),)
    return ProducerStateEntry(
        producer_id,
        epoch,
        batches,
        timestamp,
        coordinator,
        None if first == NO_OFFSET else first,
    )
