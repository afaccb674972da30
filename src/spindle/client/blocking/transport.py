"""A blocking TCP connection to one broker."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Final, Self, TypeVar, cast

from spindle.client.blocking.security import ClientSecurity
from spindle.client.blocking.settings import ClientSettings, HostPort
from spindle.client.connection import (
    ClientConnection,
    ExpectedBroker,
    Negotiated,
    Received,
    ReceivedAnswer,
    SendAgain,
)
from spindle.client.errors import (
    ConnectionLost,
    RequestTimedOut,
    SaslFailed,
    TlsFailed,
)
from spindle.client.framing import FrameReader
from spindle.client.security.login import LoginFlow, renewal_due_s
from spindle.client.security.tls_failures import alert
from spindle.client.versions import PeerVersions
from spindle.common.errors import ApiError, ProtocolViolation
from spindle.common.ports import Bytes
from spindle.common.text import error_text
from spindle.protocol.message import Message

R = TypeVar("R", bound=Message)
_MAX_PARTS_PER_SEND = 512
_MAX_LOGIN_FRAME_BYTES: Final = 1024 * 1024


class BlockingConnection:
    """A connection with negotiated versions.

    Record sets in an answer are slices of a buffer that the next `receive` overwrites, so decode
    them first. After any exception but `ApiError` the connection is closed.

    Attributes:
        answer_due_s: since when the broker could have answered, by `time.monotonic`; None while no
            answer is awaited. Other threads may read it.
    """

    def __init__(
        self,
        address: HostPort,
        opened: socket.socket,
        settings: ClientSettings,
        security: ClientSecurity,
        expected: ExpectedBroker | None = None,
    ) -> None:
        self.address = address
        self._expected = expected
        self._socket = opened
        self._settings = settings
        self._security = security
        self._state = ClientConnection(settings.client_id, expected=expected)
        self._frames = FrameReader(reuse_buffer=True)
        self._renewal_due_s: float | None = None
        self._has_answered = False
        self._timeout_ms = settings.request_timeout_ms
        self.answer_due_s: float | None = None

    @classmethod
    def open(
        cls,
        address: HostPort,
        settings: ClientSettings,
        security: ClientSecurity | None = None,
        expected: ExpectedBroker | None = None,
        limit_ms: int | None = None,
    ) -> Self:
        """Connect, log in if the settings say so, and negotiate versions.

        Args:
            security: That of the other connections of the client; None for one of its own.
            expected: The broker that has to answer; None accepts any.
            limit_ms: The time limit of each of these steps; None for those of the settings.

        Raises:
            ApiError: the peer is not the expected broker (REBOOTSTRAP_REQUIRED), or refused
                ApiVersions.
            ConnectionLost: the address refuses connections, or the peer closed this one.
            RequestTimedOut: the peer did not answer in time.
            ProtocolViolation: the peer does not speak the protocol.
            UnsupportedByPeer: the peer has no version in common.
            AuthenticationFailed: the peer and this client do not accept each other.
            ConfigError: a store of keys or certificates, or a token, cannot be read.
        """
        security = security or ClientSecurity(settings.security)
        limits = settings if limit_ms is None else settings.within(limit_ms)
        connect_ms = limits.connect_timeout_ms
        try:
            opened = socket.create_connection((address.host, address.port), connect_ms / 1000)
        except TimeoutError:
            raise ConnectionLost(
                f"{address} did not accept a connection within {connect_ms} ms"
            ) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: the host is no host name
            raise ConnectionLost(f"cannot connect to {address}: {error_text(error)}") from error
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.receive_buffer_bytes > 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        try:
            secured = security.secured(opened, address)
        except BaseException:
            opened.close()
            raise
        connection = cls(address, secured, settings, security, expected)
        connection._timeout_ms = limits.request_timeout_ms
        try:
            with connection._closing_on_failure():
                connection._negotiate()
                connection._log_in()
        except BaseException:
            connection.close()
            raise
        connection._timeout_ms = settings.request_timeout_ms
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
            AuthenticationFailed: the session was to be renewed, and the broker refused.
        """
        self._renew_session()
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
            AuthenticationFailed: the session was to be renewed, and the broker refused.
        """
        self._renew_session()
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
        self.answer_due_s = time.monotonic() + wait_ms / 1000
        with self._closing_on_failure():
            received = self._receive_one(self._frames, self._timeout_ms + wait_ms)
            self.answer_due_s = None
            self._has_answered = True
            if not isinstance(received, ReceivedAnswer):
                raise ProtocolViolation(f"{self.address} answered ApiVersions a second time")
            return received.response

    def close(self) -> None:
        """Close the socket. It may be called again."""
        self.answer_due_s = None
        self._socket.close()

    def _negotiate(self) -> None:
        self._send_all(self._state.opening())
        while True:
            received = self._receive_one(self._frames, self._timeout_ms)
            match received:
                case Negotiated():
                    return
                case SendAgain(parts):
                    self._send_all(parts)
                case ReceivedAnswer():
                    raise ProtocolViolation(
                        f"{self.address} sent an answer before the versions were negotiated"
                    )

    def _log_in(self) -> None:
        course = self._security.login()
        if course is None:
            return
        self._follow(course)
        # Brokers may report less before the login than after it, so ask again.
        self._state = ClientConnection(self._settings.client_id, expected=self._expected)
        self._negotiate()

    def _renew_session(self) -> None:
        """Log in again if the session ends soon.

        The broker allows no other request in between. If one is open, the session ends and so does
        the connection; the request is then repeated on a new one.
        """
        due_s = self._renewal_due_s
        if due_s is None or time.monotonic() < due_s or self._state.in_flight:
            return
        with self._closing_on_failure():
            course = self._security.login()
            assert course is not None
            self._follow(course)

    def _follow(self, course: LoginFlow) -> None:
        """Carry out a login and note when to renew it."""
        began_s = time.monotonic()
        # The caller may still decode the records of an answer in the other reader's buffer.
        frames = FrameReader(max_frame_bytes=_MAX_LOGIN_FRAME_BYTES)
        try:
            wanted = next(course)
            while True:
                _, parts = self._state.request(
                    wanted.message, wanted.response, first_version=wanted.first_version
                )
                self._send_all(parts)
                received = self._receive_one(frames, self._timeout_ms)
                if not isinstance(received, ReceivedAnswer):
                    raise ProtocolViolation(f"{self.address} answered ApiVersions a second time")
                wanted = course.send(received.response)
        except StopIteration as end:
            self._renewal_due_s = renewal_due_s(began_s, end.value)
        except SaslFailed as error:
            raise SaslFailed(f"{self.address}: {error}") from None

    def _send_all(self, parts: Sequence[Bytes]) -> None:
        self._socket.settimeout(self._timeout_ms / 1000)
        if isinstance(self._socket, ssl.SSLSocket):
            try:
                self._socket.sendall(b"".join(parts))
            except (ssl.SSLEOFError, ConnectionError):
                # With TLS 1.3 a broker may refuse this client after the handshake and hang up. Its
                # alert, which has the reason, has arrived: reading raises it.
                self._socket.recv(1)
                raise
            return
        for start in range(0, len(parts), _MAX_PARTS_PER_SEND):
            some = parts[start : start + _MAX_PARTS_PER_SEND]
            sent = self._socket.sendmsg(some)
            for part in some:
                if sent < len(part):
                    self._socket.sendall(memoryview(part)[sent:])
                sent = max(0, sent - len(part))

    def _receive_one(self, frames: FrameReader, timeout_ms: int) -> Received:
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(frames.free_space())
            if count == 0:
                raise ConnectionLost(f"{self.address} closed the connection{self._hint()}")
            try:
                frame = frames.advance(count)
                if frame is not None:
                    return self._state.receive_frame(frame)
            except ProtocolViolation as violation:
                raise ProtocolViolation(f"{self.address}: {violation}") from None
            except ApiError as refusal:
                raise ApiError(refusal.code, f"{self.address}: {refusal.message}") from None

    @contextlib.contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """Name the address in errors, and close the connection: its stream position is unknown."""
        try:
            yield
        except TimeoutError:
            self.close()
            raise RequestTimedOut(
                f"{self.address} did not answer within {self._timeout_ms} ms"
            ) from None
        except ssl.SSLError as error:
            self.close()
            refused = alert(error, str(self.address))
            if refused is not None:
                raise TlsFailed(refused) from None
            raise ConnectionLost(
                f"connection to {self.address} failed: {error_text(error)}"
            ) from error
        except OSError as error:
            self.close()
            raise ConnectionLost(
                f"connection to {self.address} failed: {error_text(error)}{self._hint()}"
            ) from error
        except BaseException:  # also Ctrl-C, after which the answer is still to come
            self.close()
            raise

    def _hint(self) -> str:
        """Return a hint about a wrong security.protocol."""
        if self._has_answered:
            return ""
        protocol = self._settings.security.protocol
        question = f"; is its listener one for security.protocol={protocol}?"
        if protocol == "PLAINTEXT":
            question += " Tools read another one from the file of --command-config"
        return question
