"""One client connection: requests in, responses out, in order.

The responses of a connection have the order of its requests. A request is started when the previous
one is answered, except that produce requests are started at once: the directory's I/O thread orders
their appends, so one connection can have several in flight. While a peer does not read its
responses, the connection reads nothing from the peer.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol, cast

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.common.promise import Promise
from spindle.protocol.api import FETCH, PRODUCE
from spindle.runtime.frame_receiver import FrameReceiver
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.response_writer import (
    Answer,
    Deferred,
    PendingAnswer,
    ResponseWriter,
)
from spindle.runtime.network.sasl_state import SaslState
from spindle.runtime.network.sendfile_socket import Borrowed, shut_down
from spindle.runtime.task_promise import promise_of
from spindle.security.server.mechanism import LoggedIn
from spindle.serving.fetch.sendfile_response import AnswerCutOff, PartialResponse

log = logging.getLogger(__name__)

_API_KEY: Final = Struct(">h")
_FIRST_ALLOCATION_BYTES: Final = 2 * 1024 * 1024
_UNAUTHENTICATED_FIRST_ALLOCATION_BYTES: Final = 64 * 1024
_HAND_OVER_S: Final = 0.01
"""Interval at which a connection looks whether it can move to a lane."""
_LAST_ANSWER_S: Final = 0.05
"""Time between the last response and the close of its connection, because kafka-python does not
read a response that arrives together with the close."""


class ConnectionState(Enum):
    """The life of a connection."""

    SERVING = "requests are read and started"
    MUTED = "nothing is read or started until the throttle time is over (KIP-219)"
    IN_LANE = "the lane of a directory reads and answers the requests"
    REFUSING = "nothing is handled any more; an error is sent after a delay"
    CLOSING = "nothing is handled or written any more"
    CLOSED = "the transport has ended"


_SERVING, _MUTED, _IN_LANE, _REFUSING, _CLOSING, _CLOSED = ConnectionState

_LIVING: Final = (_SERVING, _MUTED, _IN_LANE)
_FIRST_REQUESTS_OUTSIDE_LANE: Final = 1
_MAX_REQUESTS_OUTSIDE_LANE: Final = 1024
"""Numbers of Produce and Fetch requests that the event loop serves before a lane is considered
again: twice as many each time, and never fewer."""

LEGAL_MOVES: Final = {
    _SERVING: {_MUTED, _IN_LANE, _REFUSING, _CLOSING, _CLOSED},
    _MUTED: {_MUTED, _SERVING, _REFUSING, _CLOSING, _CLOSED},
    _IN_LANE: {_SERVING, _CLOSING, _CLOSED},
    _REFUSING: {_REFUSING, _CLOSING, _CLOSED},
    _CLOSING: {_CLOSING, _CLOSED},
    _CLOSED: set[ConnectionState](),
}
"""The states that may follow a state; every other move is a bug."""


class ConnectionLanes(ABC):
    """The lanes of the broker; see `spindle.runtime.lanes`."""

    @abstractmethod
    def consider(self, connection: "Connection", frame: Bytes) -> None:
        """Call `move_to` if a lane can serve requests like this one, else `keep_out_of_lanes`."""

    @property
    @abstractmethod
    def has_progress(self) -> bool:
        """True if lanes have served requests that Python has not taken into account."""

    @abstractmethod
    def take_progress(self) -> None:
        """Take them into account, before a request is handled that depends on them."""

    @abstractmethod
    def ask_back(self, token: int, max_idle_ms: int) -> None:
        """Have a connection back, to see whether it is idle.

        It is closed if its peer has read nothing of a response for `max_idle_ms`.
        """

    @abstractmethod
    def forget(self, token: int) -> None:
        """Forget a connection that has ended."""


class Dispatcher(Protocol):
    """The server, as a connection uses it."""

    limits: RequestLimits
    lanes: ConnectionLanes | None

    def dispatch(self, connection: "Connection", frame: Bytes) -> Answer | Deferred:
        """Handle one request; a ProtocolViolation closes the connection."""
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
    """The asyncio protocol of one socket.

    Attributes:
        state: see `ConnectionState`.
        sasl: the state of its authentication; None without SASL, and after an authentication that
            lasts as long as the connection.
        opened_s: when it was opened, by the loop's clock.
        may_send_directly: see `SocketOwner`.
    """

    def __init__(
        self, dispatcher: Dispatcher, listener: str, sasl: SaslState | None = None
    ) -> None:
        self.state = _SERVING
        self.listener = listener
        self.client_address = ""
        self.client_port = 0
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.principal = "User:ANONYMOUS"
        self.is_token_authenticated = False
        self.may_send_directly = False
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
                _UNAUTHENTICATED_FIRST_ALLOCATION_BYTES,
            )
        self._unauthenticated = None if sasl is None else sasl.rules.unauthenticated
        self._large_held_bytes = 0
        self._frames: deque[Bytes] = deque()
        self._is_reading = True
        self._is_advancing = False
        self._timer: asyncio.TimerHandle | None = None
        self._writer = ResponseWriter(self, self._limits.unsent)
        self._is_feeding = False
        self._adopt: Callable[[bytes], int | None] | None = None
        self._token = 0
        self._requests_to_lane = 0
        self._requests_outside_lane = _FIRST_REQUESTS_OUTSIDE_LANE
        self._on_lost: dict[Hashable, Callable[[], None]] = {}

    def _move(self, state: ConnectionState, timer: asyncio.TimerHandle | None = None) -> None:
        """Enter a state; `timer` ends it unless another event comes first."""
        assert state in LEGAL_MOVES[self.state], f"{self.state.name} to {state.name}"
        self.state = state
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    @property
    def _is_ending(self) -> bool:
        return self.state not in _LIVING

    # -- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio's but are no subclass.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client_address, self.client_port = peer[:2] if peer else ("", 0)
        self._writer.open(transport)
        self.opened_s = self.last_active_s = self._loop.time()
        if not self._dispatcher.connection_opened(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_lane()
        self._move(_CLOSED)
        self._receiver.drop()
        if self._unauthenticated is not None:
            self._unauthenticated.forget(self._end_unfinished)
        self._release_large()
        self._limits.forget(self._flow)
        self._drop_frames()
        self._writer.close(self._transport)
        self._dispatcher.connection_closed(self)
        self._transport = None
        callbacks, self._on_lost = self._on_lost, {}
        for callback in callbacks.values():
            callback()

    def when_lost(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back when the connection is lost, once, and only the last callback of a key."""
        if self.state is _CLOSED:
            self._loop.call_soon(callback)
        else:
            self._on_lost[key] = callback

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writer.pause()
        self._flow()

    def resume_writing(self) -> None:
        self._writer.resume()
        self.on_progress()

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
            # The transport needs a buffer even now, and must not be closed before it has read into
            # it.
            self._stop(_CLOSING)
            self._loop.call_soon(self.abort)
            return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._dispatcher.bytes_received(nbytes)
        self._take_received(nbytes)

    def _take_received(self, nbytes: int) -> None:
        self.last_active_s = self._loop.time()
        if self._is_ending:
            return
        was_feeding, self._is_feeding = self._is_feeding, True
        try:
            for frame in self._receiver.received(nbytes):
                self._accept(frame)
        except ProtocolViolation as violation:
            self._dispatcher.on_protocol_violation(self, violation)
        finally:
            self._is_feeding = was_feeding
        if self._adopt is not None:
            self._flow()
        if self._receiver.large_bytes and not self._large_held_bytes:
            self._flow()
        if self._unauthenticated is not None:
            self._unauthenticated.note(self._end_unfinished, self._receiver.memory_bytes)

    # -- requests

    def _accept(self, frame: Bytes) -> None:
        if self._large_held_bytes:
            self._release_large()
        if self._is_ending:
            return
        writer = self._writer
        self.may_send_directly = writer.client_keeps_up and not (self._frames or writer.pending)
        self._frames.append(frame)
        self._limits.hold(len(frame))
        self._advance()
        if self._frames or not self._is_reading or self._limits.is_full:
            self._flow()

    def _release_large(self) -> None:
        self._limits.release(self._large_held_bytes)
        self._large_held_bytes = 0

    def _drop_frames(self) -> None:
        self._limits.release(sum(map(len, self._frames)))
        self._frames.clear()

    def _advance(self) -> None:
        """Start the requests that may start now.

        A request that is answered at once calls this again; the running loop then continues.
        """
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._frames and self.state is _SERVING:
                frame = self._frames[0]
                is_produce = len(frame) >= 2 and _API_KEY.unpack_from(frame)[0] == PRODUCE
                if not self._writer.may_start(is_produce=is_produce):
                    return
                self._frames.popleft()
                self._begin(frame, is_produce)
                if self._dispatcher.lanes is not None and len(frame) >= 2:
                    self._consider_lane(self._dispatcher.lanes, frame)
        finally:
            self._is_advancing = False

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
            self._writer.add(answer, is_produce=is_produce)
            return
        pending = self._writer.start(
            is_produce=is_produce and not answer.is_alone, size_bytes=len(frame)
        )
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
        self._writer.end_request(pending)
        self._limits.release(pending.size_bytes)
        if error is not None:
            if isinstance(error, AnswerCutOff):
                self.abort_sending(error)
            elif isinstance(error, ProtocolViolation):
                log.warning("closing the connection of %s: %s", self.client_address, error)
            elif not isinstance(error, asyncio.CancelledError):
                log.error("request of %s failed", self.client_address, exc_info=error)
            self.close()
            return
        if self._is_ending:
            if isinstance(result, PartialResponse) and result.rest is not None:
                result.rest.give_up()
            return
        try:
            answer = finish(result)
        except Exception:  # an answer that cannot be written must not end the process
            log.exception("response to %s failed", self.client_address)
            self.close()
            return
        self._writer.complete(pending, answer)
        if self._frames:
            self._advance()
        if not self._is_reading:
            self._flow()

    def _flow(self) -> None:
        """Read from the peer only while its requests can be handled."""
        transport = self._transport
        if transport is None or self._is_ending:
            return
        should_read = not self._frames and self.state is _SERVING and self._adopt is None
        if not self._large_held_bytes and self._limits.is_full:
            should_read = False
            self._limits.when_room(self._flow)
        elif self._receiver.large_bytes and not self._large_held_bytes:
            # Count the whole frame at once, so that a frame that has begun can be completed.
            self._large_held_bytes = self._receiver.large_bytes
            self._limits.hold(self._large_held_bytes)
        if should_read != self._is_reading:
            self._is_reading = should_read
            (transport.resume_reading if should_read else transport.pause_reading)()
        if self._adopt is not None:
            self._hand_over(transport)

    # -- in a lane

    def _consider_lane(self, lanes: ConnectionLanes, frame: Bytes) -> None:
        if _API_KEY.unpack_from(frame)[0] not in (PRODUCE, FETCH) or self.sasl is not None:
            return
        self._requests_to_lane -= 1
        if self._requests_to_lane < 0 and self._adopt is None and self.state is _SERVING:
            lanes.consider(self, frame)

    def keep_out_of_lanes(self) -> None:
        """Serve more requests here than the last time before a lane is considered again."""
        self._requests_to_lane = self._requests_outside_lane
        self._requests_outside_lane = min(
            2 * self._requests_outside_lane, _MAX_REQUESTS_OUTSIDE_LANE
        )

    def move_to(self, adopt: Callable[[bytes], int | None]) -> None:
        """Call `adopt` with the bytes that were received, as soon as nothing is pending.

        It returns the token of the connection in its lane, or None if the lane cannot take it.
        """
        self._adopt = adopt
        self._flow()

    def descriptor(self) -> int:
        """Return the descriptor of the socket."""
        assert self._transport is not None
        own = self._transport.get_extra_info("socket")
        return -1 if own is None else int(own.fileno())

    def _hand_over(self, transport: asyncio.Transport) -> None:
        writer = self._writer
        if self.state is not _SERVING or transport.get_extra_info("sslcontext") is not None:
            self._adopt = None
            return
        if (
            self._is_feeding
            or self._frames
            or writer.pending
            or writer.is_full
            or transport.get_write_buffer_size()
        ):
            if not (self._is_feeding or self._frames or writer.pending):
                # No event follows when the transport has sent the last bytes of a response.
                self._loop.call_later(_HAND_OVER_S, self._flow)
            return
        adopt, self._adopt = self._adopt, None
        received = self._receiver.take()
        self._release_large()
        token = adopt(received) if adopt is not None else None
        if token is None:
            self.keep_out_of_lanes()
            self._feed(received)
            self._flow()
            return
        self._token = token
        self._move(_IN_LANE)

    def _feed(self, received: bytes) -> None:
        """Handle bytes that were received, and counted, before."""
        left = memoryview(received)
        self._is_feeding = True
        while left and not self._is_ending:
            buffer = self.get_buffer(len(left))
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            self._take_received(count)
            left = left[count:]
        self._is_feeding = False

    def return_from_lane(self, received: bytes, *, is_served: bool, idle_s: float) -> None:
        """Serve the connection here again, from these bytes on.

        Args:
            is_served: the lane served all requests before; else it cannot serve the next one.
            idle_s: how long the lane has had no request.
        """
        if self.state is not _IN_LANE:
            return
        self._move(_SERVING)
        self._token = 0
        if not is_served:
            self.keep_out_of_lanes()
        self._feed(received)
        self.last_active_s = self._loop.time() - (0.0 if received else idle_s)
        self._flow()

    def _leave_lane(self) -> None:
        """End a connection that a lane serves: the lane has a descriptor of its own."""
        if self._token and self._dispatcher.lanes is not None:
            self._dispatcher.lanes.forget(self._token)
            self._token = 0
            if self._transport is not None:
                shut_down(self._transport)

    # -- see `SocketOwner` and `ResponseOwner`

    def borrow_socket(self) -> Borrowed | None:
        return self._writer.borrow_socket()

    def on_sent(self, sent_bytes: int) -> None:
        self._dispatcher.bytes_sent(sent_bytes)
        self.last_active_s = self._loop.time()

    def on_progress(self) -> None:
        self._advance()
        self._flow()

    def abort_sending(self, error: object) -> None:
        if self._transport is not None:
            log.warning("closing the connection of %s: %s", self.client_address, error)
            self.abort()

    # -- for the server

    def stream(self, sent: PartialResponse) -> list[Bytes]:
        """Return the bytes to write now of a response that a directory's thread has begun.

        When the client has read them, the thread continues. No request is started before the
        response is complete.
        """
        self.on_sent(sent.sent_bytes)
        return self._writer.stream(sent)

    def is_idle_since(self, time_s: float) -> bool:
        """Return True if the connection was idle since `time_s` of the loop's clock."""
        if self.state is _IN_LANE:
            if self.last_active_s < time_s and self._dispatcher.lanes is not None:
                self._dispatcher.lanes.ask_back(self._token, self._limits.max_idle_ms)
            return False
        if self.state is _CLOSING:
            # No further request is answered, and the peer may never read the earlier responses.
            return self.last_active_s < time_s
        writer = self._writer
        if writer.is_full and writer.count():
            self.last_active_s = self._loop.time()  # the peer reads, if slowly
        is_waiting = bool(self._frames) and not (writer.is_full or self.state is _MUTED)
        return not writer.pending and not is_waiting and self.last_active_s < time_s

    def mute(self, delay_s: float) -> None:
        """Stop reading and starting requests for a time; started ones are answered (KIP-219)."""
        if self._is_ending:
            return
        ends_s = self._loop.time() + delay_s
        if self._timer is not None:
            ends_s = max(ends_s, self._timer.when())
        self._move(_MUTED, self._loop.call_at(ends_s, self.unmute))
        self._flow()

    def unmute(self) -> None:
        """End the pause early."""
        if self.state is _MUTED:
            self._move(_SERVING)
            self.on_progress()

    def authenticated(self, login: LoggedIn) -> None:
        """Serve the requests of a user from now on."""
        self.principal = f"User:{login.user}"
        self.is_token_authenticated = login.is_token
        if self._unauthenticated is not None:
            self._unauthenticated.forget(self._end_unfinished)
            self._unauthenticated = None
        self._receiver.limit(
            self._limits.max_request_bytes, "socket.request.max.bytes", _FIRST_ALLOCATION_BYTES
        )

    def _end_unfinished(self) -> str:
        """See `UnauthenticatedConnections.note`."""
        self._receiver.drop()
        self.abort()
        return f"{self.client_address} on listener {self.listener}"

    def refuse(self, delay_s: float, answer: list[Bytes]) -> None:
        """Handle no further request; send a response and close after the delay."""
        if self._is_ending:
            return
        self._stop(_REFUSING, self._loop.call_later(delay_s, self._send_last, answer))
        self._drop_frames()
        if self._transport is not None and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def _send_last(self, answer: list[Bytes]) -> None:
        if not answer or self._transport is None:
            self.close()
            return
        self._dispatcher.bytes_sent(sum(map(len, answer)))
        self._transport.writelines(answer)
        self._move(_REFUSING, self._loop.call_later(_LAST_ANSWER_S, self.close))

    def _stop(self, state: ConnectionState, timer: asyncio.TimerHandle | None = None) -> None:
        self._move(state, timer)
        self._writer.stop()

    def close(self) -> None:
        """Close after the bytes already given to the socket have been sent."""
        if self.state is not _CLOSED:
            self._leave_lane()
            self._stop(_CLOSING)
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.state is not _CLOSED:
            self._leave_lane()
            self._stop(_CLOSING)
            if self._transport is not None:
                self._transport.abort()
