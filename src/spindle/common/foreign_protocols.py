"""Other protocols that arrive where Kafka's is expected, to name them in errors.

Read as a frame size, their first bytes give a meaningless number; name the protocol instead.
"""

from typing import Final

_HTTP: Final = (b"HTTP", b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PRI ")
_TLS_RECORDS: Final = (b"\x16\x03", b"\x15\x03")
"""Handshake and alert, with the major version of all TLS (RFC 8446, section 5.1)."""


def foreign_protocol(announced_bytes: int) -> str:
    """Return which other protocol begins with this size, to follow a sentence; or nothing.

    Args:
        announced_bytes: the first four bytes of a frame, a signed number.
    """
    start = announced_bytes.to_bytes(4, "big", signed=True)
    if start in _HTTP:
        return " (the peer speaks HTTP, not Kafka's protocol)"
    if start[:2] in _TLS_RECORDS:
        return " (the peer speaks TLS, but this side does not: check security.protocol)"
    return ""
