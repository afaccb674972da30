"""Flow control for a response that the client has not fully read.

A directory's thread may send the rest of an answer, one job after another.
"""

import asyncio
from typing import Final, Protocol

from spindle.common.ports import Bytes
from spindle.runtime.network.send_backlog import SendBacklog
from spindle.runtime.network.sendfile_socket import Borrowed, lend_socket, shut_down
from spindle.serving.fetch.sendfile_response import PartialResponse, StreamedResponse

MAX_UNCOUNTED_BYTES: Final = 16 * 1024
"""Below this, unsent bytes neither pause the connection nor count against the memory limit."""


def limit_writes(transport: asyncio.Transport) -> None:
    """Let the transport tell when more than a few bytes are unsent, and when all are sent."""
    transport.set_write_buffer_limits(high=MAX_UNCOUNTED_BYTES, low=0)


class TailSender(Protocol):
    """A connection, as far as the rest of its answers needs it."""

    @property
    def open_transport(self) -> asyncio.Transport | None:
        """Return the transport, None if nothing more may be sent."""
        ...

    def on_progress(self, sent_bytes: int, answer: list[Bytes]) -> None:
        """Record progress and write the next bytes; the response may now be complete."""
        ...

    def abort_sending(self, error: object) -> None:
        """End the connection, because an answer cannot be completed."""
        ...


class ResponseTail:
    """Starts a job whenever the client has taken everything that was written before.

    Args:
        owner: the connection.
        unsent: where the bytes are counted.

    Attributes:
        client_keeps_up: the last large answer was taken.
    """

    __slots__ = (
        "_given_bytes",
        "_is_sending",
        "_left_bytes",
        "_loan",
        "_owner",
        "_rest",
        "_rest_bytes",
        "_unsent",
        "_unsent_bytes",
        "client_keeps_up",
    )

    def __init__(self, owner: TailSender, unsent: SendBacklog) -> None:
        self.client_keeps_up = False
        self._owner = owner
        self._unsent = unsent
        self._unsent_bytes = self._left_bytes = self._given_bytes = self._rest_bytes = 0
        self._loan: Borrowed | None = None
        self._rest: StreamedResponse | None = None
        self._is_sending = False

    @property
    def is_active(self) -> bool:
        """Return True before the end of an answer."""
        return self._rest is not None

    # -- bytes that the client has not taken

    def count(self) -> bool:
        """Count what the transport and the rest have in memory; return True if it has changed.

        A piece that was given to the transport stays in memory until all of it is sent.
        """
        transport = self._owner.open_transport
        left = 0 if transport is None else transport.get_write_buffer_size()
        before, self._left_bytes = self._left_bytes, left
        if not left:
            self._given_bytes = 0
        count = max(left, self._given_bytes)
        if self._rest is not None:
            if not self._is_sending:
                self._rest_bytes = self._rest.memory_bytes
            count += self._rest_bytes
        self._unsent_bytes = count if count > MAX_UNCOUNTED_BYTES else 0
        self._unsent.note(self, self._unsent_bytes)
        return left != before

    def large_given(self, size_bytes: int) -> None:
        """Note that a large answer was given to the transport."""
        self._given_bytes += size_bytes
        self.count()
        self.client_keeps_up = not self._unsent_bytes

    def all_taken(self) -> None:
        """Note that the transport has nothing left of what made it pause."""
        self.count()
        self.client_keeps_up = True

    def end(self) -> None:
        """End the connection, because its client takes nothing while others wait for memory."""
        self._owner.abort_sending(
            f"it has not read {self._unsent_bytes} bytes, and memory is scarce"
        )

    # -- the rest of an answer

    def borrow_socket(self, transport: asyncio.Transport) -> Borrowed | None:
        """Lend the socket for one job, if the transport has nothing left to send."""
        if transport.get_write_buffer_size():
            self._loan = None
        else:
            self._loan = lend_socket(transport, may_wait=self.client_keeps_up)
        return self._loan

    def end_loan(self) -> None:
        """Drop the borrowed socket: its job is done."""
        self._loan = None

    def start(self, sent: PartialResponse) -> list[Bytes]:
        """Take the rest of an answer, if there is one; return what is to be sent before it."""
        transport = self._owner.open_transport
        if sent.rest is not None and transport is not None:
            self._rest = sent.rest
            transport.set_write_buffer_limits(high=0)
        return sent.next

    def resume(self) -> None:
        """Start the next job if there is a rest and the client has taken what was before it."""
        rest, transport = self._rest, self._owner.open_transport
        if rest is None or self._is_sending or transport is None:
            return
        self.count()
        if not transport.get_write_buffer_size():
            self._is_sending = True
            rest.go_on(self._done, self.borrow_socket(transport))

    def _done(self, sent: PartialResponse | None, error: BaseException | None) -> None:
        self._is_sending = False
        transport = self._owner.open_transport
        if sent is None:
            self._rest = None
            if transport is not None:  # otherwise `close` ends the loan, or has ended it
                self._end_loan(transport)
            self._owner.abort_sending(error)
            return
        self._loan = None
        self._rest = sent.rest
        if transport is None:
            self._give_up()
            return
        if sent.rest is None:
            limit_writes(transport)
        self._owner.on_progress(sent.sent_bytes, sent.next)

    def close(self, transport: asyncio.Transport | None) -> None:
        """Send nothing more, because the connection has ended."""
        self._end_loan(transport)
        if not self._is_sending:
            self._give_up()
        self._unsent.note(self, 0)

    def _end_loan(self, transport: asyncio.Transport | None) -> None:
        """Take the socket back; if a thread still uses its duplicate, shut the connection down."""
        loan, self._loan = self._loan, None
        if loan is not None and not loan.take_back():
            shut_down(transport)  # an abandoned thread may keep its duplicate

    def _give_up(self) -> None:
        if self._rest is not None:
            self._rest.give_up()
            self._rest = None
