"""Hosts of ACLs: an address, `*`, or a range of addresses in CIDR notation (KIP-1276).

A range has the address of a network and the number of its leading bits, such as `10.0.0.0/8` or
`2001:db8::/32`; bits behind the prefix are ignored. An IPv4 address is in no range of IPv6.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

ANY_HOST: Final = "*"
_IPV4: Final = re.compile(r"((?:[0-9]{1,3}\.){3}[0-9]{1,3})/([0-9]{1,2})\Z", re.ASCII)
_IPV6_PREFIX: Final = re.compile(r"[+-]?[0-9]{1,9}\Z", re.ASCII)
_REMEMBERED: Final = 10_000

Network: TypeAlias = IPv4Network | IPv6Network


def is_range(pattern: str) -> bool:
    """Return whether the host of an ACL is meant as a range, be it valid or not."""
    return "/" in pattern


def parse_range(pattern: str) -> Network:
    """Return the range of a pattern in CIDR notation.

    Raises:
        ValueError: the pattern is not valid; the text is Kafka's.
    """
    return _ipv6_range(pattern) if ":" in pattern else _ipv4_range(pattern)


def host_matches(pattern: str, host: str) -> bool:
    """Return whether an ACL with this host applies to a client.

    Args:
        host: the client's address, as `java_host_text` returns it.
    """
    return pattern in (host, ANY_HOST) or is_in_range(pattern, host)


def is_in_range(pattern: str, host: str) -> bool:
    """Return whether a client's address is in the range of a pattern; False if it is no range."""
    network, address = _range_or_none(pattern), _address_or_none(host)
    return network is not None and address is not None and address in network


@lru_cache(maxsize=_REMEMBERED)
def _address_or_none(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


@lru_cache(maxsize=_REMEMBERED)
def _range_or_none(pattern: str) -> Network | None:
    if not is_range(pattern):
        return None
    try:
        return parse_range(pattern)
    except ValueError:
        return None


def _ipv4_range(pattern: str) -> IPv4Network:
    match = _IPV4.match(pattern)
    if match is None:
        raise ValueError(f"Could not parse [{pattern}]")
    octets = [_at_most(255, octet) for octet in match[1].split(".")]
    prefix_length = _at_most(32, match[2])
    return IPv4Network((int.from_bytes(octets), prefix_length), strict=False)


def _ipv6_range(pattern: str) -> IPv6Network:
    address, _, prefix = pattern.partition("/")
    if not _IPV6_PREFIX.match(prefix):
        raise ValueError(f"Could not parse [{pattern}] - invalid prefix length")
    prefix_length = int(prefix)
    if not 0 <= prefix_length <= 128:
        raise ValueError(f"Could not parse [{pattern}] - prefix length must be between 0 and 128")
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    try:
        parsed = ip_address(bare.partition("%")[0])
    except ValueError:
        raise ValueError(f"Could not parse [{address}]") from None
    if not isinstance(parsed, IPv6Address) or parsed.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return IPv6Network((int(parsed), prefix_length), strict=False)


def _at_most(limit: int, digits: str) -> int:
    number = int(digits)
    if number > limit:
        raise ValueError(f"Value [{number}] not in range [0,{limit}]")
    return number
