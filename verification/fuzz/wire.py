"""A small client: one connection, one request at a time, every answer decoded to its end."""

import asyncio
import ssl
from struct import Struct
from typing import Any, Final

from spindle.common.errors import ProtocolViolation
from spindle.protocol.api import APIS, response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest

_SIZE: Final = Struct(">i")
_ANSWER_S: Final = 30.0


class Finding(Exception):
    """The node did something that it must not do."""


class NoAnswer(Finding):
    """The node did not answer within a limit of time, which may be the fault of the machine.

    Attributes:
        waited_s: the limit.
    """

    def __init__(self, text: str, waited_s: float) -> None:
        super().__init__(text)
        self.waited_s = waited_s


class RawConnection:
    """One connection to the node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(
        cls, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> "RawConnection":
        """Open a connection, with TLS if there is a context for it.

        Raises:
            Finding: the node accepts no connection.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_connection(host, port, limit=1 << 20, ssl=tls)
        except TimeoutError:
            text = f"no connection to {host}:{port} within {_ANSWER_S:.0f} s"
            raise NoAnswer(text, _ANSWER_S) from None
        except OSError as error:
            raise Finding(f"no connection to {host}:{port}: {error!r}") from None
        return cls(reader, writer)

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Return the answer to a request, at the newest version unless told otherwise.

        Raises:
            Finding: no answer, or one that is not the answer to this request.
        """
        key = request.API_KEY
        version = APIS[key].last_version if version is None else version
        self._correlation_id += 1
        payload = request_prefix(key, version, self._correlation_id, "canary")
        payload += encode(request, version)
        try:
            self.writer.write(_SIZE.pack(len(payload)) + payload)
            async with asyncio.timeout(_ANSWER_S):
                frame = await self.read_frame()
        except TimeoutError:
            text = f"no answer to {request!r} within {_ANSWER_S:.0f} s"
            raise NoAnswer(text, _ANSWER_S) from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Finding(f"the connection ended before the answer to {request!r}") from error
        return read_answer(frame, key, version, self._correlation_id)

    async def read_frame(self) -> bytes:
        """Return the payload of the next frame."""
        (size,) = _SIZE.unpack(await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the first and last version of every API that the node serves.

        Produce is advertised from version 0 on, because old clients expect it, and served from 3
        on.
        """
        response = await self.ask(ApiVersionsRequest(), 0)
        return {
            row.api_key: (max(row.min_version, APIS[row.api_key].first_version), row.max_version)
            for row in response.api_keys
            if row.api_key in APIS
        }

    def close(self) -> None:
        self.writer.close()


def read_answer(frame: bytes, key: int, version: int, correlation_id: int) -> Any:
    """Return the response in a frame.

    Raises:
        Finding: another correlation id, or bytes that are not the response and nothing else.
    """
    name = f"{APIS[key].name} v{version}"
    if len(frame) < 4 or _SIZE.unpack_from(frame)[0] != correlation_id:
        raise Finding(f"answer to {name} has another correlation id: {frame[:16].hex()}")
    start = 4 + response_header_version(key, version)
    try:
        response, end = decode(response_class(key), version, frame, start)
    except ProtocolViolation as error:
        raise Finding(f"answer to {name} cannot be read: {error}") from error
    if end != len(frame):
        raise Finding(f"answer to {name} has {len(frame) - end} bytes too many")
    return response
