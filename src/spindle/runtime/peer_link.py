"""One connection to another node, from the look-up of its name to the answer of a request."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from spindle.client.connection import Answer, ClientConnection, Negotiated, SendAgain
from spindle.client.errors import ClientError, UnsupportedByPeer
from spindle.common.errors import ApiError, ProtocolViolation
from spindle.common.ports import Bytes
from spindle.protocol.api import response_class
from spindle.protocol.message import Message
from spindle.raft.ready import Destination
from spindle.runtime.peers import PeerGone, PeerLacksVersion, PeerUnavailable

_SIZE_BYTES: Final = 4
_MAX_ANSWER_BYTES: Final = 100 << 20


class PeerLink:
    """An open connection whose versions are agreed on; one request at a time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._state = ClientConnection(client_id)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is still to come."""
        return self._state.in_flight > 0

    @property
    def is_closed(self) -> bool:
        """Whether this side or the peer has ended the connection."""
        return self._writer.is_closing() or self._reader.at_eof()

    async def negotiate(self) -> None:
        self._write(self._state.opening())
        while True:
            match self._state.receive_frame(await self._read_frame()):
                case Negotiated():
                    return
                case SendAgain(parts):
                    self._write(parts)

    async def request(self, message: Message, *, first_version: int = 0) -> Message:
        """The answer, in the newest version that both sides know."""
        _, parts = self._state.request(
            message, response_class(message.API_KEY), first_version=first_version
        )
        self._write(parts)
        received = self._state.receive_frame(await self._read_frame())
        if not isinstance(received, Answer):
            raise ProtocolViolation("the peer negotiated versions where an answer was due")
        return received.response

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()

    def _write(self, parts: Sequence[Bytes]) -> None:
        self._writer.writelines(parts)

    async def _read_frame(self) -> memoryview:
        size_bytes = int.from_bytes(await self._reader.readexactly(_SIZE_BYTES), "big", signed=True)
        if not 0 <= size_bytes <= _MAX_ANSWER_BYTES:
            raise ProtocolViolation(
                f"an answer of {size_bytes} bytes was announced, at most {_MAX_ANSWER_BYTES} "
                "are accepted"
            )
        return memoryview(await self._reader.readexactly(size_bytes))


async def open_link(destination: Destination, client_id: str) -> PeerLink:
    """A connection to the first address of the destination that accepts one.

    The name is looked up first, as uvloop goes on looking when `open_connection` is cancelled and
    leaves an error behind that nobody retrieves.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(destination.host, destination.port, type=socket.SOCK_STREAM)
    failure = OSError(f"{destination.host} has no address")
    for *_, address in found:
        try:
            reader, writer = await asyncio.open_connection(str(address[0]), destination.port)
        except OSError as error:
            failure = error
            continue
        link = PeerLink(reader, writer, client_id)
        try:
            await link.negotiate()
        except BaseException:
            link.close()
            raise
        return link
    raise failure


@asynccontextmanager
async def peer_errors(destination: Destination, timeout_s: float) -> AsyncIterator[None]:
    """Whatever goes wrong within, in the terms of the port; also when the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except UnsupportedByPeer as error:
        raise PeerLacksVersion(f"{destination}: {error}") from None
    except ConnectionRefusedError as error:
        raise PeerGone(f"{destination}: {error!r}") from error
    except (
        ApiError,
        ClientError,
        EOFError,
        OSError,
        ProtocolViolation,
        TimeoutError,
    ) as error:
        raise PeerUnavailable(f"{destination}: {error!r}") from error
