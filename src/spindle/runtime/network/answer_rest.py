"""The answers of a connection that its client has not taken: how many bytes, and what follows.

A directory's thread may send the rest of an answer, one job after another.
"""

import asyncio
from typing import Final, Protocol

from spindle.common.ports import Bytes
from spindle.runtime.network.socket_loan import Loan, lend_socket, shut_down
from spindle.runtime.network.unsent_answers import UnsentAnswers
from spindle.serving.direct_answers import RestOfAnswer, SentAnswer

MOST_UNCOUNTED_BYTES: Final = 16 * 1024
"""So many unsent bytes of a connection stop nothing and are not counted."""


def limit_writes(transport: asyncio.Transport) -> None:
    """Let the transport tell when more than a few bytes are unsent, and when all are sent."""
    transport.set_write_buffer_limits(high=MOST_UNCOUNTED_BYTES, low=0)


class RestSender(Protocol):
    """A connection, as far as the rest of its answers needs it."""

    @property
    def open_transport(self) -> asyncio.Transport | None:
        """Return the transport, None if nothing more may be sent."""
        ...

    def went_on(self, sent_bytes: int, answer: list[Bytes]) -> None:
        """Count what was sent, and send what follows. The rest may be complete now."""
        ...

    def cut_off(self, error: object) -> None:
        """End the connection, because an answer cannot be completed."""
        ...


class AnswerRest:
    """Starts a job whenever the client has taken everything that was written before.

    Args:
        owner: the connection.
        unsent: where the bytes are counted.

    Attributes:
        takes_answers: the last large answer was taken.
    """

    __slots__ = (
        "_given_bytes",
        "_is_under_way",
        "_left_bytes",
        "_loan",
        "_owner",
        "_rest",
        "_rest_bytes",
        "_unsent",
        "_unsent_bytes",
        "takes_answers",
    )

    def __init__(self, owner: RestSender, unsent: UnsentAnswers) -> None:
        self.takes_answers = False
        self._owner = owner
        self._unsent = unsent
        self._unsent_bytes = self._left_bytes = self._given_bytes = self._rest_bytes = 0
        self._loan: Loan | None = None
        self._rest: RestOfAnswer | None = None
        self._is_under_way = False

    @property
    def is_there(self) -> bool:
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
            if not self._is_under_way:
                self._rest_bytes = self._rest.memory_bytes
            count += self._rest_bytes
        self._unsent_bytes = count if count > MOST_UNCOUNTED_BYTES else 0
        self._unsent.note(self, self._unsent_bytes)
        return left != before

    def large_given(self, size_bytes: int) -> None:
        """Note that a large answer was given to the transport."""
        self._given_bytes += size_bytes
        self.count()
        self.takes_answers = not self._unsent_bytes

    def all_taken(self) -> None:
        """Note that the transport has nothing left of what made it pause."""
        self.count()
        self.takes_answers = True

    def end(self) -> None:
        """End the connection, because its client takes nothing while others wait for memory."""
        self._owner.cut_off(f"it has not read {self._unsent_bytes} bytes, and memory is scarce")

    # -- the rest of an answer

    def lend(self, transport: asyncio.Transport) -> Loan | None:
        """Lend the socket for one job, if the transport has nothing left to send."""
        if transport.get_write_buffer_size():
            self._loan = None
        else:
            self._loan = lend_socket(transport, may_wait=self.takes_answers)
        return self._loan

    def end_loan(self) -> None:
        """Forget the loan: its job is done."""
        self._loan = None

    def begin(self, sent: SentAnswer) -> list[Bytes]:
        """Take the rest of an answer, if there is one; return what is to be sent before it."""
        transport = self._owner.open_transport
        if sent.rest is not None and transport is not None:
            self._rest = sent.rest
            transport.set_write_buffer_limits(high=0)
        return sent.next

    def go_on(self) -> None:
        """Start the next job if there is a rest and the client has taken what was before it."""
        rest, transport = self._rest, self._owner.open_transport
        if rest is None or self._is_under_way or transport is None:
            return
        self.count()
        if not transport.get_write_buffer_size():
            self._is_under_way = True
            rest.go_on(self._done, self.lend(transport))

    def _done(self, sent: SentAnswer | None, error: BaseException | None) -> None:
        self._is_under_way = False
        transport = self._owner.open_transport
        if sent is None:
            self._rest = None
            if transport is not None:  # otherwise `close` ends the loan, or has ended it
                self._end_loan(transport)
            self._owner.cut_off(error)
            return
        self._loan = None
        self._rest = sent.rest
        if transport is None:
            self._give_up()
            return
        if sent.rest is None:
            limit_writes(transport)
        self._owner.went_on(sent.sent_bytes, sent.next)

    def close(self, transport: asyncio.Transport | None) -> None:
        """Send nothing more, because the connection has ended."""
        self._end_loan(transport)
        if not self._is_under_way:
            self._give_up()
        self._unsent.note(self, 0)

    def _end_loan(self, transport: asyncio.Transport | None) -> None:
        """Take the loan back; if a thread has its duplicate, end the connection for the client."""
        loan, self._loan = self._loan, None
        if loan is not None and not loan.take_back():
            shut_down(transport)  # an abandoned thread may keep its duplicate

    def _give_up(self) -> None:
        if self._rest is not None:
            self._rest.give_up()
            self._rest = None
