"""Request and response headers (KIP-482). A frame is a 4-byte size and that many bytes."""

from struct import Struct
from typing import Final, NamedTuple

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.protocol.api import APIS, request_header_version
from spindle.protocol.codec import MAX_TAGGED_FIELDS, read_uvarint

_FIXED: Final = Struct(">hhih")
_RESPONSE: Final = Struct(">ii")
SIZE: Final = Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request. `body` is the position of the request itself."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_request_header(buffer: Bytes) -> RequestHeader:
    """Return the header at the start of a frame's content.

    The version is not checked: ApiVersions has an answer for unknown versions.

    Raises:
        ProtocolViolation: unknown API key, or the bytes are not a header.
    """
    if len(buffer) < _FIXED.size:
        raise ProtocolViolation(f"request of {len(buffer)} bytes is shorter than its header")
    api_key, api_version, correlation_id, length = _FIXED.unpack_from(buffer)
    position = _FIXED.size
    api = APIS.get(api_key)
    if api is None:
        raise ProtocolViolation(f"unknown API key {api_key}")
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(buffer):
            raise ProtocolViolation(f"client id of {length} bytes exceeds the request")
        try:
            client_id = str(buffer[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolViolation(f"client id is not UTF-8: {error}") from None
        position = end
    if api_version >= api.flexible_from:
        position = _skip_tagged_fields(buffer, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def _skip_tagged_fields(buffer: Bytes, position: int, header: str = "request header") -> int:
    try:
        if not buffer[position]:
            return position + 1
        count, position = read_uvarint(buffer, position)
        if count > MAX_TAGGED_FIELDS:
            raise ProtocolViolation(f"{count} tagged fields in a {header}")
        for _ in range(count):
            _, position = read_uvarint(buffer, position)
            size, position = read_uvarint(buffer, position)
            position += size
            if position > len(buffer):
                raise ProtocolViolation(f"tagged field exceeds the {header}")
    except IndexError:
        raise ProtocolViolation(f"{header} ends within its tagged fields") from None
    return position


def request_prefix(api_key: int, api_version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the header of an outgoing request, without the frame size."""
    name = client_id.encode()
    fixed = _FIXED.pack(api_key, api_version, correlation_id, len(name))
    tags = b"\0" if request_header_version(api_key, api_version) == 2 else b""
    return fixed + name + tags


def response_prefix(size_bytes: int, correlation_id: int, header_version: int) -> bytes:
    """Return frame size and header of a response whose body has `size_bytes` bytes."""
    if header_version == 0:
        return _RESPONSE.pack(size_bytes + 4, correlation_id)
    return _RESPONSE.pack(size_bytes + 5, correlation_id) + b"\0"


def response_body(buffer: Bytes, correlation_id: int, header_version: int) -> int:
    """Return the position of the body of a response whose header is at the start of the buffer.

    Raises:
        ProtocolViolation: the bytes are not a header, or it answers another request.
    """
    if len(buffer) < SIZE.size:
        raise ProtocolViolation(f"response of {len(buffer)} bytes is shorter than its header")
    (answered_id,) = SIZE.unpack_from(buffer)
    if answered_id != correlation_id:
        raise ProtocolViolation(f"response to request {answered_id}, {correlation_id} was asked")
    if header_version == 0:
        return SIZE.size
    return _skip_tagged_fields(buffer, SIZE.size, "response header")
