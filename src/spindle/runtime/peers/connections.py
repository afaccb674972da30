"""The connections of a node to the brokers and controllers of its cluster, as configured."""

from collections.abc import Callable, Mapping
from typing import Final

from spindle.common.security_protocol import SecurityProtocol
from spindle.config.node_config import NodeConfig
from spindle.runtime.peers.links import PeerLinks
from spindle.runtime.peers.pool import PeerPool
from spindle.runtime.peers.security import NO_SECURITY, PeerSecurity


class PeerConnections:
    """Makes the connections of one node.

    Args:
        dynamic: returns the dynamic values of this node.

    Attributes:
        to_brokers: the security of the inter-broker listener.
        to_controllers: the security of the first of `controller.listener.names`.

    Raises:
        ConfigError: a key is missing, has no usable value or contradicts another one, or a store of
            keys or certificates cannot be used.
    """

    def __init__(self, config: NodeConfig, dynamic: Callable[[], Mapping[str, str]]) -> None:
        self._config = config
        self._dynamic = dynamic
        self._timeout_s = config.integer("controller.socket.timeout.ms") / 1000
        self.to_controllers: Final = self._security(
            config.controller_listener_names[0], "sasl.mechanism.controller.protocol"
        )
        self.to_brokers: Final = (
            self._security(
                config.inter_broker_listener_name, "sasl.mechanism.inter.broker.protocol"
            )
            if config.is_broker
            else NO_SECURITY
        )

    def _security(self, listener: str, mechanism_key: str) -> PeerSecurity:
        config = self._config
        protocol = config.security_protocols.get(listener, SecurityProtocol.PLAINTEXT)
        if protocol is SecurityProtocol.PLAINTEXT:
            return NO_SECURITY
        # Imported here, because nodes without security do not need it.
        from spindle.runtime.peers.credentials import PeerCredentials

        credentials = PeerCredentials(config, listener, mechanism_key, self._dynamic)
        return PeerSecurity(listener, protocol, credentials.present)

    def controller_pool(self, client_id: str) -> PeerPool:
        """Return connections to controllers, with a client id."""
        return PeerPool(client_id, self._timeout_s, self.to_controllers)

    def broker_pool(self, client_id: str) -> PeerPool:
        """Return connections to brokers, with a client id."""
        return PeerPool(client_id, self._timeout_s, self.to_brokers)

    def broker_links(self, client_id: str, timeout_s: float) -> PeerLinks:
        """Return connections to brokers for one request at a time each."""
        return PeerLinks(client_id, timeout_s, self.to_brokers)
