"""The sizes of the system's buffers for the sockets of clients."""

import socket
from typing import Any, Final, NamedTuple

from spindle.config.node_config import NodeConfig

_SEND_BYTES: Final = 208 * 1024
"""The default send buffer. Linux doubles it, and permits this size to every process. A larger
buffer, as Linux grows it automatically, costs a consumer on a fast network a tenth of its rate,
because records wait in it until they have left the processor's cache. Kafka's 100 KiB need twice as
many calls of the sending thread."""


class SocketBuffers(NamedTuple):
    """Sizes in bytes; 0 for the system's default."""

    send_bytes: int
    receive_bytes: int

    @classmethod
    def of(cls, config: NodeConfig) -> "SocketBuffers":
        """Return the sizes of a property file."""
        send_bytes = config.integer("socket.send.buffer.bytes")
        receive_bytes = config.integer("socket.receive.buffer.bytes")
        if "socket.send.buffer.bytes" not in config.static:
            send_bytes = _SEND_BYTES
        if "socket.receive.buffer.bytes" not in config.static:
            receive_bytes = 0
        return cls(max(send_bytes, 0), max(receive_bytes, 0))

    def set_on(self, listening: Any) -> None:
        """Set them on a listening socket; accepted connections inherit them."""
        if not isinstance(listening, socket.socket):
            return  # in the simulation
        if self.send_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_bytes)
        if self.receive_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)
