"""The listeners of a node: where they are bound, what they serve, how others reach them."""

import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from spindle.common.ids import Endpoint
from spindle.serving.context import Handler

Listen = Callable[[str, str, int], Awaitable[Any]]
"""Makes a bound socket of a listener's name, host and port (`Machine.listen`)."""


class Listener:
    """A bound socket and the handlers it serves.

    Connections that arrive before `open` are accepted and wait unread, as in Kafka a broker that
    was not un-fenced yet keeps its data plane closed.
    """

    def __init__(self, name: str, host: str, port: int, handlers: Mapping[int, Handler]) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.handlers = handlers
        self.socket: Any = None


async def bind(listener: Listener, listen: Listen) -> None:
    """Take the port; port 0 becomes the one that the system gave.

    Raises:
        ConfigError: the address cannot be had.
    """
    listener.socket = await listen(listener.name, listener.host, listener.port)
    listener.port = listener.socket.getsockname()[1]


def reachable(endpoints: Iterable[Endpoint], listeners: Iterable[Listener]) -> list[Endpoint]:
    """Advertised endpoints; a port or host that was left open is the one that there really is."""
    ports = {listener.name: listener.port for listener in listeners}
    return [
        e._replace(port=e.port or ports.get(e.listener, 0), host=e.host or socket.getfqdn())
        for e in endpoints
    ]
