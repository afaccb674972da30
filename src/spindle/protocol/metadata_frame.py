"""The frame around a metadata record: frame version, record type, record version (KIP-631)."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from spindle.common.errors import CorruptRecords, ProtocolViolation, UnsupportedMetadata
from spindle.common.ports import Bytes
from spindle.protocol.codec import decode, encode, read_uvarint, write_uvarint
from spindle.protocol.message import Message
from spindle.protocol.messages import metadata_records

_FRAME_VERSION: Final = 1

RECORD_TYPES: Final[dict[int, type[Message]]] = {
    cls.API_KEY: cls
    for cls in vars(metadata_records).values()
    if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message
}


def frame(record: Message, version: int) -> bytes:
    """Return the value of a metadata record in the log."""
    return encode(record, version, _head(record.API_KEY, version))


@cache
def _head(record_type: int, version: int) -> bytes:
    out = bytearray((_FRAME_VERSION,))
    write_uvarint(out, record_type)
    write_uvarint(out, version)
    return bytes(out)


def parse_frame(
    data: Bytes, record_types: Mapping[int, type[Message]] = RECORD_TYPES
) -> tuple[Message, int]:
    """Return the record and its version.

    Args:
        record_types: the classes that may be inside, by their type; Kafka frames the records of
            remote storage in the same way (KIP-405).

    Raises:
        CorruptRecords: frame version 0, or the bytes are not those of the record.
        UnsupportedMetadata: the frame, the type or the version of the record is not known.
    """
    try:
        frame_version, position = read_uvarint(data, 0)
        key, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
        if frame_version == 0:
            raise CorruptRecords("metadata frame version 0, only 1 is known")
        cls = _known_class(frame_version, key, version, record_types)
        record, end = decode(cls, version, data, position)
    except UnsupportedMetadata:
        raise
    except (ProtocolViolation, IndexError) as error:
        raise CorruptRecords(f"metadata record: {error}") from None
    if end != len(data):
        raise CorruptRecords(f"{cls.__name__}: {len(data) - end} bytes left over")
    return record, version


def _known_class(
    frame_version: int, key: int, version: int, record_types: Mapping[int, type[Message]]
) -> type[Message]:
    if frame_version > _FRAME_VERSION:
        raise UnsupportedMetadata(
            f"metadata frame version {frame_version} is newer than this release: it knows "
            f"{_FRAME_VERSION}"
        )
    cls = record_types.get(key)
    if cls is None:
        raise UnsupportedMetadata(f"metadata record type {key} is unknown to this release")
    if not cls.FIRST_VERSION <= version <= cls.LAST_VERSION:
        raise UnsupportedMetadata(
            f"{cls.__name__} version {version} is unknown to this release: it knows "
            f"{cls.FIRST_VERSION} to {cls.LAST_VERSION}"
        )
    return cls
