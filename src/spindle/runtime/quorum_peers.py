"""Connections to the other members of the metadata quorum.

One connection per destination, made when it is needed and given up at the first failure: the state
machine sends one request at a time to a peer, and asks again.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from spindle.client.connection import Answer, ClientConnection, Negotiated, SendAgain
from spindle.client.errors import ClientError, UnsupportedByPeer
from spindle.common.errors import ApiError, ProtocolViolation
from spindle.common.ports import Bytes
from spindle.protocol.api import response_class
from spindle.protocol.message import Message
from spindle.protocol.messages.vote import VoteRequest
from spindle.raft.ready import Destination
from spindle.runtime.metadata_quorum import PeerLacksVersion, PeerUnavailable

_SIZE_BYTES: Final = 4
_MAX_ANSWER_BYTES: Final = 100 << 20
_PRE_VOTE_VERSION: Final = 2


class _Link:
    """An open connection whose versions are agreed on."""

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

    async def negotiate(self) -> None:
        self._write(self._state.opening())
        while True:
            match self._state.receive_frame(await self._read_frame()):
                case Negotiated():
                    return
                case SendAgain(parts):
                    self._write(parts)

    async def request(self, message: Message) -> Message:
        _, parts = self._state.request(
            message, response_class(message.API_KEY), first_version=_oldest_version(message)
        )
        self._write(parts)
        received = self._state.receive_frame(await self._read_frame())
        if not isinstance(received, Answer):
            raise ProtocolViolation("the peer negotiated versions where an answer was due")
        return received.response

    def close(self) -> None:
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


class QuorumPeers:
    """`Peers` over TCP.

    Args:
        client_id: what peers see as the name of this client.
        timeout_s: a request without an answer fails after this time (`request.timeout.ms`).
    """

    def __init__(self, client_id: str, timeout_s: float) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._links: dict[Destination, _Link] = {}

    async def request(self, destination: Destination, message: Message) -> Message:
        """Send and wait for the answer.

        Raises:
            PeerUnavailable: no answer will come.
            PeerLacksVersion: the peer serves no version that can carry the request.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                link = self._idle_link(destination) or await self._connect(destination)
                return await link.request(message)
        except UnsupportedByPeer as error:
            raise PeerLacksVersion(f"{destination}: {error}") from None
        except (
            ApiError,
            ClientError,
            EOFError,
            OSError,
            ProtocolViolation,
            TimeoutError,
        ) as error:
            raise PeerUnavailable(f"{destination}: {error!r}") from error

    def close(self) -> None:
        """Close all connections."""
        for destination in list(self._links):
            self._drop(destination)

    def _idle_link(self, destination: Destination) -> _Link | None:
        """The connection to a destination. One with an open request is closed.

        Either that request failed, or the state machine has given it up and asks something else.
        """
        link = self._links.get(destination)
        if link is not None and link.is_busy:
            self._drop(destination)
            return None
        return link

    async def _connect(self, destination: Destination) -> _Link:
        reader, writer = await _open(destination)
        link = _Link(reader, writer, self._client_id)
        try:
            await link.negotiate()
        except BaseException:
            link.close()
            raise
        self._drop(destination)
        self._links[destination] = link
        return link

    def _drop(self, destination: Destination) -> None:
        link = self._links.pop(destination, None)
        if link is not None:
            with suppress(OSError):
                link.close()


async def _open(destination: Destination) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first address of the destination that accepts one.

    The name is looked up first, as uvloop goes on looking when `open_connection` is cancelled and
    leaves an error behind that nobody retrieves.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(destination.host, destination.port, type=socket.SOCK_STREAM)
    failure = OSError(f"{destination.host} has no address")
    for *_, address in found:
        try:
            return await asyncio.open_connection(str(address[0]), destination.port)
        except OSError as error:
            failure = error
    raise failure


def _oldest_version(message: Message) -> int:
    """A pre-vote must not be taken for a vote by a peer that does not know the difference."""
    if isinstance(message, VoteRequest) and any(
        partition.pre_vote for topic in message.topics for partition in topic.partitions
    ):
        return _PRE_VOTE_VERSION
    return 0
