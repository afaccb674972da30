"""The typed values of one node's property file: of single keys, and what several determine.

They parse, but may contradict each other: `node_checks` refuses contradictions.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from spindle.common.errors import ConfigError
from spindle.common.ids import Endpoint
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.definition import parse_all
from spindle.config.endpoints import (
    Address,
    VoterAddress,
    listener_name,
    parse_listeners,
    parse_security_protocols,
    parse_servers,
    parse_voters,
    security_protocol,
)
from spindle.config.typed_values import TypedValues
from spindle.config.values import ConfigValue
from spindle.security.secret import Secret

BROKER_ROLE: Final = "broker"
CONTROLLER_ROLE: Final = "controller"

_MAP_KEY: Final = "listener.security.protocol.map"
_PROTOCOL_KEY: Final = "security.inter.broker.protocol"


class NodeValues(TypedValues):
    """The values of a node.

    Attributes:
        static: the texts of the file by key; `node.id` and `broker.id` complete each other.
        values: the parsed value of every key of `BROKER_KEYS`.
        node_id: number of the node, >= 0.
        process_roles: `broker`, `controller` or both.
        listeners: every endpoint to listen on; host "" means every interface, port 0 a free port.
        advertised_listeners: the broker endpoints that clients connect to; host "" means the name
            of the machine, port 0 the port that the listener got.
        advertised_controller_listeners: the same for controllers, in order of
            `controller_listener_names`.
        controller_listener_names: upper case, at least one.
        inter_broker_listener_name: upper case.
        security_protocols: by listener name.
        quorum_voters: static voters; empty for a dynamic quorum.
        quorum_bootstrap_servers: addresses to ask for the quorum's leader.
        log_dirs: directories as written, at least one.
        metadata_log_dir: `metadata.log.dir`, else the first of `log_dirs`.
    """

    __slots__ = (
        "advertised_controller_listeners",
        "advertised_listeners",
        "controller_listener_names",
        "inter_broker_listener_name",
        "listeners",
        "log_dirs",
        "metadata_log_dir",
        "node_id",
        "process_roles",
        "quorum_bootstrap_servers",
        "quorum_voters",
        "security_protocols",
        "static",
        "values",
    )

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.static: Final[Mapping[str, str]] = MappingProxyType(_with_synonyms(properties))
        self.values: Final[Mapping[str, ConfigValue]] = MappingProxyType(
            parse_all(BROKER_KEYS, self.static)
        )
        self.node_id: Final = self.integer("node.id")
        self.process_roles: Final = self.names("process.roles")
        self.controller_listener_names: Final = tuple(
            name.upper() for name in self.names("controller.listener.names")
        )
        self.security_protocols: Final[Mapping[str, SecurityProtocol]] = MappingProxyType(
            self._protocols()
        )
        self.listeners: Final = parse_listeners(
            "listeners", self.names("listeners"), self.security_protocols, distinct_ports=True
        )
        advertised = self._advertised()
        self.advertised_listeners: Final = tuple(
            endpoint
            for endpoint in advertised or self.listeners
            if endpoint.listener not in self.controller_listener_names
        )
        self.advertised_controller_listeners: Final = self._advertised_controllers(advertised)
        self.inter_broker_listener_name: Final = self._inter_broker_listener_name()
        self.quorum_voters: Final[tuple[VoterAddress, ...]] = parse_voters(
            self.names("controller.quorum.voters")
        )
        self.quorum_bootstrap_servers: Final[tuple[Address, ...]] = parse_servers(
            "controller.quorum.bootstrap.servers",
            self.names("controller.quorum.bootstrap.servers"),
        )
        self.log_dirs: Final = self.names("log.dirs") or self.names("log.dir")
        self.metadata_log_dir: Final = self.optional_text("metadata.log.dir") or self.log_dirs[0]

    @property
    def is_broker(self) -> bool:
        return BROKER_ROLE in self.process_roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER_ROLE in self.process_roles

    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints on which the node listens for clients and brokers."""
        return tuple(
            endpoint
            for endpoint in self.listeners
            if endpoint.listener not in self.controller_listener_names
        )

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints on which the node listens for controllers; empty without that role."""
        return tuple(
            endpoint
            for endpoint in self.listeners
            if endpoint.listener in self.controller_listener_names
        )

    @property
    def rack(self) -> str | None:
        return self.optional_text("broker.rack")

    @property
    def delegation_token_secret(self) -> Secret | None:
        """The secret of delegation tokens (KIP-48); None if they are switched off."""
        text = self.optional_text("delegation.token.secret.key")
        return Secret(text) if text else None

    def get(self, key: str) -> ConfigValue:
        return self.values[key]

    # Values that depend on several keys.

    def _protocols(self) -> dict[str, SecurityProtocol]:
        protocols = parse_security_protocols(self.text(_MAP_KEY), _MAP_KEY)
        if _MAP_KEY in self.static:
            return protocols
        names = (*self.controller_listener_names, *map(listener_name, self.names("listeners")))
        secured = set(SecurityProtocol.__members__) - {SecurityProtocol.PLAINTEXT.name}
        if secured.isdisjoint(names):
            # Without a map and without security, controller listeners are plain text (KIP-778).
            for name in self.controller_listener_names:
                protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
        return protocols

    def _advertised(self) -> tuple[Endpoint, ...]:
        return parse_listeners(
            "advertised.listeners",
            self.names("advertised.listeners"),
            self.security_protocols,
            distinct_ports=False,
        )

    def _advertised_controllers(self, advertised: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
        by_name = {endpoint.listener: endpoint for endpoint in self.listeners}
        by_name |= {endpoint.listener: endpoint for endpoint in advertised}
        return tuple(by_name[name] for name in self.controller_listener_names if name in by_name)

    def _inter_broker_listener_name(self) -> str:
        name = self.optional_text("inter.broker.listener.name")
        if name is None:
            protocol = self.text(_PROTOCOL_KEY)
            security_protocol(protocol, _PROTOCOL_KEY)
            return protocol
        if _PROTOCOL_KEY in self.static:
            raise ConfigError(
                f"Only one of inter.broker.listener.name ({name}) and {_PROTOCOL_KEY} "
                f"({self.text(_PROTOCOL_KEY)}) should be set."
            )
        if name.upper() not in self.security_protocols:
            raise ConfigError(
                f"inter.broker.listener.name: listener {name.upper()} is not in {_MAP_KEY}"
            )
        return name.upper()


def _with_synonyms(properties: Mapping[str, str]) -> dict[str, str]:
    texts = dict(properties)
    for key, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if key in texts:
            # Parsed before it is copied, so that an error names the key in the file.
            BROKER_KEYS[key].parse(texts[key])
            texts.setdefault(other, texts[key])
    return texts
