"""Kafka's 128-bit ids: topic ids, directory ids, incarnation ids, cluster ids.

An id is stored as its 16 raw bytes (high half first); the text form is URL-safe base64 without
padding, always 22 characters (KIP-516). Reserved directory ids follow the released order
(KIP-858 as shipped): MIGRATING = 0, UNASSIGNED = 1, LOST = 2.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

Uuid: TypeAlias = bytes
"""16 raw bytes."""

UuidSource: TypeAlias = Callable[[], Uuid]
"""Returns new ids. It is injected, so that a simulated cluster is reproducible."""

_HALVES = Struct(">qq")
_RESERVED_BELOW: Final = 100

ZERO_UUID: Final[Uuid] = bytes(16)
METADATA_TOPIC_ID: Final[Uuid] = bytes(15) + b"\x01"

DIRECTORY_MIGRATING: Final[Uuid] = ZERO_UUID
DIRECTORY_UNASSIGNED: Final[Uuid] = bytes(15) + b"\x01"
DIRECTORY_LOST: Final[Uuid] = bytes(15) + b"\x02"


def uuid_text(value: Uuid) -> str:
    """Return the 22-character base64 form."""
    return urlsafe_b64encode(value)[:22].decode()


def uuid_hex_text(value: Uuid) -> str:
    """Return the hexadecimal digits in groups of 8, 4, 4, 4 and 12, as Java's UUIDs are written."""
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def parse_uuid(text: str) -> Uuid:
    """Return the id of a base64 text.

    Raises:
        ValueError: the text is not the base64 form of 16 bytes.
    """
    try:
        value = urlsafe_b64decode(text + "=" * (-len(text) % 4)) if len(text) <= 24 else b""
    except ValueError:
        value = b""
    if len(value) != 16:
        raise ValueError(f"{text!r} is not an id: want the base64 form of 16 bytes (22 characters)")
    return value


def uuid_from_random(random_bytes: Callable[[int], bytes]) -> Uuid:
    """Return a version 4 id that is not reserved and whose text does not begin with '-'."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        value = bytes(raw)
        if not is_reserved_directory_id(value) and not uuid_text(value).startswith("-"):
            return value


def uuid_sort_key(value: Uuid) -> tuple[int, int]:
    """Return the key of Kafka's order of ids: by their signed halves, high half first."""
    high: int
    low: int
    high, low = _HALVES.unpack(value)
    return high, low


def is_reserved_directory_id(value: Uuid) -> bool:
    """Return True if the high half is zero and the low half, signed, is below 100."""
    high, low = uuid_sort_key(value)
    return high == 0 and low < _RESERVED_BELOW
