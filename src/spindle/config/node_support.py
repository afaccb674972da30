"""Settings that protect a Kafka cluster and that Spindle refuses, because it lacks the protection.

A key that merely changes nothing is not refused but warned about, see `node_warnings`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spindle.common.errors import ConfigError
from spindle.config.endpoints import SECURITY_PROTOCOLS, listener_name

if TYPE_CHECKING:
    from spindle.config.node_config import NodeConfig

_PLAINTEXT: Final = SECURITY_PROTOCOLS["PLAINTEXT"]


def check_listener_names(properties: Mapping[str, str]) -> None:
    """Refuse a listener that is named after TLS or SASL, if no map says what its name means.

    Without `listener.security.protocol.map` such a listener also leaves the controller listener
    without a protocol (KIP-778), and that error would lead the user to the wrong key.

    Raises:
        ConfigError: there is such a listener.
    """
    if "listener.security.protocol.map" in properties:
        return
    for entry in properties.get("listeners", "").split(","):
        name = listener_name(entry.strip())
        if SECURITY_PROTOCOLS.get(name, _PLAINTEXT) != _PLAINTEXT:
            raise _unsupported(name, name)


def check_supported(config: "NodeConfig") -> None:
    """Refuse a node whose clients would rely on TLS, SASL or an authorizer.

    Raises:
        ConfigError: a listener of this node, or the listener of its controllers, has another
            security protocol than PLAINTEXT; or an authorizer is set.
    """
    listening = [endpoint.listener for endpoint in config.listeners]
    for name in dict.fromkeys((*listening, *config.controller_listener_names)):
        protocol = config.security_protocols.get(name, _PLAINTEXT)
        if protocol != _PLAINTEXT:
            names = {number: text for text, number in SECURITY_PROTOCOLS.items()}
            raise _unsupported(name, names[protocol])
    authorizer = config.text("authorizer.class.name")
    if authorizer:
        raise ConfigError(
            f"authorizer.class.name={authorizer}: Spindle has no authorizer, so every request "
            "would be allowed; remove the key if that is what you want"
        )


def _unsupported(listener: str, protocol: str) -> ConfigError:
    return ConfigError(
        f"listener {listener} uses {protocol}: Spindle serves PLAINTEXT only; change listeners or "
        "listener.security.protocol.map"
    )
