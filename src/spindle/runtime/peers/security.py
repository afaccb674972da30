"""Connections of a node to one listener of other nodes: TLS, login, and a log of refusals."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from spindle.client.errors import AuthenticationFailed, SaslFailed, TlsFailed
from spindle.common.errors import ConfigError
from spindle.common.security_protocol import SecurityProtocol
from spindle.raft.ready import Destination
from spindle.runtime.detached_threads import on_own_thread
from spindle.runtime.peers.frames import ClosedHere, FrameStream

if TYPE_CHECKING:
    from spindle.client.security.login import LoginFlow
    from spindle.client.security.login_source import LoginSource
    from spindle.runtime.handshakes import Handshakes

log = logging.getLogger(__name__)

_REPEAT_S: Final = 60.0
"""A lasting failure is logged again after this time."""
_CHANGE_S: Final = 1.0
"""A failure with a new reason is logged after this time."""


class Credentials(NamedTuple):
    """The credentials of this node for other nodes.

    Attributes:
        context: the TLS context; None without TLS.
        logins: performs logins; None without SASL.
    """

    context: ssl.SSLContext | None = None
    logins: "LoginSource | None" = None


class PeerSecurity:
    """The security of all connections to one listener of the other nodes.

    Args:
        listener: the name of the listener, in upper case.
        credentials: returns the present credentials. It may read files, and is called beside the
            event loop.
    """

    def __init__(
        self,
        listener: str = "",
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        credentials: Callable[[], Credentials] = Credentials,
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._credentials = credentials
        self._handshakes: Handshakes | None = None
        self._logged: dict[Destination, tuple[float, str]] = {}

    @property
    def has_logins(self) -> bool:
        """True if a node logs in before its first request."""
        return self._protocol.has_sasl

    async def connect(self, address: str, destination: Destination) -> FrameStream:
        """Connect to an address of a destination. Requests wait for the end of the TLS handshake.

        Raises:
            OSError: there is no connection.
        """
        stream = FrameStream()
        protocol: asyncio.BufferedProtocol = stream
        if self._protocol.has_tls:
            protocol = await self._with_tls(stream, destination)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: protocol, address, destination.port)
        return stream

    async def _with_tls(
        self, stream: FrameStream, destination: Destination
    ) -> asyncio.BufferedProtocol:
        # Imported here, because nodes without TLS do not need it.
        from spindle.runtime.handshakes import Handshakes
        from spindle.runtime.tls_transport import TlsTransport

        context = (await on_own_thread(self._credentials)).context
        assert context is not None
        self._handshakes = self._handshakes or Handshakes()
        return TlsTransport(stream, context, self._handshakes, server_hostname=destination.host)

    def login_course(self) -> "LoginFlow":
        """Return the steps of a login. It may read files and request tokens, which blocks.

        Raises:
            ConfigError, SaslFailed, ConnectionLost: see `LoginSource.flow`.
        """
        logins = self._credentials().logins
        assert logins is not None
        return logins.flow()

    @contextmanager
    def watching(self, destination: Destination) -> Iterator[None]:
        """Log the failures of a connection attempt or a renewed login, and raise named errors.

        Raises:
            TlsFailed, SaslFailed: one side refused the other.
            EOFError, OSError: the connection was lost.
        """
        if self._protocol is SecurityProtocol.PLAINTEXT:
            yield
            return
        try:
            yield
        except (ClosedHere, ConnectionRefusedError):
            raise  # which says nothing about the security of the other node
        except (
            AuthenticationFailed,
            ConfigError,
            ssl.SSLError,
            ConnectionError,
            EOFError,
        ) as error:
            failure = self._named(error)
            self._log(destination, failure)
            raise failure from error
        if self._logged.pop(destination, None) is not None:
            log.info("%s, listener %s, accepts this node again", _name(destination), self._listener)

    def _named(self, error: Exception) -> Exception:
        match error:
            case ConfigError():
                return SaslFailed(str(error))
            case ssl.SSLEOFError() | ConnectionError() | EOFError():
                return EOFError(
                    "the peer closed the connection before it had accepted this node: is its "
                    f"listener one for {self._protocol.name}?"
                )
            case ssl.SSLError():
                # Imported here, because it is needed only after a failure.
                from spindle.client.security.tls_failures import handshake_failure

                return TlsFailed(handshake_failure(error, "the peer"))
        return error

    def _log(self, destination: Destination, failure: Exception) -> None:
        now_s, text = asyncio.get_running_loop().time(), str(failure)
        logged_s, logged = self._logged.get(destination, (-_REPEAT_S, ""))
        if now_s < logged_s + (_REPEAT_S if text == logged else _CHANGE_S):
            return
        self._logged[destination] = now_s, text
        log.log(
            logging.ERROR if isinstance(failure, AuthenticationFailed) else logging.WARNING,
            "%s, listener %s (%s): %s; this node keeps trying",
            _name(destination),
            self._listener,
            self._protocol.name,
            text,
        )


NO_SECURITY: Final = PeerSecurity()
"""Connections to PLAINTEXT listeners."""


def _name(destination: Destination) -> str:
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    address = f"{host}:{destination.port}"
    return f"node {destination.id} at {address}" if destination.id >= 0 else f"node at {address}"
