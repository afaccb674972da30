"""Ask a token endpoint over HTTP, with one deadline for the request and all parts of its answer."""

import http.client
import io
import socket
import time
from base64 import b64encode
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from spindle.client.security.token_settings import TokenEndpoint
from spindle.security.tls_context import client_context

MAX_ANSWER_BYTES: Final = 1024 * 1024


def post(endpoint: TokenEndpoint) -> tuple[int, bytes]:
    """Send the client credentials (RFC 6749, section 4.4); return status and body of the answer.

    The deadline counts from the call. Only connecting and the TLS handshake can exceed it: each
    address of the endpoint, and each read of the handshake, has the whole time for itself.

    Raises:
        TimeoutError: the answer was not complete in time.
        OSError, http.client.HTTPException: the endpoint cannot be reached, or does not speak HTTP.
    """
    url = urlsplit(endpoint.url)
    deadline = time.monotonic() + endpoint.timeout_ms / 1000
    connection = _connection(endpoint)
    form = {"grant_type": "client_credentials"}
    if endpoint.scope:
        form["scope"] = endpoint.scope
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = {
        "Authorization": f"Basic {_basic(endpoint)}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    try:
        connection.connect()
        connection.sock.settimeout(_left_s(deadline))
        connection.request("POST", target, urlencode(form), headers)
        answer = _Answer(connection.sock, deadline)
        with answer:
            answer.begin()
            return answer.status, answer.read(MAX_ANSWER_BYTES)
    finally:
        connection.close()


def _connection(endpoint: TokenEndpoint) -> http.client.HTTPConnection:
    url = urlsplit(endpoint.url)
    host, timeout_s = url.hostname or "", endpoint.timeout_ms / 1000
    if url.scheme == "https":
        context = client_context(endpoint.tls)
        return http.client.HTTPSConnection(host, url.port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, url.port, timeout=timeout_s)


def _basic(endpoint: TokenEndpoint) -> str:
    pair = (endpoint.client_id, endpoint.client_secret.text)
    if endpoint.is_header_url_encoded:
        pair = (quote(pair[0], safe=""), quote(pair[1], safe=""))
    return b64encode(":".join(pair).encode()).decode()


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _Answer(http.client.HTTPResponse):
    """An answer of which each read waits only until the deadline.

    The timeout of a socket begins anew with each read, so an answer byte by byte would never end.
    """

    def __init__(self, opened: socket.socket, deadline: float) -> None:
        super().__init__(opened, method="POST")
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
