"""A connection whose bytes can be held up in each direction, between a protocol and its transport.

A connection that its owner closes during a cut ends for the owner at once, and for the peer when
the cut is healed, because a cut also holds back the end of the stream.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from spindle.common.ports import Bytes
from spindle.testing.faults.network_faults import Cut, FaultyNetwork

_HIGH_WATER_BYTES = 1024 * 1024


class FaultyConnection(asyncio.BufferedProtocol):
    """The protocol of the real transport, and the transport of the protocol `inner`.

    Args:
        peer: the node at the other end of an outgoing connection; None for an incoming one, whose
            address identifies the peer.
    """

    def __init__(
        self, inner: asyncio.BufferedProtocol, network: FaultyNetwork, peer: int | None = None
    ) -> None:
        self.inner = inner
        self._network = network
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._has_ended = False
        self._holds_out = False
        self._holds_in = False
        self._sent: list[Bytes] = []
        self._sent_bytes = 0
        self._received: deque[bytes] = deque()
        self._buffer: bytearray | None = None
        self._is_write_paused = False
        self._is_inner_paused = False
        self._wants_no_input = False

    # -- cuts

    def apply(self) -> None:
        """Follow the present cuts of the network."""
        transport = self._transport
        if transport is None:
            return
        outbound, inbound = self._network.faults.of(self._peer)
        if Cut.BREAK in (outbound, inbound):
            transport.abort()
            return
        self._holds_out = outbound is Cut.STALL
        self._holds_in = inbound is Cut.STALL
        if self._has_ended:
            if not self._holds_out and not self._holds_in:
                transport.abort()
            return
        if self._sent and not self._holds_out:
            sent, self._sent, self._sent_bytes = self._sent, [], 0
            transport.writelines(sent)
            self._pause_inner()
        if not self._holds_in:
            self._deliver()
        self._flow()

    def _deliver(self) -> None:
        """Hand over the bytes that came during a cut."""
        while self._received and not self._has_ended:
            data = self._received.popleft()
            done = 0
            while done < len(data) and not self._has_ended:
                room = cast(memoryview, self.inner.get_buffer(len(data) - done))
                count = min(len(room), len(data) - done)
                room[:count] = data[done : done + count]
                done += count
                self.inner.buffer_updated(count)

    def _flow(self) -> None:
        """Read while there is no cut and the protocol wants to."""
        if self._transport is None:
            return
        if self._holds_in or self._wants_no_input or self._has_ended:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _pause_inner(self) -> None:
        should_pause = self._is_write_paused or self._sent_bytes > _HIGH_WATER_BYTES
        if self._has_ended or should_pause == self._is_inner_paused:
            return
        self._is_inner_paused = should_pause
        if should_pause:
            self.inner.pause_writing()
        else:
            self.inner.resume_writing()

    # -- callbacks of the real transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._peer is None:
            address = transport.get_extra_info("peername")
            self._peer = self._network.peer_from(address[0]) if address else None
        self._network.add(self)
        outbound, inbound = self._network.faults.of(self._peer)
        # Bytes of a connection that is about to be broken do not arrive either.
        self._holds_out, self._holds_in = outbound is not Cut.NONE, inbound is not Cut.NONE
        self.inner.connection_made(cast(asyncio.BaseTransport, self))
        # The transport begins to read after this call, so it is paused after that.
        self._loop.call_soon(self.apply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._network.discard(self)
        self._end(exc)

    def _end(self, exc: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> Any:
        if self._holds_in or self._has_ended:
            self._buffer = bytearray(max(sizehint, 65536))
            return self._buffer
        self._buffer = None
        return self.inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._buffer is None:
            self.inner.buffer_updated(nbytes)
        elif not self._has_ended:
            self._received.append(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        if self._has_ended:
            return False
        return bool(self.inner.eof_received())

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._pause_inner()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._pause_inner()

    # -- the transport of the inner protocol

    def write(self, data: Bytes) -> None:
        self.writelines((data,))

    def writelines(self, parts: Iterable[Bytes]) -> None:
        if self._transport is None or self._has_ended:
            return
        if not self._holds_out:
            self._transport.writelines(parts)
            return
        parts = list(parts)
        self._sent += parts
        self._sent_bytes += sum(map(len, parts))
        self._pause_inner()

    def pause_reading(self) -> None:
        self._wants_no_input = True
        self._flow()

    def resume_reading(self) -> None:
        self._wants_no_input = False
        self._flow()

    def get_write_buffer_size(self) -> int:
        real = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return real + self._sent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        # Bytes that are sent to the socket itself would get around a cut.
        if self._transport is None or (name == "socket" and self._holds_out):
            return default
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._has_ended or self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        self._close(is_abort=False)

    def abort(self) -> None:
        self._close(is_abort=True)

    def _close(self, *, is_abort: bool) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._holds_out or self._holds_in:
            self._sent.clear()
            self._received.clear()
            transport.pause_reading()
            self._loop.call_soon(self._end, None)
        elif is_abort:
            transport.abort()
        else:
            transport.close()
