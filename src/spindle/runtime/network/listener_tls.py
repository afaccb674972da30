"""TLS of a listener: keys and settings for new connections, and the principals of clients."""

import logging
import ssl
from functools import partial
from typing import Final

from spindle.common.log_throttle import LogThrottle
from spindle.runtime.handshakes import Handshakes, PeerRefused
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.connection import Connection
from spindle.runtime.network.handshake_failures import why_failed
from spindle.runtime.network.renewable_tls import RenewableTls
from spindle.runtime.network.tls_source import LoadedTls
from spindle.runtime.tls_transport import TlsTransport
from spindle.security.certificates import subject_name
from spindle.security.principal_rules import PrincipalRules

log = logging.getLogger(__name__)

_MAX_NAME: Final = 32_767


class ListenerTls:
    """Secures the connections of one listener. Open connections keep their keys."""

    def __init__(
        self,
        tls: RenewableTls,
        handshakes: Handshakes,
        failures: LogThrottle,
        metrics: RequestMetrics,
    ) -> None:
        self.listener: Final = tls.listener
        self._tls = tls
        self._handshakes = handshakes
        self._failures = failures
        self._metrics = metrics

    @property
    def loaded(self) -> LoadedTls:
        """The key and the settings of new connections."""
        return self._tls.loaded

    def secured(self, connection: Connection) -> TlsTransport:
        """Return the asyncio protocol for the socket of a new connection."""
        loaded = self.loaded
        return TlsTransport(
            connection,
            loaded.key.context,
            self._handshakes,
            on_secured=partial(_identify, connection, loaded.settings.principal_rules),
            on_failed=partial(self._tell, connection),
        )

    def _tell(self, connection: Connection, error: Exception) -> None:
        self._metrics.failed_authentications += 1
        why = why_failed(error)
        if self._failures.allow((self.listener, connection.client_address, why)):
            log.warning(
                "listener %s: no TLS with the client at %s: %s",
                self.listener,
                connection.client_address,
                why,
            )


def _identify(connection: Connection, rules: PrincipalRules, tls: ssl.SSLObject) -> None:
    """Give a connection the principal of its client's certificate, if it has one."""
    der = tls.getpeercert(binary_form=True)
    if der is None:
        return
    try:
        name = subject_name(der)
    except ValueError as error:
        raise PeerRefused(f"its certificate is malformed: {error}") from None
    user = rules.user_of(name)
    if user is None:
        raise PeerRefused(f"no rule of ssl.principal.mapping.rules applies to {name!r}")
    if len(user.encode()) > _MAX_NAME:
        raise PeerRefused(f"its user name is longer than {_MAX_NAME} bytes")
    connection.principal = f"User:{user}"
