"""TLS between a socket's transport and the protocol of a connection, on either side.

The protocol gets its transport at once: a connection counts, and may be closed, during its
handshake. Bytes that it writes before the end of the handshake are sent afterwards. Bytes are
decrypted directly into the buffer of the protocol, and encrypted only as fast as the peer reads
them.
"""

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

from spindle.common.ports import Bytes
from spindle.runtime.handshakes import Handshakes, PeerRefused

_RECEIVED_BYTES: Final = 64 * 1024
_RECORD_BYTES: Final = 16 * 1024
"""The largest record of TLS. Smaller pieces are joined up to this size."""
_CHUNK_BYTES: Final = 64 * 1024
"""Bytes encrypted in one step; the memory that OpenSSL keeps for a connection grows with it."""
_MAX_ENCRYPTED_BYTES: Final = 256 * 1024
"""Maximum encrypted bytes of one connection that wait for the socket. Further bytes wait
unencrypted."""
_of_thread: Final = threading.local()


def _receive_buffer() -> memoryview:
    """Return the receive buffer that all connections of this event loop share."""
    try:
        buffer: memoryview = _of_thread.buffer
    except AttributeError:
        buffer = _of_thread.buffer = memoryview(bytearray(_RECEIVED_BYTES))
    return buffer


def _without_traceback(error: Exception) -> Exception:
    """Return an error that may be kept: its traceback would refer back to the connection, so that
    only the garbage collector could free the memory of OpenSSL."""
    return error.with_traceback(None)


