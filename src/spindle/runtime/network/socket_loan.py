"""A socket on which the thread of a log directory sends of one answer, without ever waiting.

The thread uses a duplicate of the descriptor: the loop may close the connection at any time, and
another client's connection would then get the number. The duplicate is closed by the side that
takes it: the thread at the end of its job, or the loop to end the loan.
"""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from spindle.serving.answer_parts import AnswerParts
from spindle.serving.direct_answers import SocketRoom

CAN_SEND_FILES: Final = sys.platform == "linux"
_MOST_LOANS: Final = 64
"""Loans of the process at a time: `open_files` leaves that many descriptors beside those of files
and connections. A thread that has to wait for a descriptor must not wait for loans behind it."""
_permits: Final = [None] * _MOST_LOANS
"""One for each loan that may still be made; `pop` and `append` are safe in any thread."""


class LentSocket:
    """See `serving.direct_answers.SocketLoan`."""

    __slots__ = ("_sockets",)

    def __init__(self, duplicate: socket.socket) -> None:
        self._sockets = [duplicate]

    def take_back(self) -> bool:
        taken = self._take()
        if taken is None:
            return False
        _end_loan(taken)
        return True

    def _take(self) -> socket.socket | None:
        # A list's `pop` is one step of the interpreter, so only one thread gets the socket.
        try:
            return self._sockets.pop()
        except IndexError:
            return None

    def send(self, begin: Callable[[], AnswerParts]) -> SocketRoom | None:
        taken = self._take()
        if taken is None:
            return None
        try:
            return _send_at_once(taken, begin())
        finally:
            _end_loan(taken)


class NoSocket:
    """Stands for a loan while none can be made: the next piece of the answer is then read.

    See `serving.direct_answers.SocketLoan`.
    """

    __slots__ = ("_uses",)

    def __init__(self) -> None:
        self._uses = [None]

    def take_back(self) -> bool:
        try:
            self._uses.pop()
        except IndexError:
            return False
        return True

    def send(self, begin: Callable[[], AnswerParts]) -> SocketRoom | None:
        if not self.take_back():
            return None
        begin()
        return SocketRoom(0, is_full=False)


Loan: TypeAlias = LentSocket | NoSocket


def _end_loan(taken: socket.socket) -> None:
    taken.close()
    _permits.append(None)


def _send_at_once(taken: socket.socket, parts: AnswerParts) -> SocketRoom:
    """Send until the socket is full, or until all is sent, or until sending fails."""
    before_bytes = parts.size_bytes
    is_full = False
    while parts.size_bytes:
        try:
            count = _send(taken, parts)
        except BlockingIOError:
            is_full = True
            break
        except OSError:
            # The disk's or the socket's? The next piece is read, which asks only the disk, and is
            # then handed to the connection, which asks only the socket.
            break
        if not count:  # the file has ended
            break
        parts.took(count)
    return SocketRoom(before_bytes - parts.size_bytes, is_full)


def _send(taken: socket.socket, parts: AnswerParts) -> int:
    front = parts.front()
    if not isinstance(front, list):
        return parts.send_file(taken.fileno())
    is_last = sum(map(len, front)) == parts.size_bytes
    return taken.sendmsg(front, (), 0 if is_last else socket.MSG_MORE)


def lend_socket(transport: Any) -> Loan | None:
    """Return a loan of the transport's socket; None if its bytes must go through the transport.

    That is so for TLS and for transports that are no sockets. While no descriptor is free, and
    while there are 64 loans, the loan has no socket.
    """
    if not CAN_SEND_FILES or transport.get_extra_info("sslcontext") is not None:
        return None
    own = transport.get_extra_info("socket")
    if own is None:
        return None
    if not _permits:
        return NoSocket()
    _permits.pop()  # only the event loop takes one
    try:
        return LentSocket(_duplicate(own))
    except OSError:
        _permits.append(None)
        return NoSocket()


def shut_down(transport: Any) -> None:
    """Tell the client the end of a connection, although a thread may hold a duplicate of its
    socket, and may hang with it.
    """
    own = transport.get_extra_info("socket")
    if own is not None:
        with suppress(OSError), _duplicate(own) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def _duplicate(own: Any) -> socket.socket:
    return socket.socket(own.family, own.type, own.proto, fileno=os.dup(own.fileno()))
