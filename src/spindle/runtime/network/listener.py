"""The listeners of a node: their sockets, their handlers, and their addresses for clients."""

import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spindle.common.ids import Endpoint
from spindle.common.security_protocol import SecurityProtocol
from spindle.runtime.network.sasl_state import SaslRules
from spindle.runtime.network.socket_buffers import SocketBuffers
from spindle.serving.context import Handler

if TYPE_CHECKING:
    from spindle.runtime.network.listener_tls import ListenerTls

Listen = Callable[[str, str, int], Awaitable[Any]]
"""Makes a bound socket from a listener's name, host and port (`Machine.listen`)."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How a listener secures its connections; `tls` is None where the protocol has none."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: "ListenerTls | None" = None


NO_SECURITY: Final = ListenerSecurity()


class Listener:
    """A bound socket and the handlers it serves.

    Connections that arrive before `open` are accepted but not read, as Kafka's broker keeps its
    data plane closed until it is unfenced. `sasl` is None where clients do not log in.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        handlers: Mapping[int, Handler],
        security: ListenerSecurity = NO_SECURITY,
        sasl: SaslRules | None = None,
    ) -> None:
        self.name = name
        self.security = security
        self.sasl = sasl
        self.host = host
        self.port = port
        self.handlers = handlers
        self.socket: Any = None


async def bind(listener: Listener, listen: Listen, buffers: SocketBuffers) -> None:
    """Bind the socket. If the port is 0, the listener then has the port that the system chose.

    Connections inherit `buffers`, also those that arrive before `open`.

    Raises:
        ConfigError: the address cannot be bound.
    """
    listener.socket = await listen(listener.name, listener.host, listener.port)
    buffers.set_on(listener.socket)
    listener.port = listener.socket.getsockname()[1]


def reachable(endpoints: Iterable[Endpoint], listeners: Iterable[Listener]) -> list[Endpoint]:
    """Return the advertised endpoints, with the bound host or port where none is configured."""
    ports = {listener.name: listener.port for listener in listeners}
    return [
        e._replace(port=e.port or ports.get(e.listener, 0), host=e.host or socket.getfqdn())
        for e in endpoints
    ]
