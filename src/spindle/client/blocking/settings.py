"""Kafka's client properties that this client honours, with Kafka's defaults.

Properties of consumer groups and deserializers are accepted and ignored, because this client
chooses its offsets itself and reads raw batches.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from spindle.client.security.settings import SecuritySettings, security_settings
from spindle.common.errors import ConfigError
from spindle.protocol.sentinels import READ_COMMITTED, READ_UNCOMMITTED

_ISOLATION_LEVELS: Final = {
    "read_uncommitted": READ_UNCOMMITTED,
    "read_committed": READ_COMMITTED,
}
_HOST: Final = re.compile(r"[^\s:]+|[0-9A-Fa-f.]*(:[0-9A-Fa-f.]*){2,}(%\S+)?")
"""A name or an IPv4 address, which have no colon, or an IPv6 address."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1
_MAX_PORT: Final = 65535
_SERVERS: Final = "bootstrap.servers"
_CONTROLLERS: Final = "bootstrap.controllers"
_REBOOTSTRAP: Final = "rebootstrap"
_CLIENT_ID: Final = "spindle-pipeline"
_FETCH_MAX_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address of `bootstrap.servers`."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Properties of a client. Times in ms, sizes in bytes.

    Attributes:
        asks_controllers: The bootstrap servers are controllers; ask the active one (KIP-919).
        rebootstraps: Begin again with the bootstrap servers when no known broker can be reached
            or a broker asks for it (metadata.recovery.strategy, KIP-899).
        checks_cluster: Send brokers the cluster and node id that are expected of them
            (metadata.cluster.check.enable, KIP-1242).
        connect_timeout_ms: The limit of each step of a new connection to a known broker: the
            connection itself, TLS, the login and the versions. A bootstrap server has it for the
            connection, and `request_timeout_ms` for the other steps.
    """

    bootstrap_servers: tuple[HostPort, ...]
    asks_controllers: bool = False
    rebootstraps: bool = True
    checks_cluster: bool = True
    client_id: str = _CLIENT_ID
    isolation_level: int = READ_UNCOMMITTED
    rack: str = ""
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = _FETCH_MAX_BYTES
    receive_buffer_bytes: int = -1
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def within(self, wait_ms: int) -> "ClientSettings":
        """Return these settings with at most this time for a connection and for a response."""
        wait_ms = min(wait_ms, self.request_timeout_ms)
        return replace(
            self,
            request_timeout_ms=wait_ms,
            api_timeout_ms=wait_ms,
            connect_timeout_ms=min(wait_ms, self.connect_timeout_ms),
        )


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """Return the settings of properties with Kafka's names (`bootstrap.servers`, `client.id`, ...).

    Raises:
        ConfigError: a property is missing or has no usable value.
    """
    asks_controllers = bool(properties.get(_CONTROLLERS))
    return ClientSettings(
        bootstrap_servers=_addresses(properties, _CONTROLLERS if asks_controllers else _SERVERS),
        asks_controllers=asks_controllers,
        rebootstraps=_rebootstraps(properties.get("metadata.recovery.strategy", _REBOOTSTRAP)),
        checks_cluster=_boolean(properties, "metadata.cluster.check.enable", default=True),
        client_id=properties.get("client.id", _CLIENT_ID),
        isolation_level=isolation_level(properties.get("isolation.level", "read_uncommitted")),
        rack=properties.get("client.rack", ""),
        request_timeout_ms=_integer(properties, "request.timeout.ms", 30_000, at_least=1),
        api_timeout_ms=_integer(properties, "default.api.timeout.ms", 60_000, at_least=1),
        connect_timeout_ms=min(
            _MAX_INT,
            _integer(
                properties,
                "socket.connection.setup.timeout.ms",
                10_000,
                at_least=1,
                at_most=_MAX_LONG,
            ),
        ),
        retry_backoff_ms=_integer(
            properties, "retry.backoff.ms", 100, at_least=0, at_most=_MAX_LONG
        ),
        retry_backoff_max_ms=_integer(
            properties, "retry.backoff.max.ms", 1_000, at_least=0, at_most=_MAX_LONG
        ),
        fetch_min_bytes=_integer(properties, "fetch.min.bytes", 1, at_least=0),
        fetch_max_wait_ms=_integer(properties, "fetch.max.wait.ms", 500, at_least=0),
        fetch_max_bytes=_integer(properties, "fetch.max.bytes", _FETCH_MAX_BYTES, at_least=1024),
        receive_buffer_bytes=_integer(properties, "receive.buffer.bytes", -1, at_least=-1),
        security=security_settings(properties),
    )


def isolation_level(text: str) -> int:
    """Return the number of an isolation level.

    Raises:
        ConfigError: the text is not an isolation level.
    """
    level = _ISOLATION_LEVELS.get(text.strip().lower())
    if level is None:
        allowed = " or ".join(_ISOLATION_LEVELS)
        raise ConfigError(f"isolation.level is {text!r}, want {allowed}")
    return level


def _rebootstraps(strategy: str) -> bool:
    known = strategy.strip().lower()
    if known not in (_REBOOTSTRAP, "none"):
        raise ConfigError(
            f"metadata.recovery.strategy is {strategy!r}, want {_REBOOTSTRAP} or none"
        )
    return known == _REBOOTSTRAP


def _boolean(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = properties.get(key)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(f"{key} is {text!r}, want true or false")
    return text.strip().lower() == "true"


def _addresses(properties: Mapping[str, str], key: str) -> tuple[HostPort, ...]:
    text = properties.get(key, "")
    addresses = tuple(_host_port(key, part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise ConfigError(f"{key} is {text!r}, want host:port[,host:port...]")
    return addresses


def _host_port(key: str, text: str) -> HostPort:
    # Kafka also takes addresses that name the listener: PLAINTEXT://host:port.
    address = text.rpartition("://")[2]
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = _PORT.fullmatch(port) is not None and 0 < int(port) <= _MAX_PORT
    if not _HOST.fullmatch(host) or not is_port:
        hint = "; put commas between addresses" if len(text.split()) > 1 else ""
        raise ConfigError(
            f"{key} has {text!r}, want host:port with a port of 1 to {_MAX_PORT}{hint}"
        )
    return HostPort(host, int(port))


def _integer(
    properties: Mapping[str, str], key: str, default: int, *, at_least: int, at_most: int = _MAX_INT
) -> int:
    text = properties.get(key)
    if text is None:
        return default
    if not _INTEGER.fullmatch(text.strip()):
        raise ConfigError(f"{key} is {text!r}, want an integer from {at_least} to {at_most}")
    value = int(text)
    if not at_least <= value <= at_most:
        raise ConfigError(f"{key} is {value}, want {at_least} to {at_most}")
    return value
