"""A network of connections that behave as TCP does: bytes arrive late, in order, or never.

A lost segment is one that comes later; a cut holds segments in flight until it heals; a broken
connection shows both ends an error, at different times; one that has gone silent never does, as
where a box in between has forgotten it. A host that lost its power is silent until it serves again;
from then on it resets old connections on which something comes. Cuts have a direction. A request
that is answered by nobody is asked again by its sender: so it arrives twice where the answer was
lost.
"""

import asyncio
import errno
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import TYPE_CHECKING, Any, Final

from spindle.common.errors import ConfigError
from verification.simulation.incarnation import LIFE, Life

if TYPE_CHECKING:
    from verification.simulation.loop import SimulatedLoop

_CONNECT_TIMEOUT_S: Final = 2.0
_RESET_S: Final = 0.001
_HIGH_WATER_BYTES: Final = 64 * 1024


class NetworkChances:
    """How rough the network is.

    Attributes:
        latency_s: the lowest and the highest latency of a segment.
        loss: probability that a segment has to be sent again.
        breaking: probability per segment that its connection breaks.
        silence: probability per segment that its connection carries nothing any more.
    """

    def __init__(
        self,
        latency_s: tuple[float, float] = (0.0002, 0.003),
        loss: float = 0.0,
        breaking: float = 0.0,
        silence: float = 0.0,
    ) -> None:
        self.latency_s = latency_s
        self.loss = loss
        self.breaking = breaking
        self.silence = silence


class Network:
    """Everything between the hosts.

    Attributes:
        has_descriptors: connections have descriptors, by which they can be lent.
    """

    def __init__(self, loop: "SimulatedLoop", random: Random, chances: NetworkChances) -> None:
        self.loop = loop
        self.random = random
        self.chances = chances
        self._sockets: dict[tuple[str, int], SimulatedSocket] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._ends: dict[Transport, None] = {}
        self.has_descriptors = False
        self._by_descriptor: dict[int, Transport] = {}

    # -- what goes wrong

    def cut(self, source: str, target: str) -> None:
        """Stop all bytes from `source` to `target` until `heal` was called as often as this."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        count = self._cuts.get((source, target), 0) - 1
        if count > 0:
            self._cuts[source, target] = count
        elif self._cuts.pop((source, target), None) is not None:
            for end in list(self._ends):
                if end.peer.host == source and end.host == target:
                    end.deliver_later()

    def heal_all(self) -> None:
        for source, target in list(self._cuts):
            self._cuts[source, target] = 1
            self.heal(source, target)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def host_gone(self, host: str, *, is_silent: bool) -> None:
        """End the connections of a host; its peers learn of it at once, or after a long silence."""
        for address in [a for a in self._sockets if a[0] == host]:
            del self._sockets[address]
        for end in [end for end in self._ends if end.host == host]:
            self._ends.pop(end, None)
            end.went_silently = is_silent
            delay_s = self.random.uniform(1.0, 20.0) if is_silent else self.latency_s()
            if not end.is_silent:
                end.peer.break_later(delay_s)

    def has_forgotten(self, end: "Transport") -> bool:
        """Return True if the host of a silent end serves again, and so resets the connection."""
        return end.went_silently and any(host == end.host for host, _ in self._sockets)

    def latency_s(self) -> float:
        chances, random = self.chances, self.random
        delay_s = random.uniform(*chances.latency_s)
        while chances.loss and random.random() < chances.loss:
            delay_s += random.uniform(0.05, 0.4)
        return delay_s

    def silence(self, one: str, other: str) -> None:
        """Let open connections between two hosts carry nothing any more."""
        for end in self._ends:
            if {end.host, end.peer.host} == {one, other}:
                end.is_silent = True

    # -- connections

    def listen(self, host: str, port: int) -> "SimulatedSocket":
        if (host, port) in self._sockets:
            raise ConfigError(f"{host}:{port} is taken")
        bound = SimulatedSocket(self, host, port)
        self._sockets[host, port] = bound
        return bound

    def stop_listening(self, bound: "SimulatedSocket") -> None:
        if self._sockets.get(bound.address) is bound:
            del self._sockets[bound.address]

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple["Transport", Any]:
        """Open a connection from the host of the running task.

        Raises:
            ConnectionRefusedError: nobody listens there.
            TimeoutError: nothing comes back.
        """
        life = LIFE.get()
        await self._pass(life.host, host)
        bound = self._sockets.get((host, port))
        await self._pass(host, life.host)
        if bound is None or self._sockets.get((host, port)) is not bound:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        near = Transport(self, life, copy_context())
        far = Transport(self, bound.life, bound.context)
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        protocol = factory()
        near.begin(protocol)
        bound.accept(far)
        return near, protocol

    async def _pass(self, source: str, target: str) -> None:
        await asyncio.sleep(self.latency_s())
        if self.is_cut(source, target):
            await asyncio.sleep(_CONNECT_TIMEOUT_S)
            raise TimeoutError(f"no way from {source} to {target}")

    def forget(self, end: "Transport") -> None:
        self._ends.pop(end, None)

    def descriptor_of(self, end: "Transport") -> int:
        """Return a descriptor that no real file of this process has."""
        descriptor = self.loop.new_descriptor()
        self._by_descriptor[descriptor] = end
        return descriptor

    def transport_of(self, descriptor: int) -> "Transport":
        """Return the end of a connection.

        Raises:
            OSError: there is none with this descriptor any more.
        """
        end = self._by_descriptor.pop(descriptor, None)
        if end is None or end not in self._ends:
            raise OSError(errno.EBADF, "no such connection")
        return end


class SimulatedSocket:
    """A bound address; takes the place of the server, too."""

    def __init__(self, network: Network, host: str, port: int) -> None:
        self.address = (host, port)
        self.life = LIFE.get()
        self.context = copy_context()
        self._network = network
        self._factory: Callable[[], Any] | None = None
        self._waiting: list[Transport] = []

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def serve(self, factory: Callable[[], Any]) -> None:
        self._factory = factory
        waiting, self._waiting = self._waiting, []
        for end in waiting:
            self.accept(end)

    def accept(self, end: "Transport") -> None:
        if self._factory is None:
            self._waiting.append(end)
        else:
            factory = self._factory
            self._network.loop.call_soon(lambda: end.begin(factory()), context=self.context.copy())

    def close(self) -> None:
        self._network.stop_listening(self)


class BorrowingReader(ABC):
    """Other code than the protocol that reads from a connection."""

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Take bytes of the peer."""

    @abstractmethod
    def ended(self) -> None:
        """Note that the connection has ended."""


