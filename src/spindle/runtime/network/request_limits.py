"""Limits shared by all connections of a broker, or of a controller.

A connection above the limit is closed at once. Bytes of requests that were read and are not
answered count against `queued.max.request.bytes`. Above it, no connection is read until some
requests are answered, except that a frame that has begun may be completed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from spindle.config.broker_values import BrokerValues
from spindle.config.endpoints import parse_address_limits
from spindle.config.node_config import NodeConfig
from spindle.runtime.network.send_backlog import SendBacklog


class RequestLimits:
    """Counters and limits. Belongs to one event loop; all listeners of a role share it.

    Attributes:
        max_request_bytes: `socket.request.max.bytes`.
        max_idle_ms: `connections.max.idle.ms`; 0 or less for no limit.
        held_bytes: bytes of requests that were read, or are being read, and are not answered.
        unsent: the responses that peers have not read.
    """

    def __init__(
        self,
        *,
        max_request_bytes: int,
        max_connections: int,
        max_connections_per_ip: int,
        per_ip_overrides: dict[str, int],
        max_idle_ms: int,
        max_held_bytes: int,
        max_descriptors: int,
    ) -> None:
        self.max_request_bytes = max_request_bytes
        self.max_idle_ms = max_idle_ms
        self.held_bytes = 0
        self.unsent = SendBacklog(lambda: asyncio.get_running_loop().time())
        self._max_connections = max_connections
        self._max_descriptors = max_descriptors
        self._max_connections_per_ip = max_connections_per_ip
        self._per_ip_overrides = per_ip_overrides
        self._max_held_bytes = max_held_bytes
        self._count = 0
        self._per_ip: Counter[str] = Counter()
        self._waiting: dict[Callable[[], None], None] = {}

    @classmethod
    def of(cls, config: NodeConfig, max_descriptors: int) -> "RequestLimits":
        """Return the limits of a property file.

        Args:
            max_descriptors: the number of connections that the limit of open files allows.
        """
        limits = cls(
            max_request_bytes=config.integer("socket.request.max.bytes"),
            max_connections=0,
            max_connections_per_ip=0,
            per_ip_overrides={},
            max_idle_ms=config.integer("connections.max.idle.ms"),
            max_held_bytes=config.integer("queued.max.request.bytes"),
            max_descriptors=max_descriptors,
        )
        limits.update(BrokerValues(config))
        return limits

    def update(self, values: BrokerValues) -> None:
        """Apply the present limits on connections; open connections stay open."""
        self._max_connections = values.integer("max.connections")
        self._max_connections_per_ip = values.integer("max.connections.per.ip")
        self._per_ip_overrides = parse_address_limits(
            values.text("max.connections.per.ip.overrides")
        )

    # -- connections

    def admit(self, address: str) -> str | None:
        """Count a new connection, or return the name of the limit that refuses it."""
        if self._count >= self._max_connections:
            return f"max.connections={self._max_connections}"
        if self._count >= self._max_descriptors:
            return f"RLIMIT_NOFILE leaves room for {self._max_descriptors} connections"
        most = self._per_ip_overrides.get(address, self._max_connections_per_ip)
        if self._per_ip[address] >= most:
            name = "max.connections.per.ip"
            name += ".overrides" if address in self._per_ip_overrides else ""
            return f"{name}={most}"
        self._count += 1
        self._per_ip[address] += 1
        return None

    def leave(self, address: str) -> None:
        """Stop counting a connection that was admitted."""
        self._count -= 1
        self._per_ip[address] -= 1
        if not self._per_ip[address]:
            del self._per_ip[address]

    # -- bytes

    @property
    def is_full(self) -> bool:
        """True if no further request may be read."""
        return 0 <= self._max_held_bytes <= self.held_bytes

    def hold(self, count: int) -> None:
        self.held_bytes += count

    def release(self, count: int) -> None:
        """Subtract bytes and wake the connections that wait for room."""
        self.held_bytes -= count
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when the bytes are below the limit again."""
        self._waiting[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)
