"""What a node may be configured to do in Kafka but Spindle cannot do.

A setting that would silently weaken the protection of a cluster is refused; see LIMITATIONS for
settings that merely have no effect.
"""

from spindle.common.errors import ConfigError
from spindle.config.endpoints import SECURITY_PROTOCOLS
from spindle.config.node_config import NodeConfig


def check_supported(config: NodeConfig) -> None:
    """Refuse to run a node that promises more than it can keep.

    Raises:
        ConfigError: a listener with TLS or SASL, or an authorizer.
    """
    names = {number: name for name, number in SECURITY_PROTOCOLS.items()}
    for endpoint in config.listeners:
        protocol = names[endpoint.security_protocol]
        if protocol != "PLAINTEXT":
            raise ConfigError(
                f"listeners: {endpoint.listener} has the security protocol {protocol}, which this "
                "version does not serve; only PLAINTEXT is served"
            )
    authorizer = config.text("authorizer.class.name")
    if authorizer:
        raise ConfigError(
            f"authorizer.class.name={authorizer}: this version has no authorizer, so every request "
            "would be allowed; remove the key if that is what you want"
        )
