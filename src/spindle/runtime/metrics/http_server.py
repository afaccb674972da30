"""The HTTP endpoints of a node: /metrics, /health and /ready, on the node's event loop.

The server is small on purpose: GET and HEAD, one request per connection, and limits for everything,
so that no HTTP client can harm the clients of the node.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from spindle.common.errors import ConfigError
from spindle.runtime.metrics.access import CHALLENGE, MetricsAccess

log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 8192
_MAX_CONNECTIONS: Final = 32
_TIMEOUT_S: Final = 5.0
_FOR_EVERYONE: Final = MetricsAccess()
_TEXT: Final = "text/plain; charset=utf-8"
METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Page = Callable[[], Awaitable[bytes]]
"""Makes the text of one path."""

_Answer = tuple[HTTPStatus, str, bytes]


class MetricsServer:
    """Serves one address.

    Args:
        pages: metrics by path; requests that wait for the same page share one rendering.
        unready_reason: returns None if the node serves clients, otherwise the reason.
        timeout_s: limit for a TLS handshake, for a request, and for the client to read the
            response.
        access: who may read the pages. Health and readiness are for everyone.
        tls: keys and settings of TLS; None for plain HTTP.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Page],
        unready_reason: Callable[[], str | None],
        timeout_s: float = _TIMEOUT_S,
        access: MetricsAccess = _FOR_EVERYONE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._pages = pages
        self._why_not_ready = unready_reason
        self._timeout_s = timeout_s
        self._access = access
        self._tls = tls
        self._rendering: dict[str, asyncio.Task[bytes]] = {}
        self._servers: list[asyncio.Server] = []
        self._exchanges: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to serve. If the port is 0, `port` is then the port that the system chose.

        Raises:
            ConfigError: the node cannot listen on the address.
        """
        try:
            self._servers = [await self._listen(host=self.host, port=self.port)]
        except OSError as error:
            raise ConfigError(
                f"spindle.metrics.listener: cannot listen on {self.host}:{self.port}: "
                f"{error.strerror or error}"
            ) from error
        self.port = self._servers[0].sockets[0].getsockname()[1]

    async def _listen(self, **where: Any) -> asyncio.Server:
        return await asyncio.start_server(
            self._accept,
            limit=_HEAD_BYTES,
            ssl=self._tls,
            ssl_handshake_timeout=self._timeout_s if self._tls else None,
            **where,
        )

    async def renew(self, tls: ssl.SSLContext) -> None:
        """Use other TLS keys for new connections, on the same sockets."""
        self._tls = tls
        former = self._servers
        descriptors = [
            os.dup(listener.fileno()) for server in former for listener in server.sockets
        ]
        self._servers = [
            await self._listen(sock=socket.socket(fileno=descriptor)) for descriptor in descriptors
        ]
        for server in former:
            server.close()

    @property
    def connection_count(self) -> int:
        """How many connections are open, those that wait for their answer included."""
        return len(self._exchanges)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks: list[asyncio.Task[Any]] = [*self._exchanges, *self._rendering.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.connection_count >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request in limited time."""
        try:
            async with asyncio.timeout(self._timeout_s):
                method, answer = await self._answer(reader)
            writer.write(_response(method, answer))
            writer.close()
            async with asyncio.timeout(self._timeout_s):
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError) as error:
            log.debug("metrics listener: %r", error)
        except Exception:  # a metric that cannot be made must not end the task without a log line
            log.exception("metrics listener")
        finally:
            # This limit also applies to a client that never reads its response.
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, _Answer]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "GET", _text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", _text(HTTPStatus.BAD_REQUEST)
        method, target = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return method, _text(HTTPStatus.METHOD_NOT_ALLOWED)
        if target in self._pages:
            if not self._access.is_allowed(head):
                return method, _text(HTTPStatus.UNAUTHORIZED)
            return method, (HTTPStatus.OK, METRICS_CONTENT_TYPE, await self._page(target))
        if target == "/health":
            return method, _text(HTTPStatus.OK, "alive")
        if target == "/ready":
            reason = self._why_not_ready()
            if reason is None:
                return method, _text(HTTPStatus.OK, "ready")
            return method, _text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        known = ", ".join((*self._pages, "/health"))
        return method, _text(HTTPStatus.NOT_FOUND, f"{known} and /ready are here")

    async def _page(self, path: str) -> bytes:
        task = self._rendering.get(path)
        if task is None or task.done():
            task = self._rendering[path] = asyncio.ensure_future(self._work(path))
        # Shielded, because a client that disconnects must not cancel the page for the others.
        return await asyncio.shield(task)

    async def _work(self, path: str) -> bytes:
        return await self._pages[path]()


def _text(status: HTTPStatus, text: str | None = None) -> _Answer:
    return status, _TEXT, f"{text or status.phrase}\n".encode()


def _response(method: str, answer: _Answer) -> bytes:
    status, content_type, body = answer
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if status is HTTPStatus.UNAUTHORIZED:
        lines.append(f"WWW-Authenticate: {CHALLENGE}")
    head = "\r\n".join([*lines, "", ""]).encode()
    return head if method == "HEAD" else head + body
