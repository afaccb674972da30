"""Addresses of clients as texts."""

from functools import lru_cache
from ipaddress import IPv6Address


def java_host_text(address: str) -> str:
    """Return an address as Java writes it, because ACLs name hosts so.

    An IPv6 address has eight groups without leading zeros. An IPv4 address that came through a
    socket for both is an IPv4 address.
    """
    return _of_ipv6(address) if ":" in address else address


@lru_cache(maxsize=4096)
def _of_ipv6(address: str) -> str:
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
