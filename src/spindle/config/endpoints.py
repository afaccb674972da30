"""Addresses inside configuration values: listeners, quorum voters and bootstrap servers.

Parses `NAME://host:port`, `id@host:port`, `host:port` and `address:count`. Host names are kept as
written and never resolved.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.common.ids import Endpoint
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.values import ConfigValue, invalid_value

WILDCARD_HOST: Final = "0.0.0.0"
LAST_PORT: Final = 65535

_LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)\Z")
_HOST_AND_PORT = re.compile(r"(?:.*?://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)\Z")
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*\Z")


class VoterAddress(NamedTuple):
    """A static voter of the controller quorum."""

    node_id: int
    host: str
    port: int


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


def parse_security_protocols(text: str, key: str) -> dict[str, SecurityProtocol]:
    """Return the protocols of `NAME:PROTOCOL,...` by listener name in upper case.

    Raises:
        ConfigError: an entry is not a pair, or its protocol is unknown.
    """
    protocols: dict[str, SecurityProtocol] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        listener, separator, protocol = entry.rpartition(":")
        if not separator:
            raise ConfigError(
                f"Error parsing configuration property '{key}': entry '{entry}' is not of the form "
                "LISTENER:PROTOCOL"
            )
        protocols[listener.strip().upper()] = security_protocol(protocol.strip(), key)
    return protocols


def security_protocol(name: str, key: str) -> SecurityProtocol:
    """Return the security protocol of a name.

    Raises:
        ConfigError: there is no protocol of that name.
    """
    try:
        return SecurityProtocol[name.upper()]
    except KeyError:
        raise ConfigError(
            f"Invalid security protocol `{name}` defined in {key}: it must be one of "
            f"{', '.join(SecurityProtocol.__members__)}"
        ) from None


def listener_name(text: str) -> str:
    """Return the text before the first colon, or the whole text, in upper case."""
    return text.partition(":")[0].upper()


def parse_listeners(
    key: str,
    entries: Iterable[str],
    protocols: Mapping[str, SecurityProtocol],
    *,
    distinct_ports: bool,
) -> tuple[Endpoint, ...]:
    """Return the endpoints of `listeners` or `advertised.listeners`, in order.

    Args:
        protocols: security protocols by listener name.
        distinct_ports: refuse two listeners on one port other than 0, unless one address is IPv4
            and the other IPv6.

    Raises:
        ConfigError: an entry cannot be parsed, has no protocol, or has the name or port of
            another.
    """
    entries = tuple(entries)
    endpoints = tuple(_parse_listener(key, entry, protocols) for entry in entries)
    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"{key}={','.join(entries)}: each listener must have a different name, but "
            f"{_first_repeated(names)} is used twice"
        )
    if distinct_ports:
        _check_ports(key, entries, endpoints)
    return endpoints


def _parse_listener(key: str, entry: str, protocols: Mapping[str, SecurityProtocol]) -> Endpoint:
    match = _LISTENER.match(entry)
    if match is None:
        raise ConfigError(f"{key}: cannot parse '{entry}': it must be NAME://host:port")
    name, host, port_text = match[1].upper(), match[2], match[3]
    port = int(port_text)
    if not 0 <= port <= LAST_PORT:
        raise ConfigError(f"{key}: the port of '{entry}' must be between 0 and {LAST_PORT}")
    if name not in protocols:
        raise ConfigError(
            f"{key}: no security protocol is defined for listener {name}; add it to "
            "listener.security.protocol.map"
        )
    return Endpoint(name, host, port, protocols[name])


def _check_ports(key: str, entries: tuple[str, ...], endpoints: tuple[Endpoint, ...]) -> None:
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) < 2:
            continue
        families = sorted(_address_family(endpoint.host) for endpoint in sharing)
        if families != [4, 6]:
            raise ConfigError(
                f"{key}={','.join(entries)}: each listener must have a different port (only one "
                f"IPv4 and one IPv6 address may share one), but {port} is used {len(sharing)} times"
            )


def _address_family(host: str) -> int:
    """Return 4 or 6 for a literal address, 0 for a host name or an empty host."""
    if ":" in host:
        return 6
    parts = host.split(".")
    is_ipv4 = len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts)
    return 4 if is_ipv4 else 0


def _first_repeated(names: list[str]) -> str:
    return next(name for index, name in enumerate(names) if name in names[:index])


def parse_voters(entries: Iterable[str]) -> tuple[VoterAddress, ...]:
    """Return the static voters, in order.

    Raises:
        ConfigError: an entry is not `id@host:port`.
    """
    return tuple(map(_parse_voter, entries))


def _parse_voter(entry: str) -> VoterAddress:
    identifier, separator, address = entry.partition("@")
    match = _HOST_AND_PORT.match(address)
    if not separator or match is None or not match[1]:
        raise invalid_value(
            "controller.quorum.voters",
            entry,
            "Each entry should be in the form `{id}@{host}:{port}`.",
        )
    if not identifier.isdecimal():
        raise invalid_value(
            "controller.quorum.voters",
            entry,
            f"Failed to parse voter ID as an integer from {identifier}",
        )
    return VoterAddress(
        int(identifier), match[1], _port(match[2], "controller.quorum.voters", entry)
    )


def parse_servers(key: str, entries: Iterable[str]) -> tuple[Address, ...]:
    """Return the `host:port` addresses, in order.

    Raises:
        ConfigError: an entry is not `host:port`.
    """
    return tuple(_parse_server(key, entry) for entry in entries)


def _parse_server(key: str, entry: str) -> Address:
    match = _HOST_AND_PORT.match(entry)
    if match is None or not match[1]:
        raise invalid_value(key, entry, "Each entry should be in the form `{host}:{port}`.")
    return Address(match[1], _port(match[2], key, entry))


def _port(text: str, key: str, entry: str) -> int:
    if int(text) > LAST_PORT:
        raise invalid_value(key, entry, f"The port must be between 0 and {LAST_PORT}.")
    return int(text)


def parse_address_limits(text: str) -> dict[str, int]:
    """Return the limits of `max.connections.per.ip.overrides` by address.

    Raises:
        ConfigError: an entry is not `address:count`, with a count of at least 0.
    """
    limits: dict[str, int] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        address, separator, count = (part.strip() for part in entry.rpartition(":"))
        if not separator or not address or not count.isdecimal() or not _HOST.match(address):
            raise ConfigError(
                f"max.connections.per.ip.overrides: '{entry}' is not of the form address:count; "
                "write for example 10.0.0.7:200,10.0.0.8:10"
            )
        limits[address] = int(count)
    return limits


class AddressLimits:
    """A list of `address:count`."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        parse_address_limits(value if isinstance(value, str) else "")

    def __str__(self) -> str:
        return "{address}:{count},..."


class VoterList:
    """A list of `id@host:port`."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        if not isinstance(value, tuple):
            raise invalid_value(name, None)
        parse_voters(value)

    def __str__(self) -> str:
        return "non-empty list"


class ServerList:
    """A list of `host:port`."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        if not isinstance(value, tuple):
            raise invalid_value(name, None)
        parse_servers(name, value)

    def __str__(self) -> str:
        return "non-empty list"


class HostAndPort:
    """Unset, or one `host:port`."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        if value is None:
            return
        if not isinstance(value, str):
            raise invalid_value(name, value)
        parse_servers(name, [value])

    def __str__(self) -> str:
        return "{host}:{port}"
