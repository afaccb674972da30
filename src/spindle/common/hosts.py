"""Addresses of clients as texts."""

from functools import lru_cache
from ipaddress import IPv6Address


def java_host_text(address: str) -> str:
    """Return an address as Java writes it, because ACLs name hosts so.

    An IPv6 address has eight groups without leading zeros. An IPv4-mapped IPv6 address is returned
    as IPv4.
    """
    return _ipv6_text(address) if ":" in address else address


@lru_cache(maxsize=4096)
def _ipv6_text(address: str) -> str:
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
