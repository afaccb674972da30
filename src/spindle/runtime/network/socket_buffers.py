"""The sizes of the system's buffers for the sockets of clients."""

import socket
from typing import Any, Final, NamedTuple

from spindle.config.node_config import NodeConfig

_SEND_BYTES: Final = 208 * 1024
"""Unless the file says otherwise. Linux doubles it, and lets every process set so much. A larger
buffer, such as Linux grows itself, costs a consumer on a quick network a tenth of its rate,
because records wait in it until they have left the processor's cache. Kafka's 100 KiB need twice as
many turns of the thread that sends."""


class SocketBuffers(NamedTuple):
    """Sizes in bytes; 0 leaves one to the system."""

    send_bytes: int
    receive_bytes: int

    @classmethod
    def of(cls, config: NodeConfig) -> "SocketBuffers":
        """Return the sizes that a property file asks for."""
        send_bytes = config.integer("socket.send.buffer.bytes")
        receive_bytes = config.integer("socket.receive.buffer.bytes")
        if "socket.send.buffer.bytes" not in config.static:
            send_bytes = _SEND_BYTES
        if "socket.receive.buffer.bytes" not in config.static:
            receive_bytes = 0
        return cls(max(send_bytes, 0), max(receive_bytes, 0))

    def set_on(self, listening: Any) -> None:
        """Give them to a listening socket; the connections that it accepts inherit them."""
        if not isinstance(listening, socket.socket):
            return  # of the simulation
        if self.send_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_bytes)
        if self.receive_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)
