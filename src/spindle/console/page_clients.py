"""The clients of pages and actions, apart from that of the poll."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import ClientSettings

MAX_CLIENTS: Final = 8


class PageClients:
    """Up to 8 clients, each used by one thread at a time, so that pages do not wait for a slow one.

    Args:
        wait_ms: maximum time for a connection and for a response.
    """

    def __init__(self, settings: ClientSettings, wait_ms: int) -> None:
        self._settings = settings.within(wait_ms)
        self._free = threading.BoundedSemaphore(MAX_CLIENTS)
        self._idle: deque[WireClient] = deque()

    @contextmanager
    def one(self) -> Iterator[WireClient]:
        """Lend a client; one that fails is closed."""
        with self._free:
            try:
                client = self._idle.pop()
            except IndexError:
                client = WireClient(self._settings)
            try:
                yield client
            except BaseException:
                client.close()
                raise
            self._idle.append(client)

    def close(self) -> None:
        """Close the clients that nobody uses."""
        while self._idle:
            self._idle.pop().close()
