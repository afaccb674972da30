"""Writes the responses of one connection in the order of its requests.

A response is written as a whole, or a directory's thread sends it in parts, one job after another,
whenever the client has read everything before. The states and their legal moves are in
`LEGAL_MOVES`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from spindle.common.ports import Bytes
from spindle.common.promise import Promise
from spindle.runtime.network.send_backlog import SendBacklog
from spindle.runtime.network.sendfile_socket import Borrowed, lend_socket, shut_down
from spindle.serving.fetch.sendfile_response import PartialResponse, StreamedResponse

MAX_UNCOUNTED_BYTES: Final = 16 * 1024
"""Below this, unsent bytes neither pause the connection nor count against the memory limit."""
_MAX_PIPELINED_BYTES: Final = 64 * 1024 * 1024

Answer = list[Bytes] | None
"""The frame to send, in pieces; None for a request without an answer (acks=0)."""


class Deferred(NamedTuple):
    """A later response: `finish` makes its frame from the result of `result`, on the event loop."""

    result: Awaitable[Any]
    finish: Callable[[Any], Answer]
    is_alone: bool = False
    """True if no later request may start before it is answered, not even if both are produce
    requests."""


class PendingAnswer:
    """A request that was started and whose response is not written yet."""

    __slots__ = ("answer", "is_done", "is_produce", "promise", "size_bytes")

    def __init__(self, is_produce: bool, size_bytes: int) -> None:
        self.is_produce = is_produce
        self.size_bytes = size_bytes
        self.is_done = False
        self.answer: Answer = None
        self.promise: Promise[Any] | None = None


class WriterState(Enum):
    """The state of the responses of a connection."""

    READY = "the next response may be written"
    FULL = "the client has not taken the last responses"
    STREAMING = "the client has not taken the last part of a response"
    JOB = "a directory's thread sends the next part of a response"
    STOPPED = "nothing more is written"


_READY, _FULL, _STREAMING, _JOB, _STOPPED = WriterState

LEGAL_MOVES: Final = {
    _READY: {_FULL, _STREAMING, _STOPPED},
    _FULL: {_READY, _STREAMING, _STOPPED},
    _STREAMING: {_JOB, _STOPPED},
    _JOB: {_STREAMING, _READY, _FULL, _STOPPED},
    _STOPPED: {_STOPPED},
}
"""The states that may follow a state; every other move is a bug."""


class ResponseOwner(Protocol):
    """A connection, as its writer uses it."""

    def on_sent(self, sent_bytes: int) -> None:
        """Count bytes that were sent or given to the transport."""
        ...

    def on_progress(self) -> None:
        """Continue after a part of a response was written; the response may now be complete."""
        ...

    def abort_sending(self, error: object) -> None:
        """End the connection, because a response cannot be completed."""
        ...


class _NoOwner:
    """Replaces a connection that has ended: a reference to it would keep it in memory."""

    def on_sent(self, sent_bytes: int) -> None: ...
    def on_progress(self) -> None: ...
    def abort_sending(self, error: object) -> None: ...


_NO_OWNER: Final = _NoOwner()


class ResponseWriter:
    """The queue of responses, and the bytes that the client has not read.

    Args:
        owner: the connection.
        backlog: where the unsent bytes are counted.

    Attributes:
        state: see `WriterState`.
        pending: the started requests, in their order.
        client_keeps_up: the client has read the last large response.
    """

    __slots__ = (
        "_backlog",
        "_given_bytes",
        "_left_bytes",
        "_loan",
        "_owner",
        "_pipelined_bytes",
        "_rest",
        "_rest_bytes",
        "_transport",
        "_unsent_bytes",
        "client_keeps_up",
        "pending",
        "state",
    )

    def __init__(self, owner: ResponseOwner, backlog: SendBacklog) -> None:
        self.state = _READY
        self.pending: deque[PendingAnswer] = deque()
        self.client_keeps_up = False
        self._owner: ResponseOwner = owner
        self._backlog = backlog
        self._transport: asyncio.Transport | None = None
        self._pipelined_bytes = 0
        self._unsent_bytes = self._left_bytes = self._given_bytes = self._rest_bytes = 0
        self._loan: Borrowed | None = None
        self._rest: StreamedResponse | None = None

    def _move(self, state: WriterState) -> None:
        assert state in LEGAL_MOVES[self.state], f"{self.state.name} to {state.name}"
        self.state = state

    def open(self, transport: asyncio.Transport) -> None:
        """Write to `transport` from now on."""
        self._transport = transport
        self._limit_writes(transport)

    @staticmethod
    def _limit_writes(transport: asyncio.Transport) -> None:
        """Set the limits at which the transport reports unsent bytes: a few bytes, and none."""
        transport.set_write_buffer_limits(high=MAX_UNCOUNTED_BYTES, low=0)

    # -- the order of responses

    def may_start(self, *, is_produce: bool) -> bool:
        """Return True if the next request may start: none or only produce requests are pending."""
        if self.state is not _READY:
            return False
        pending = self.pending
        return not pending or (
            is_produce and pending[-1].is_produce and self._pipelined_bytes <= _MAX_PIPELINED_BYTES
        )

    def add(self, answer: Answer, *, is_produce: bool) -> None:
        """Write the response to the newest request in its turn."""
        if not self.pending:
            self.write(answer)
            return
        done = PendingAnswer(is_produce, 0)
        done.is_done, done.answer = True, answer
        self.pending.append(done)

    def start(self, *, is_produce: bool, size_bytes: int) -> PendingAnswer:
        """Reserve the place of a later response."""
        pending = PendingAnswer(is_produce, size_bytes)
        self._pipelined_bytes += size_bytes
        self.pending.append(pending)
        return pending

    def end_request(self, pending: PendingAnswer) -> None:
        """Record that a request of `start` has its result, or has failed."""
        self._pipelined_bytes -= pending.size_bytes

    def complete(self, pending: PendingAnswer, answer: Answer) -> None:
        """Write the response to a request of `start` in its turn, and those that wait for it."""
        pending.is_done, pending.answer = True, answer
        self._loan = None  # its job is done
        queue = self.pending
        while queue and queue[0].is_done:
            self.write(queue.popleft().answer)

    def write(self, answer: Answer) -> None:
        """Pass a response, or a part of one, to the transport."""
        transport = self._transport
        if not answer or transport is None:
            return
        size_bytes = sum(map(len, answer))
        self._owner.on_sent(size_bytes)
        if len(answer) == 1:
            transport.write(answer[0])
        else:
            transport.writelines(answer)
        if size_bytes > MAX_UNCOUNTED_BYTES:
            self._given_bytes += size_bytes
            self.count()
            self.client_keeps_up = not self._unsent_bytes
        if self.state is _STREAMING:
            self._start_job()

    # -- bytes that the client has not taken

    @property
    def is_full(self) -> bool:
        """True if the client must read before more is written."""
        return self.state is _FULL or self.state is _STREAMING

    def pause(self) -> None:
        """Write nothing until `resume`: the transport has unsent bytes."""
        if self.state is _READY:
            self._move(_FULL)
        self.count()

    def resume(self) -> None:
        """Continue: the transport has sent everything."""
        self.count()
        self.client_keeps_up = True
        if self.state is _FULL:
            self._move(_READY)
        elif self.state is _STREAMING:
            self._start_job()

    def count(self) -> bool:
        """Count the bytes in memory of transport and response; return True after a change.

        A piece passed to the transport stays in memory until all of it is sent.
        """
        left = 0 if self._transport is None else self._transport.get_write_buffer_size()
        before, self._left_bytes = self._left_bytes, left
        if not left:
            self._given_bytes = 0
        if self._rest is not None:
            self._rest_bytes = self._rest.memory_bytes
        count = max(left, self._given_bytes) + self._rest_bytes
        self._unsent_bytes = count if count > MAX_UNCOUNTED_BYTES else 0
        self._backlog.note(self, self._unsent_bytes)
        return left != before

    def end(self) -> None:
        """End the connection, because its client reads nothing while others wait for memory."""
        self._owner.abort_sending(
            f"it has not read {self._unsent_bytes} bytes, and memory is scarce"
        )

    # -- a response that a directory's thread sends

    def borrow_socket(self) -> Borrowed | None:
        """Lend the socket for one job, if nothing has to be sent before."""
        transport = self._transport
        if transport is None or len(self.pending) > 1:
            return None
        if transport.get_write_buffer_size():
            self._loan = None
        else:
            self._loan = lend_socket(transport, may_wait=self.client_keeps_up)
        return self._loan

    def stream(self, sent: PartialResponse) -> list[Bytes]:
        """Keep the rest of a response, if there is one; return the bytes to write before it."""
        if sent.rest is not None and self._transport is not None:
            self._rest = sent.rest
            self._move(_STREAMING)
            self._transport.set_write_buffer_limits(high=0)
        return sent.next

    def _start_job(self) -> None:
        """Start the job for the next part, if the client has read the previous one."""
        self.count()
        transport, rest = self._transport, self._rest
        if transport is None or rest is None or transport.get_write_buffer_size():
            return
        self._move(_JOB)
        self._rest = None  # the job has it
        rest.start_next_job(self._done, self.borrow_socket())

    def _done(self, sent: PartialResponse | None, error: BaseException | None) -> None:
        self._rest_bytes = 0
        transport = self._transport
        if sent is None:
            if transport is not None:  # otherwise `close` ends the loan, or has ended it
                self._end_loan(transport)
            self._owner.abort_sending(error)
            return
        self._loan = None
        self._rest = sent.rest
        if transport is None:
            self._give_up()
            return
        if sent.rest is not None:
            self._move(_STREAMING)
        else:
            self._move(_FULL if transport.get_write_buffer_size() else _READY)
            self._limit_writes(transport)
        self._owner.on_sent(sent.sent_bytes)
        self.write(sent.next)
        self.count()
        self._owner.on_progress()

    # -- the end

    def stop(self) -> None:
        """Stop writing; the connection is closing."""
        self._move(_STOPPED)
        self._transport = None

    def close(self, transport: asyncio.Transport | None) -> None:
        """Cancel all requests but produce requests, because the connection has ended."""
        self.stop()
        self._end_loan(transport)
        self._give_up()
        self._backlog.note(self, 0)
        for pending in self.pending:
            if pending.promise is not None and not pending.is_produce:
                pending.promise.cancel()
        self.pending.clear()
        self._owner = _NO_OWNER

    def _end_loan(self, transport: asyncio.Transport | None) -> None:
        """Take the socket back; if a thread still uses its duplicate, shut the connection down."""
        loan, self._loan = self._loan, None
        if loan is not None and not loan.take_back():
            shut_down(transport)  # an abandoned thread may keep its duplicate

    def _give_up(self) -> None:
        if self._rest is not None:
            self._rest.give_up()
            self._rest = None
