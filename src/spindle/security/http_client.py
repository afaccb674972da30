"""An HTTP request to an identity provider, with one deadline for all parts of its answer."""

import http.client
import io
import socket
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from spindle.security.tls_context import client_context
from spindle.security.tls_settings import TlsSettings

MAX_ANSWER_BYTES: Final = 1024 * 1024


def exchange(
    method: str,
    url: str,
    *,
    timeout_ms: int,
    tls: TlsSettings,
    headers: Mapping[str, str],
    body: str | None = None,
) -> tuple[int, bytes]:
    """Send a request; return status and body of the answer, at most 1 MiB of it.

    The deadline counts from the call. Only connecting and the TLS handshake can exceed it: each
    address of the server, and each read of the handshake, has the whole time limit.

    Raises:
        TimeoutError: the answer was not complete in time.
        OSError, http.client.HTTPException: the server cannot be reached, or does not speak HTTP.
    """
    parts = urlsplit(url)
    host, timeout_s = parts.hostname or "", timeout_ms / 1000
    deadline = time.monotonic() + timeout_s
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=timeout_s, context=client_context(tls)
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.connect()
        connection.sock.settimeout(_left_s(deadline))
        connection.request(method, target, body, dict(headers))
        answer = _Answer(connection.sock, deadline, method)
        with answer:
            answer.begin()
            return answer.status, answer.read(MAX_ANSWER_BYTES)
    finally:
        connection.close()


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _Answer(http.client.HTTPResponse):
    """HTTP response with an absolute deadline.

    The timeout of a socket starts again with each read, so an answer byte by byte would never end.
    """

    def __init__(self, opened: socket.socket, deadline: float, method: str) -> None:
        super().__init__(opened, method=method)
        self.fp.close()
        self.fp = io.BufferedReader(_UntilDeadline(opened, deadline))


class _UntilDeadline(io.RawIOBase):
    def __init__(self, opened: socket.socket, deadline: float) -> None:
        self._socket = opened
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(_left_s(self._deadline))
        return self._socket.recv_into(buffer)
