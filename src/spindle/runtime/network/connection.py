"""One client connection: frames in, answers out, in order.

Requests of a connection are answered in the order in which they came. The next request is started
when the one before is answered, except that produce requests are started at once: the directory's
I/O thread orders their appends, so one connection keeps several in flight. If a peer does not read
its answers, the connection reads nothing from the peer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol, cast

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.common.promise import Promise
from spindle.protocol.api import PRODUCE
from spindle.runtime.frame_receiver import FrameReceiver
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.request_pipeline import Answer, Deferred, PendingAnswer
from spindle.runtime.network.response_tail import MAX_UNCOUNTED_BYTES, ResponseTail, limit_writes
from spindle.runtime.network.sasl_state import SaslState
from spindle.runtime.network.sendfile_socket import Borrowed
from spindle.runtime.task_promise import promise_of
from spindle.security.server.mechanism import LoggedIn
from spindle.serving.fetch.sendfile_response import AnswerCutOff, PartialResponse

log = logging.getLogger(__name__)

_API_KEY: Final = Struct(">h")
_FIRST_ALLOCATION_BYTES: Final = 2 * 1024 * 1024
_FIRST_ALLOCATION_OF_STRANGERS_BYTES: Final = 64 * 1024
_LAST_ANSWER_S: Final = 0.05
"""Time between a last answer and the end of its connection, because kafka-python does not read an
answer that arrives together with the end."""
_PIPELINED_BYTES: Final = 64 * 1024 * 1024


class Dispatcher(Protocol):
    """The server, as a connection uses it."""

    limits: RequestLimits

    def dispatch(self, connection: "Connection", frame: Bytes) -> Answer | Deferred:
        """Answer one request; ProtocolViolation closes the connection."""
        ...

    def connection_opened(self, connection: "Connection") -> bool:
        """Count a new connection; return False if a limit refuses it."""
        ...

    def connection_closed(self, connection: "Connection") -> None: ...
    def on_protocol_violation(self, connection: "Connection", violation: ProtocolViolation) -> None:
        """Close a connection after a malformed request."""
        ...

    def bytes_received(self, count: int, /) -> None: ...
    def bytes_sent(self, count: int, /) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket.

    Attributes:
        sasl: the state of its authentication; None without SASL, and after an authentication that
            lasts as long as the connection.
        opened_s: when it was opened, by the loop's clock.
        is_prompt: see `SocketOwner`.
    """

    def __init__(
        self, dispatcher: Dispatcher, listener: str, sasl: SaslState | None = None
    ) -> None:
        self.listener = listener
        self.client_address = ""
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.principal = "User:ANONYMOUS"
        self.is_token_authenticated = False
        self.sasl = sasl
        self.opened_s = 0.0
        self.last_active_s = 0.0
        self._dispatcher = dispatcher
        self._limits = dispatcher.limits
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._receiver = FrameReceiver(
            self._limits.max_request_bytes, "socket.request.max.bytes", _FIRST_ALLOCATION_BYTES
        )
        if sasl is not None:
            self._receiver.limit(
                sasl.rules.max_receive_bytes,
                "sasl.server.max.receive.size",
                _FIRST_ALLOCATION_OF_STRANGERS_BYTES,
            )
        self._strangers = None if sasl is None else sasl.rules.strangers
        self._large_held_bytes = 0
        self._frames: deque[Bytes] = deque()
        self._pending: deque[PendingAnswer] = deque()
        self._pending_bytes = 0
        self.may_send_directly = False
        self._is_write_paused = False
        self._is_read_paused = False
        self._is_closing = False
        self._is_advancing = False
        self._mute: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._rest = ResponseTail(self, self._limits.unsent)

    # -- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio's but are no subclass.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client_address = peer[0] if peer else ""
        limit_writes(transport)
        self.opened_s = self.last_active_s = self._loop.time()
        if not self._dispatcher.connection_opened(self):
            self._is_closing = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._rest.close(self._transport)
        if self._mute is not None:
            self._mute.cancel()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._receiver.drop()
        if self._strangers is not None:
            self._strangers.forget(self)
        self._release_large()
        self._limits.forget(self._flow)
        self._limits.release(sum(map(len, self._frames)))
        self._frames.clear()
        for pending in self._pending:
            if pending.promise is not None and not pending.is_produce:
                pending.promise.cancel()
        self._pending.clear()
        self._dispatcher.connection_closed(self)
        self._transport = None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._rest.count()
        self._flow()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._rest.all_taken()
        self._rest.resume()
        self._advance()
        self._flow()

    def get_buffer(self, sizehint: int) -> memoryview:
        try:
            return self._receiver.buffer()
        except MemoryError:
            log.warning(
                "closing the connection of %s: no memory for a frame of %d bytes",
                self.client_address,
                self._receiver.large_bytes,
            )
            self._receiver.drop()
            # The transport needs a buffer even now, and must not be closed before it has read.
            self._is_closing = True
            self._loop.call_soon(self.abort)
            return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._dispatcher.bytes_received(nbytes)
        self.last_active_s = self._loop.time()
        if self._is_closing:
            return
        try:
            for frame in self._receiver.received(nbytes):
                self._accept(frame)
        except ProtocolViolation as violation:
            self._dispatcher.on_protocol_violation(self, violation)
        if self._receiver.large_bytes and not self._large_held_bytes:
            self._flow()
        if self._strangers is not None:
            self._strangers.note(self, self._receiver.memory_bytes)

    # -- frames

    def _accept(self, frame: Bytes) -> None:
        if self._large_held_bytes:
            self._release_large()
        if self._is_closing:
            return
        self.may_send_directly = self._rest.client_keeps_up and not (self._frames or self._pending)
        self._frames.append(frame)
        self._limits.hold(len(frame))
        self._advance()
        if self._frames or self._is_read_paused or self._limits.is_full:
            self._flow()

    def _release_large(self) -> None:
        self._limits.release(self._large_held_bytes)
        self._large_held_bytes = 0

    # -- requests

    def _advance(self) -> None:
        """Start the requests that may start now.

        A request that is answered at once comes back here, where the loop goes on anyway.
        """
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._frames and not (self._is_blocked or self._is_closing):
                frame = self._frames[0]
                is_produce = len(frame) >= 2 and _API_KEY.unpack_from(frame)[0] == PRODUCE
                if self._pending and not (is_produce and self._pending[-1].is_produce):
                    return
                if self._pending_bytes > _PIPELINED_BYTES:
                    return
                self._frames.popleft()
                self._begin(frame, is_produce)
        finally:
            self._is_advancing = False

    @property
    def _is_blocked(self) -> bool:
        """Whether dispatching is blocked although requests are queued."""
        return self._is_write_paused or self._rest.is_active or self._mute is not None

    def _begin(self, frame: Bytes, is_produce: bool) -> None:
        try:
            answer = self._dispatcher.dispatch(self, frame)
        except ProtocolViolation as violation:
            self._limits.release(len(frame))
            self._dispatcher.on_protocol_violation(self, violation)
            return
        except Exception:  # one bad request must not end the process
            self._limits.release(len(frame))
            log.exception("request of %s failed", self.client_address)
            self.close()
            return
        if not isinstance(answer, Deferred):
            self._limits.release(len(frame))
            if not self._pending:
                self._send(answer)
                return
            done = PendingAnswer(is_produce, 0)
            done.is_done, done.answer = True, answer
            self._pending.append(done)
            return
        pending = PendingAnswer(is_produce and not answer.is_alone, len(frame))
        self._pending_bytes += pending.size_bytes
        self._pending.append(pending)
        promise = answer.result
        if not isinstance(promise, Promise):
            promise = promise_of(promise)
        pending.promise = promise
        promise.on_done(partial(self._finished, pending, answer.finish))

    def _finished(
        self,
        pending: PendingAnswer,
        finish: Callable[[Any], Answer],
        result: Any,
        error: BaseException | None,
    ) -> None:
        self._pending_bytes -= pending.size_bytes
        self._limits.release(pending.size_bytes)
        if error is not None:
            if isinstance(error, AnswerCutOff):
                log.warning("closing the connection of %s: %s", self.client_address, error)
                self.abort()
            elif isinstance(error, ProtocolViolation):
                log.warning("closing the connection of %s: %s", self.client_address, error)
            elif not isinstance(error, asyncio.CancelledError):
                log.error("request of %s failed", self.client_address, exc_info=error)
            self.close()
            return
        if self._is_closing:
            if isinstance(result, PartialResponse) and result.rest is not None:
                result.rest.give_up()
            return
        try:
            pending.answer = finish(result)
        except Exception:  # an answer that cannot be written must not end the process
            log.exception("answer to %s failed", self.client_address)
            self.close()
            return
        pending.is_done = True
        self._rest.end_loan()
        queue = self._pending
        while queue and queue[0].is_done:
            self._send(queue.popleft().answer)
        if self._frames:
            self._advance()
        if self._is_read_paused:
            self._flow()

    def _send(self, answer: Answer) -> None:
        transport = self._transport
        if not answer or transport is None or self._is_closing:
            return
        size_bytes = sum(map(len, answer))
        self._dispatcher.bytes_sent(size_bytes)
        self.last_active_s = self._loop.time()
        if len(answer) == 1:
            transport.write(answer[0])
        else:
            transport.writelines(answer)
        if size_bytes > MAX_UNCOUNTED_BYTES:
            self._rest.large_given(size_bytes)
        self._rest.resume()

    # -- answers that a directory's thread sends

    def borrow_socket(self) -> Borrowed | None:
        """See `SocketOwner`: nothing may be under way that has to be sent before the answer."""
        transport = self.open_transport
        return (
            None
            if transport is None or len(self._pending) > 1
            else self._rest.borrow_socket(transport)
        )

    def go_on_with(self, sent: PartialResponse) -> list[Bytes]:
        """Return what is to be sent now of an answer that a directory's thread has begun to send.

        When the client has taken that, the thread goes on. No request is started before the end.
        """
        return self._rest.start(sent)

    @property
    def open_transport(self) -> asyncio.Transport | None:
        """See `TailSender`."""
        return None if self._is_closing else self._transport

    def on_progress(self, sent_bytes: int, answer: list[Bytes]) -> None:
        """See `TailSender`."""
        self._dispatcher.bytes_sent(sent_bytes)
        self._send(answer)
        self._advance()
        self._flow()

    def abort_sending(self, error: object) -> None:
        """See `TailSender`."""
        if self._transport is not None:
            log.warning("closing the connection of %s: %s", self.client_address, error)
            self.abort()

    def _flow(self) -> None:
        """Read from the peer only while its requests can be handled."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        should_pause = bool(self._frames) or self._mute is not None
        if not self._large_held_bytes and self._limits.is_full:
            should_pause = True
            self._limits.when_room(self._flow)
        elif self._receiver.large_bytes and not self._large_held_bytes:
            # Add the whole size at once, so that a frame that has begun can be completed.
            self._large_held_bytes = self._receiver.large_bytes
            self._limits.hold(self._large_held_bytes)
        if should_pause and not self._is_read_paused:
            self._is_read_paused = True
            transport.pause_reading()
        elif not should_pause and self._is_read_paused:
            self._is_read_paused = False
            transport.resume_reading()

    # -- for the server

    def is_idle_since(self, time_s: float) -> bool:
        """Return True if the connection was idle since `time_s` of the loop's clock."""
        if self._is_write_paused and self._rest.count():
            self.last_active_s = self._loop.time()  # the peer reads, if slowly
        is_waiting = bool(self._frames) and not (self._is_write_paused or self._mute)
        return not self._pending and not is_waiting and self.last_active_s < time_s

    def mute(self, delay_s: float) -> None:
        """Stop reading and starting requests for that long; started requests are answered
        (KIP-219)."""
        if self._is_closing:
            return
        ends_s = self._loop.time() + delay_s
        if self._mute is not None:
            ends_s = max(ends_s, self._mute.when())
            self._mute.cancel()
        self._mute = self._loop.call_at(ends_s, self.unmute)
        self._flow()

    def unmute(self) -> None:
        """Go on before the time is over."""
        if self._mute is not None:
            self._mute.cancel()
            self._mute = None
            self._advance()
            self._flow()

    def authenticated(self, login: LoggedIn) -> None:
        """Serve the requests of a user from now on."""
        self.principal = f"User:{login.user}"
        self.is_token_authenticated = login.is_token
        if self._strangers is not None:
            self._strangers.forget(self)
            self._strangers = None
        self._receiver.limit(
            self._limits.max_request_bytes, "socket.request.max.bytes", _FIRST_ALLOCATION_BYTES
        )

    def end_after(self, delay_s: float, answer: list[Bytes]) -> None:
        """Handle nothing more; send an answer and close after the delay."""
        if self._is_closing:
            return
        self._is_closing = True
        self._limits.release(sum(map(len, self._frames)))
        self._frames.clear()
        if self._transport is not None and not self._is_read_paused:
            self._is_read_paused = True
            self._transport.pause_reading()
        self._close_timer = self._loop.call_later(delay_s, self._part_with, answer)

    def _part_with(self, answer: list[Bytes]) -> None:
        if not answer or self._transport is None:
            self.close()
            return
        self._dispatcher.bytes_sent(sum(map(len, answer)))
        self._transport.writelines(answer)
        self._close_timer = self._loop.call_later(_LAST_ANSWER_S, self.close)

    def close(self) -> None:
        """Close after what was already given to the socket has been sent."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self, *, must_drop: bool = False) -> None:
        """Close at once. `must_drop` frees the memory of a frame; not while frames are cut."""
        if must_drop:
            self._receiver.drop()
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()
