"""One connection to another node: name resolution, version negotiation, login, requests."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from spindle.client.connection import ClientConnection, Negotiated, ReceivedAnswer, SendAgain
from spindle.client.errors import ClientError, UnsupportedByPeer
from spindle.common.errors import ApiError, ProtocolViolation
from spindle.common.promise import Listener, Promise
from spindle.protocol import versions
from spindle.protocol.api import response_class
from spindle.protocol.message import Message
from spindle.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.raft.ready import Destination
from spindle.raft.requests import is_pre_vote
from spindle.runtime.detached_threads import on_own_thread
from spindle.runtime.peers.frames import FrameStream
from spindle.runtime.peers.port import PeerGone, PeerLacksVersion, PeerUnavailable
from spindle.runtime.peers.security import NO_SECURITY, PeerSecurity

if TYPE_CHECKING:
    from spindle.client.security.login import LoginFlow, LoginRequest


class PeerLink:
    """An open connection that has negotiated versions and logged in; one request at a time."""

    def __init__(
        self,
        stream: FrameStream,
        client_id: str,
        destination: Destination,
        security: PeerSecurity,
    ) -> None:
        self._stream = stream
        self._client_id = client_id
        self._destination = destination
        self._security = security
        self._state = ClientConnection(client_id)
        self._is_logging_in = False
        self._renewal_due_s: float | None = None

    @property
    def is_busy(self) -> bool:
        """True while a request is open."""
        return self._state.in_flight > 0 or self._is_logging_in

    @property
    def must_renew(self) -> bool:
        """True if the session of the login has to be renewed before the next request."""
        due_s = self._renewal_due_s
        return due_s is not None and asyncio.get_running_loop().time() >= due_s

    @property
    def is_closed(self) -> bool:
        """True if this side or the peer has ended the connection."""
        return self._stream.is_closed

    async def prepare(self) -> None:
        """Negotiate versions, and log in if the listener has logins."""
        await self._negotiate()
        if self._security.has_logins:
            await self._log_in()
            # A peer may name fewer versions before the login.
            self._state = ClientConnection(self._client_id)
            await self._negotiate()

    async def renew(self) -> None:
        """Renew the session of the login (KIP-368).

        Raises:
            one of `LINK_ERRORS`: the connection is closed.
        """
        try:
            with self._security.watching(self._destination):
                await self._log_in()
        except BaseException:
            self.close()
            raise

    async def _log_in(self) -> None:
        """Log in. SCRAM's hashes and requests for tokens run beside the event loop."""
        # Imported here, because nodes without logins do not need it.
        from spindle.client.security.login import renewal_due_s

        self._is_logging_in = True
        try:
            began_s = asyncio.get_running_loop().time()
            course = await on_own_thread(self._security.login_course)
            step = await on_own_thread(_advance, course, None)
            while not isinstance(step, int):
                _, parts = self._state.request(
                    step.message, step.response, first_version=step.first_version
                )
                self._stream.write(parts)
                answer = self._answer_in(await self._stream.read())
                step = await on_own_thread(_advance, course, answer)
            self._renewal_due_s = renewal_due_s(began_s, step)
        finally:
            self._is_logging_in = False

    async def _negotiate(self) -> None:
        self._stream.write(self._state.opening())
        while True:
            match self._state.receive_frame(await self._stream.read()):
                case Negotiated():
                    return
                case SendAgain(parts):
                    self._stream.write(parts)

    def request(self, message: Message, *, last_version: int | None = None) -> Promise[Message]:
        """Return a promise of the response.

        The version is the newest that both sides know, up to the last one. The promise fails with
        one of `LINK_ERRORS`.
        """
        promise: Promise[Message] = Promise(asyncio.get_running_loop())
        self.ask(message, promise.settle, last_version=last_version)
        return promise

    def ask(
        self, message: Message, listener: Listener[Message], *, last_version: int | None = None
    ) -> None:
        """Send a request, and call `listener` with its response; see `request`."""
        try:
            _, parts = self._state.request(
                message,
                response_class(message.API_KEY),
                first_version=_oldest_version(message),
                last_version=last_version,
            )
            self._stream.write(parts)
        except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
            listener(None, error)
            return
        self._stream.expect(partial(self._answered, listener))

    def _answered(
        self, listener: Listener[Message], frame: memoryview | None, error: BaseException | None
    ) -> None:
        answer: Message | None = None
        if frame is not None:
            try:
                answer = self._answer_in(frame)
            except Exception as violation:  # noqa: BLE001 - raised where the answer is awaited
                error = violation
                # After an unexpected response, every later one would be assigned to the wrong
                # request.
                self.close()
        listener(answer, error)

    def _answer_in(self, frame: memoryview) -> Message:
        received = self._state.receive_frame(frame)
        if not isinstance(received, ReceivedAnswer):
            raise ProtocolViolation("the peer negotiated versions where an answer was due")
        return received.response

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()


def _advance(course: "LoginFlow", answer: Message | None) -> "LoginRequest | int":
    """Return the next request of a login, or at its end the lifetime of the session in ms."""
    try:
        return next(course) if answer is None else course.send(answer)
    except StopIteration as end:
        return int(end.value)


async def open_link(
    destination: Destination, client_id: str, security: PeerSecurity = NO_SECURITY
) -> PeerLink:
    """Return a connection to the first address of the destination that accepts one.

    The name is resolved first: uvloop does not stop the resolution when `open_connection` is
    cancelled, and leaves an error that is never retrieved.

    Raises:
        one of `LINK_ERRORS`: there is no connection.
    """
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(destination.host, destination.port, type=socket.SOCK_STREAM)
    with security.watching(destination):
        stream = await _connect(
            destination, [str(address[0]) for *_, address in addresses], security
        )
        link = PeerLink(stream, client_id, destination, security)
        try:
            await link.prepare()
        except BaseException:
            link.close()
            raise
        return link


async def _connect(
    destination: Destination, addresses: Sequence[str], security: PeerSecurity
) -> FrameStream:
    failure = OSError(f"{destination.host} has no address")
    for address in addresses:
        try:
            return await security.connect(address, destination)
        except OSError as error:
            failure = error
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


def _oldest_version(message: Message) -> int:
    """Return the lowest version in which a peer cannot misread the request.

    An older version has no field for a pre-vote, for the id of a topic, or for the verification of
    transactions.
    """
    if is_pre_vote(message):
        return versions.VOTE_PRE_VOTE
    if isinstance(message, FetchRequest):
        for topic in message.topics:
            if not topic.topic:
                return versions.FETCH_TOPIC_IDS
    if isinstance(message, AddPartitionsToTxnRequest) and message.transactions:
        return versions.ADD_PARTITIONS_TO_TXN_BATCHED
    return 0
