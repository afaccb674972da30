"""Secure the connections of a blocking client: TLS on a socket, and the login."""

import socket
import ssl

from spindle.client.blocking.settings import HostPort
from spindle.client.errors import ClientError, ConnectionLost, TlsFailed
from spindle.client.security.login import LoginFlow
from spindle.client.security.login_source import LoginSource
from spindle.client.security.settings import SecuritySettings
from spindle.client.security.tls_failures import handshake_failure
from spindle.common.text import error_text
from spindle.security.tls_context import client_context


class ClientSecurity:
    """Secures the connections of one client; its TLS context and its token serve all of them."""

    def __init__(self, settings: SecuritySettings) -> None:
        self.settings = settings
        self._context: ssl.SSLContext | None = None
        self._logins = LoginSource(settings.login) if settings.login is not None else None

    def secured(self, opened: socket.socket, address: HostPort) -> socket.socket:
        """Return a socket whose TLS handshake is done, or this one if there is no TLS.

        The timeout of the socket limits the handshake.

        Raises:
            ConfigError: a store cannot be used.
            TlsFailed: one side refuses the other.
            ConnectionLost: the peer hung up or was silent.
        """
        if self.settings.tls is None:
            return opened
        if self._context is None:
            self._context = client_context(self.settings.tls)
        wrapped = self._context.wrap_socket(
            opened, server_hostname=address.host, do_handshake_on_connect=False
        )
        try:
            wrapped.do_handshake()
        except OSError as error:
            wrapped.close()
            raise _named(error, address) from None
        return wrapped

    def login(self) -> LoginFlow | None:
        """Return the steps of a login, None if the client does not log in.

        Raises:
            ConfigError: a token file cannot be read.
            SaslFailed: a token endpoint refuses.
            ConnectionLost: a token endpoint cannot be reached.
        """
        return None if self._logins is None else self._logins.flow()


def _named(error: OSError, address: HostPort) -> ClientError:
    """Return the error to raise for a failed handshake."""
    match error:
        case TimeoutError():
            return ConnectionLost(
                f"{address} did not finish the TLS handshake in time: does the port belong to a "
                "listener with TLS?"
            )
        case ssl.SSLEOFError() | ConnectionError():
            return ConnectionLost(
                f"{address} closed the connection during the TLS handshake; a listener without TLS "
                "does this: check security.protocol"
            )
        case ssl.SSLError():
            return TlsFailed(handshake_failure(error, str(address)))
    return ConnectionLost(f"connection to {address} failed: {error_text(error)}")