class TlsTransport(asyncio.BufferedProtocol):
    """The protocol of the socket's transport, and the transport of `inner`.

    Args:
        server_hostname: the name that the certificate of the server must have; None for a server.
        on_secured: called at the end of the handshake, before the first byte of the peer is passed
            on. If it raises PeerRefused, the connection ends.
        on_failed: called if the handshake fails; `inner` then loses its connection.
    """

    def __init__(
        self,
        inner: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        *,
        server_hostname: str | None = None,
        on_secured: Callable[[ssl.SSLObject], None] = lambda _: None,
        on_failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._inner = inner
        self._context = context
        self._handshakes = handshakes
        self._on_secured = on_secured
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = _receive_buffer()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        self._backlog: deque[Bytes] = deque()
        self._backlog_bytes = 0
        self._max_backlog_bytes = _MAX_ENCRYPTED_BYTES
        self._failure: Exception | None = None
        self._is_secured = False
        self._is_closing = False
        self._has_received = False
        self._is_reading = False
        self._is_read_paused = False
        self._is_write_paused = False
        self._is_inner_paused = False

    # -- callbacks of the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio's but are no subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_MAX_ENCRYPTED_BYTES)
        self._inner.connection_made(cast(asyncio.BaseTransport, self))
        if not self._is_closing:
            self._handshakes.begin(self)
            if not self._tls.server_side:
                self._handshakes.ask_turn(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not (self._is_secured or self._is_closing) and self._has_received:
            self._failure = exc or EOFError("the peer closed the connection")
            self._on_failed(self._failure)
        self._handshakes.end(self)
        self._is_closing = True
        self._transport = None
        self._backlog.clear()
        self._backlog_bytes = 0
        self._inner.connection_lost(self._failure or exc)

    def eof_received(self) -> bool:
        if self._is_secured and not self._is_closing:
            self._inner.eof_received()
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        # The requests of a client that reads no responses would pile up. A server is trusted: two
        # sides that both wait for each other would wait forever.
        if self._is_secured and self._transport is not None and self._tls.server_side:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._is_secured:
            self._encrypt()
            if not self._is_closing:
                self._go_on_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._incoming.write(self._received[:nbytes])
        if self._is_secured:
            self._read()
        elif self._transport is not None:
            self._has_received = True
            # While a handshake waits for its turn, nothing more is received.
            self._transport.pause_reading()
            self._handshakes.ask_turn(self)

    # -- the handshake

    def step(self) -> None:
        """Continue the handshake with the bytes received so far."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        try:
            self._tls.do_handshake()
            self._on_secured(self._tls)
        except ssl.SSLWantReadError:
            self._send_outgoing()
            transport.resume_reading()
            return
        except (ssl.SSLError, PeerRefused) as error:
            self.fail(error)
            return
        self._is_secured = True
        self._handshakes.end(self)
        self._send_outgoing()
        if not self._must_not_receive:
            transport.resume_reading()
        self._encrypt()
        self._read()

    def fail(self, error: Exception) -> None:
        """End the connection during its handshake, and send an alert to the peer."""
        if self._is_closing:
            return
        self._is_closing = True
        self._failure = _without_traceback(error)
        self._handshakes.end(self)
        self._on_failed(error)
        if self._transport is not None:
            self._send_outgoing()
            self._transport.close()

    # -- from the peer to the protocol

    def _read(self) -> None:
        """Pass decrypted bytes on while the protocol reads and the peer reads its responses.

        Nothing is read from a peer that does not read, because OpenSSL may answer messages by
        itself.
        """
        if self._is_reading:
            return
        self._is_reading = True
        try:
            while self._incoming.pending or self._tls.pending():
                if self._is_read_paused or self._is_write_paused or self._is_closing:
                    break
                if not self._pass_on():
                    break
        finally:
            self._is_reading = False
        if self._outgoing.pending and not self._is_closing:
            self._send_outgoing()

    def _pass_on(self) -> bool:
        """Fill one buffer of the protocol; return False if the next TLS record is incomplete."""
        view = self._inner.get_buffer(-1)
        assert isinstance(view, memoryview)
        filled, room = 0, len(view)
        is_whole, failure, is_end = True, None, False
        read, incoming, pending = self._tls.read, self._incoming, self._tls.pending
        try:
            while True:
                # The type stubs do not list memoryview.
                count = cast(int, read(room - filled, cast(bytearray, view[filled:])))
                filled += count
                is_end = not count
                if is_end or filled == room or not (incoming.pending or pending()):
                    break
        except ssl.SSLWantReadError:
            is_whole = False
        except ssl.SSLError as error:
            failure = _without_traceback(error)
        # Called without bytes, too, so that the protocol can release the buffer.
        self._inner.buffer_updated(filled)
        if failure is not None:
            self._failure = failure
            self.abort()
        elif is_end and not self._is_closing:
            self._inner.eof_received()
            self.close()
        return is_whole

    def pause_reading(self) -> None:
        self._is_read_paused = True
        if self._transport is not None and self._is_secured:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_read_paused:
            self._is_read_paused = False
            if self._is_secured:
                self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        """Pass on the bytes received before the pause, then receive."""
        self._read()
        if self._transport is not None and not (self._must_not_receive or self._is_closing):
            self._transport.resume_reading()

    @property
    def _must_not_receive(self) -> bool:
        return self._is_read_paused or (self._is_write_paused and self._tls.server_side)

    # -- from the protocol to the peer

    def write(self, data: Bytes) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        for data in list_of_data:
            self._backlog.append(data)
            self._backlog_bytes += len(data)
        if self._is_secured and not self._is_write_paused:
            self._encrypt()
        if self._backlog_bytes > self._max_backlog_bytes and not self._is_inner_paused:
            self._is_inner_paused = True
            self._inner.pause_writing()

    def _encrypt(self) -> None:
        """Encrypt and send until the socket is full."""
        backlog = self._backlog
        while backlog and not self._is_write_paused:
            data = self._next_piece()
            self._backlog_bytes -= len(data)
            try:
                self._tls.write(cast(bytes, data))
            except ssl.SSLError as error:
                self._failure = _without_traceback(error)
                self.abort()
                return
            self._send_outgoing()
        if backlog:
            return
        if self._is_closing:
            self._close_in_order()
        elif self._is_inner_paused:
            self._is_inner_paused = False
            self._inner.resume_writing()

    def _next_piece(self) -> Bytes:
        """Return the bytes for one step: a part of a large piece, or several small pieces."""
        backlog = self._backlog
        data = backlog.popleft()
        if len(data) > _CHUNK_BYTES:
            view = memoryview(data)
            backlog.appendleft(view[_CHUNK_BYTES:])
            return view[:_CHUNK_BYTES]
        if not backlog or len(data) + len(backlog[0]) > _RECORD_BYTES:
            return data
        size, small = len(data), [data]
        while backlog and size + len(backlog[0]) <= _RECORD_BYTES:
            size += len(backlog[0])
            small.append(backlog.popleft())
        return b"".join(small)

    def _send_outgoing(self) -> None:
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    # -- the rest of a transport

    def close(self) -> None:
        """Close after all written bytes have been sent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._handshakes.end(self)
        if not self._backlog or not self._is_secured:
            self._close_in_order()

    def _close_in_order(self) -> None:
        if self._transport is None:
            return
        if self._is_secured:
            with suppress(ssl.SSLError):  # the peer's close need not be awaited
                self._tls.unwrap()
            self._send_outgoing()
        self._transport.close()

    def abort(self) -> None:
        self._is_closing = True
        self._handshakes.end(self)
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return unsent + self._backlog_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the number of unencrypted bytes at which the protocol is paused."""
        if high is not None:
            self._max_backlog_bytes = high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._tls
        return default if self._transport is None else self._transport.get_extra_info(name, default)
