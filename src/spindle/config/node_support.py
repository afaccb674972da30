"""Settings that protect a Kafka cluster and that Spindle refuses, because it lacks the protection.

A key that merely changes nothing is not refused but warned about, see `node_warnings`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spindle.common.errors import ConfigError
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.authorizer import authorizer_settings, early_start_listeners
from spindle.config.endpoints import listener_name

if TYPE_CHECKING:
    from spindle.config.node_config import NodeConfig


def check_listener_names(properties: Mapping[str, str]) -> None:
    """Refuse a listener that is named after SASL, if no map says what its name means.

    Without `listener.security.protocol.map` such a listener also leaves the controller listener
    without a protocol (KIP-778), and that error would lead the user to the wrong key.

    Raises:
        ConfigError: there is such a listener.
    """
    if "listener.security.protocol.map" in properties:
        return
    for entry in properties.get("listeners", "").split(","):
        name = listener_name(entry.strip())
        protocol = SecurityProtocol.__members__.get(name)
        if protocol is not None and protocol.has_sasl:
            raise _unsupported(name, protocol)


def check_supported(config: "NodeConfig") -> None:
    """Refuse a node whose clients would rely on SASL or an authorizer of their own.

    Raises:
        ConfigError: a listener of this node, or the listener of its controllers, has a security
            protocol with SASL; or the settings of the authorizer are wrong.
    """
    listening = [endpoint.listener for endpoint in config.listeners]
    for name in dict.fromkeys((*listening, *config.controller_listener_names)):
        protocol = config.security_protocols.get(name)
        if protocol is not None and protocol.has_sasl:
            raise _unsupported(name, protocol)
    authorizer_settings(config)
    early_start_listeners(config)


def _unsupported(listener: str, protocol: SecurityProtocol) -> ConfigError:
    return ConfigError(
        f"listener {listener} uses {protocol.name}: Spindle serves PLAINTEXT and SSL only; change "
        "listeners or listener.security.protocol.map"
    )