class _Descriptor:
    """Stands for the socket of one end of a connection."""

    def __init__(self, end: "Transport") -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.network.descriptor_of(self._end)


class Transport(asyncio.Transport):
    """One end of a connection."""

    peer: "Transport"

    def __init__(self, network: Network, life: Life, context: Context) -> None:
        super().__init__()
        self.network = network
        self.is_silent = self.went_silently = False
        self._life = life
        self._context = context
        self._protocol: Any = None
        self._incoming: deque[bytes | None] = deque()
        """The data on its way to this end; None is the end of the stream."""
        self._incoming_bytes = 0
        self._is_delivery_due = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._high_bytes = _HIGH_WATER_BYTES
        self._is_writing_paused = False
        self._reader: BorrowingReader | None = None
        self._is_broken = False

    @property
    def host(self) -> str:
        return self._life.host

    @property
    def _is_cut(self) -> bool:
        return self.network.is_cut(self.peer.host, self.host)

    # -- the port of asyncio

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket" and self.network.has_descriptors:
            return _Descriptor(self)
        return (self.peer.host, 0) if name == "peername" else default

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self.peer._incoming_bytes

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        self.send(data)
        if self.peer._incoming_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def send(self, data: Any) -> None:
        """Send bytes, as code does that has a descriptor of its own."""
        if self._is_closing or self._is_broken:
            return
        peer = self.peer
        network = self.network
        if network.has_forgotten(peer):
            self.break_later(_RESET_S)
            return
        if network.chances.breaking and network.random.random() < network.chances.breaking:
            self.break_later(network.latency_s())
            peer.break_later(network.latency_s())
        if network.chances.silence and network.random.random() < network.chances.silence:
            self.is_silent = peer.is_silent = True
        peer._incoming.append(bytes(data))
        peer._incoming_bytes += len(data)
        peer.deliver_later()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._incoming:
            self._schedule(0.0)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.peer._incoming.append(None)
            self.peer.deliver_later()
            self._call(0.0, self._lose, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self._call(0.0, self._lose, None)
            if not self.is_silent:
                self.peer.break_later(self.network.latency_s())

    # -- the network's side

    def begin(self, protocol: Any) -> None:
        if self._is_lost:
            return
        self._protocol = protocol
        protocol.connection_made(self)
        self.deliver_later()

    def deliver_later(self) -> None:
        """Deliver sent bytes after some time, unless the way is cut."""
        if self._incoming and not self.is_silent and not self._is_cut:
            self._schedule(self.network.latency_s())

    def _schedule(self, delay_s: float) -> None:
        if not self._is_delivery_due and not self._is_lost and self._protocol is not None:
            self._is_delivery_due = True
            self._call(delay_s, self._deliver)

    def _deliver(self) -> None:
        self._is_delivery_due = False
        if self.is_silent or self._is_cut:
            return
        reader = self._reader
        while self._incoming and (self._is_reading or reader) and not self._is_lost:
            data = self._incoming.popleft()
            if data is None and reader is not None:
                reader.ended()
                return
            if data is None:
                self._is_closing = True
                self._protocol.eof_received()
                self._lose(None)
                return
            self._incoming_bytes -= len(data)
            if reader is None:
                self._give(data)
            else:
                reader.received(data)
        self.peer.notice_room()

    def _give(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest and not self._is_lost:
            buffer = memoryview(protocol.get_buffer(-1))
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            protocol.buffer_updated(count)

    def notice_room(self) -> None:
        """Note that the other end has read."""
        if self._is_writing_paused and self.get_write_buffer_size() <= self._high_bytes // 4:
            self._is_writing_paused = False
            if not self._is_lost:
                self._call(0.0, self._protocol.resume_writing)

    def break_later(self, delay_s: float) -> None:
        """Fail the connection for this end."""
        self._call(delay_s, self._break)

    def _break(self) -> None:
        if self._reader is None:
            self._lose(ConnectionResetError("the connection broke"))
        else:
            self._is_broken = True
            self._reader.ended()

    def lend(self, reader: BorrowingReader) -> None:
        """Let other code read from now on, and learn of the end of the connection."""
        self._reader = reader
        if self._is_lost:
            reader.ended()
        elif self._incoming:
            self._schedule(0.0)

    def take_back(self) -> None:
        """Let the protocol read again, as soon as it resumes reading."""
        self._reader = None

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        if self._reader is not None:
            self._reader.ended()
        self._incoming.clear()
        self._incoming_bytes = 0
        self.network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _call(self, delay_s: float, function: Callable[..., None], *args: Any) -> None:
        loop = self.network.loop
        if delay_s:
            when = self._life.clock.local_s(loop.now_s) + delay_s
            loop.call_at(when, function, *args, context=self._context)
        else:
            loop.call_soon(function, *args, context=self._context)
