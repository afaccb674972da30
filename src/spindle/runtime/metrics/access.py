"""Access to the metrics of a node: TLS and basic authentication (RFC 7617), both optional."""

import base64
import binascii
import hmac
import ssl
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.broker_keys.spindle import METRICS_PROTOCOL, METRICS_USER
from spindle.config.listener_config import ListenerConfig
from spindle.config.node_config import NodeConfig
from spindle.security.tls_context import server_key
from spindle.security.tls_settings import server_tls_settings

CHALLENGE: Final = 'Basic realm="spindle", charset="UTF-8"'
_LISTENER: Final = "METRICS"
_HEADER: Final = b"authorization:"


class MetricsAccess(NamedTuple):
    """The conditions for clients of the metrics.

    Attributes:
        tls: the TLS side of the server; None for plain HTTP.
        user: `NAME:PASSWORD` of the user who may read the metrics; None if everyone may. Do not
            log it.
    """

    tls: ssl.SSLContext | None = None
    user: bytes | None = None

    def is_allowed(self, head: bytes) -> bool:
        """Return True if the head of an HTTP request has name and password, or needs none."""
        if self.user is None:
            return True
        for line in head.split(b"\r\n")[1:]:
            if line[: len(_HEADER)].lower() == _HEADER:
                return hmac.compare_digest(_credentials(line[len(_HEADER) :]), self.user)
        return False


def _credentials(value: bytes) -> bytes:
    scheme, _, text = value.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        return b""


def metrics_access(config: NodeConfig) -> MetricsAccess:
    """Return who may read the metrics; read the key and the certificate now.

    Raises:
        ConfigError: a store cannot be used, or the user has no name or no password.
    """
    text = config.optional_text(METRICS_USER)
    if text is not None and not all(text.partition(":")):
        raise ConfigError(f"{METRICS_USER}: want NAME:PASSWORD")
    tls = None
    if config.text(METRICS_PROTOCOL) == SecurityProtocol.SSL.name:
        properties = ListenerConfig(config, _LISTENER).properties
        tls = server_key(server_tls_settings(properties)).context
    return MetricsAccess(tls, None if text is None else text.encode())
