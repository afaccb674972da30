"""Access to the metrics of a node: TLS and basic authentication (RFC 7617), both optional."""

import base64
import binascii
import hmac
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.broker_keys.spindle import METRICS_PROTOCOL, METRICS_USER
from spindle.config.node_config import NodeConfig

CHALLENGE: Final = 'Basic realm="spindle", charset="UTF-8"'
METRICS_KEYS: Final = "METRICS"
"""The TLS keys of the metrics server begin with `listener.name.` and this name in lower case."""
_HEADER: Final = b"authorization:"


class MetricsAccess(NamedTuple):
    """The conditions for clients of the metrics.

    Attributes:
        has_tls: the metrics are read by HTTPS.
        user: `NAME:PASSWORD` of the user who may read the metrics; None if everyone may. Do not
            log it.
    """

    has_tls: bool = False
    user: bytes | None = None

    def is_allowed(self, head: bytes) -> bool:
        """Return True if an HTTP request has the right name and password, or needs none."""
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
    """Return who may read the metrics.

    Raises:
        ConfigError: the user has no name or no password.
    """
    text = config.optional_text(METRICS_USER)
    if text is not None and not all(text.partition(":")):
        raise ConfigError(f"{METRICS_USER}: want NAME:PASSWORD")
    has_tls = config.text(METRICS_PROTOCOL) == SecurityProtocol.SSL.name
    return MetricsAccess(has_tls, None if text is None else text.encode())
