"""One connection to another node: look-up of its name, version negotiation, requests."""

import asyncio
import socket
from contextlib import suppress
from typing import Final

from spindle.client.connection import ClientConnection, Negotiated, ReceivedAnswer, SendAgain
from spindle.client.errors import ClientError, UnsupportedByPeer
from spindle.common.errors import ApiError, ProtocolViolation
from spindle.protocol.api import response_class
from spindle.protocol.message import Message
from spindle.raft.ready import Destination
from spindle.runtime.peers.frames import FrameStream
from spindle.runtime.peers.port import PeerGone, PeerLacksVersion, PeerUnavailable


class PeerLink:
    """An open connection with negotiated versions; one request at a time."""

    def __init__(self, stream: FrameStream, client_id: str) -> None:
        self._stream = stream
        self._state = ClientConnection(client_id)

    @property
    def is_busy(self) -> bool:
        """True while an answer is awaited."""
        return self._state.in_flight > 0

    @property
    def is_closed(self) -> bool:
        """True if this side or the peer has ended the connection."""
        return self._stream.is_closed

    async def negotiate(self) -> None:
        self._stream.write(self._state.opening())
        while True:
            match self._state.receive_frame(await self._stream.read()):
                case Negotiated():
                    return
                case SendAgain(parts):
                    self._stream.write(parts)

    async def request(
        self, message: Message, *, first_version: int = 0, last_version: int | None = None
    ) -> Message:
        """Return the answer, in the newest version that both sides know, up to the last one."""
        _, parts = self._state.request(
            message,
            response_class(message.API_KEY),
            first_version=first_version,
            last_version=last_version,
        )
        self._stream.write(parts)
        received = self._state.receive_frame(await self._stream.read())
        if not isinstance(received, ReceivedAnswer):
            raise ProtocolViolation("the peer negotiated versions where an answer was due")
        return received.response

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()


async def open_link(destination: Destination, client_id: str) -> PeerLink:
    """Return a connection to the first address of the destination that accepts one.

    The name is looked up first, as uvloop goes on looking when `open_connection` is cancelled and
    leaves an error behind that is never retrieved.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(destination.host, destination.port, type=socket.SOCK_STREAM)
    failure = OSError(f"{destination.host} has no address")
    for *_, address in found:
        try:
            _, stream = await loop.create_connection(FrameStream, str(address[0]), destination.port)
        except OSError as error:
            failure = error
            continue
        link = PeerLink(stream, client_id)
        try:
            await link.negotiate()
        except BaseException:
            link.close()
            raise
        return link
    raise failure


LINK_ERRORS: Final = (ApiError, ClientError, EOFError, OSError, ProtocolViolation, TimeoutError)
"""The failures of a connection or of a request on it."""


def peer_error(destination: Destination, error: Exception) -> Exception:
    """Translate one of `LINK_ERRORS` into an exception of the port."""
    if isinstance(error, UnsupportedByPeer):
        return PeerLacksVersion(f"{destination}: {error}")
    if isinstance(error, ConnectionRefusedError):
        return PeerGone(f"{destination}: {error!r}")
    return PeerUnavailable(f"{destination}: {error!r}")
