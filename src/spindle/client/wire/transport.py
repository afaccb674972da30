"""A blocking TCP connection to one broker."""

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar, cast

from spindle.client.connection import (
    ClientConnection,
    Negotiated,
    Received,
    ReceivedAnswer,
    SendAgain,
)
from spindle.client.errors import ConnectionLost, RequestTimedOut
from spindle.client.framing import FrameReader
from spindle.client.versions import PeerVersions
from spindle.client.wire.settings import ClientSettings, HostPort
from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.protocol.message import Message

R = TypeVar("R", bound=Message)
_MAX_PARTS_PER_SEND = 512


class BlockingConnection:
    """A connection with negotiated versions.

    Record sets in an answer are slices of a buffer that the next `receive` overwrites, so decode
    them first. After any exception but `ApiError` the connection is closed.
    """

    def __init__(self, address: HostPort, opened: socket.socket, settings: ClientSettings) -> None:
        self.address = address
        self._socket = opened
        self._settings = settings
        self._state = ClientConnection(settings.client_id)
        self._frames = FrameReader(reuse_buffer=True)

    @classmethod
    def open(cls, address: HostPort, settings: ClientSettings) -> Self:
        """Connect and negotiate versions.

        Raises:
            ConnectionLost: the address refuses connections, or the peer closed this one.
            RequestTimedOut: the peer did not answer in time.
            ProtocolViolation: the peer does not speak the protocol.
            UnsupportedByPeer: the peer has no version in common.
        """
        try:
            opened = socket.create_connection(
                (address.host, address.port), settings.connect_timeout_ms / 1000
            )
        except TimeoutError:
            raise ConnectionLost(
                f"{address} did not accept a connection within {settings.connect_timeout_ms} ms"
            ) from None
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {error}") from error
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.receive_buffer_bytes > 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        connection = cls(address, opened, settings)
        try:
            with connection._closing_on_failure():
                connection._negotiate()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def versions(self) -> PeerVersions:
        """The API versions of the broker."""
        return self._state.versions

    @property
    def is_open(self) -> bool:
        """False after `close` and after a failure."""
        return self._socket.fileno() >= 0

    def request(
        self,
        message: Message,
        response: type[R],
        *,
        first_version: int = 0,
        last_version: int | None = None,
        wait_ms: int = 0,
    ) -> R:
        """Send a request and wait for its answer; see `send` and `receive`."""
        self.send(message, response, first_version=first_version, last_version=last_version)
        return cast(R, self.receive(wait_ms=wait_ms))

    def send(
        self,
        message: Message,
        response: type[Message],
        *,
        first_version: int = 0,
        last_version: int | None = None,
    ) -> None:
        """Send a request; its answer comes from `receive`, in the order of the requests.

        Raises:
            UnsupportedByPeer: there is no common version; the connection stays usable.
            ConnectionLost: the broker hung up.
            RequestTimedOut: the broker does not take the bytes.
        """
        _, parts = self._state.request(
            message, response, first_version=first_version, last_version=last_version
        )
        with self._closing_on_failure():
            self._send_all(parts)

    def send_without_answer(self, message: Message, *, last_version: int | None = None) -> None:
        """Send a request that the broker does not answer (Produce with acks 0).

        Raises:
            UnsupportedByPeer: there is no common version; the connection stays usable.
            ConnectionLost: the broker hung up.
            RequestTimedOut: the broker does not take the bytes.
        """
        parts = self._state.request_without_answer(message, last_version=last_version)
        with self._closing_on_failure():
            self._send_all(parts)

    def receive(self, *, wait_ms: int = 0) -> Message:
        """Return the answer to the oldest open request.

        Args:
            wait_ms: How long the broker may wait on purpose, added to the request timeout.

        Raises:
            ConnectionLost: the broker hung up.
            RequestTimedOut: the answer did not arrive in time.
            ProtocolViolation: the broker sent something else than this answer.
        """
        with self._closing_on_failure():
            received = self._receive_one(self._settings.request_timeout_ms + wait_ms)
            if not isinstance(received, ReceivedAnswer):
                raise ProtocolViolation(f"{self.address} answered ApiVersions a second time")
            return received.response

    def close(self) -> None:
        """Close the socket. It may be called again."""
        self._socket.close()

    def _negotiate(self) -> None:
        self._send_all(self._state.opening())
        while True:
            received = self._receive_one(self._settings.request_timeout_ms)
            match received:
                case Negotiated():
                    return
                case SendAgain(parts):
                    self._send_all(parts)
                case ReceivedAnswer():
                    raise ProtocolViolation(
                        f"{self.address} sent an answer before the versions were negotiated"
                    )

    def _send_all(self, parts: Sequence[Bytes]) -> None:
        self._socket.settimeout(self._settings.request_timeout_ms / 1000)
        for start in range(0, len(parts), _MAX_PARTS_PER_SEND):
            some = parts[start : start + _MAX_PARTS_PER_SEND]
            sent = self._socket.sendmsg(some)
            for part in some:
                if sent < len(part):
                    self._socket.sendall(memoryview(part)[sent:])
                sent = max(0, sent - len(part))

    def _receive_one(self, timeout_ms: int) -> Received:
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(self._frames.free_space())
            if count == 0:
                raise ConnectionLost(f"{self.address} closed the connection")
            try:
                frame = self._frames.advance(count)
                if frame is not None:
                    return self._state.receive_frame(frame)
            except ProtocolViolation as violation:
                raise ProtocolViolation(f"{self.address}: {violation}") from None

    @contextlib.contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """Name a failure and close the connection: its place in the stream is unknown."""
        try:
            yield
        except TimeoutError:
            self.close()
            raise RequestTimedOut(
                f"{self.address} did not answer within {self._settings.request_timeout_ms} ms"
            ) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"connection to {self.address} failed: {error}") from error
        except (ConnectionLost, ProtocolViolation):
            self.close()
            raise
