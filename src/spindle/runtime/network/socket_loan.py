"""A socket on which the thread of a log directory sends one answer.

The thread uses a duplicate of the descriptor: the loop may close the connection at any time, and
another client's connection would then get the number. The duplicate is closed by the side that
takes it: the thread to send, or the loop to end the loan.
"""

import os
import select
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from spindle.common.ports import Bytes
from spindle.log.segments.file_range import FileRange
from spindle.serving.direct_answers import Part, SentAnswer

CAN_SEND_FILES: Final = sys.platform == "linux"
_WAIT_S: Final = 0.001
_WAIT_S_PER_BYTE: Final = 0.001 / 2**20
_MOST_WITHOUT_WAITING: Final = 64
_MOST_LOANS: Final = 64
"""Loans of the process at a time: `open_files` leaves that many descriptors beside those of files
and connections. A thread that has to wait for a descriptor must not wait for loans behind it."""
_permits: Final = [None] * _MOST_LOANS
"""One for each loan that may still be made; `pop` and `append` are safe in any thread."""


class Patience:
    """How long a thread waits for one client: about as long as reading the answer would take.

    If the client did not take an answer in that time, it is not waited for in the next one; after
    each further time, in twice as many. It then gets what its socket has room for, and the event
    loop sends the rest.
    """

    __slots__ = ("_pause", "_without_waiting")

    def __init__(self) -> None:
        self._pause = 1
        self._without_waiting = 0

    def wait_s(self, size_bytes: int) -> float:
        """Return how long to wait in all for an answer of that size."""
        if self._without_waiting:
            self._without_waiting -= 1
            return 0.0
        return _WAIT_S + size_bytes * _WAIT_S_PER_BYTE

    def note(self, *, took_all: bool) -> None:
        """Note whether a client that was waited for took the whole answer."""
        if took_all:
            self._pause = 1
        else:
            self._without_waiting = self._pause
            self._pause = min(2 * self._pause, _MOST_WITHOUT_WAITING)


class LentSocket:
    """See `serving.direct_answers.SocketLoan`."""

    __slots__ = ("_patience", "_sockets")

    def __init__(self, duplicate: socket.socket, patience: Patience) -> None:
        self._sockets = [duplicate]
        self._patience = patience

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

    def send(self, compose: Callable[[], Sequence[Part]]) -> SentAnswer | None:
        taken = self._take()
        if taken is None:
            return None
        try:
            parts = compose()
            size_bytes = sum(map(len, parts))
            wait_s = self._patience.wait_s(size_bytes)
            sent_bytes = _send_at_once(taken, parts, monotonic() + wait_s if wait_s else 0.0)
        finally:
            _end_loan(taken)
        if wait_s:
            self._patience.note(took_all=sent_bytes == size_bytes)
        return SentAnswer(sent_bytes, _rest(parts, sent_bytes))


def _end_loan(taken: socket.socket) -> None:
    taken.close()
    _permits.append(None)


def _send_at_once(taken: socket.socket, parts: Sequence[Part], deadline_s: float) -> int:
    """Send until the socket has been full up to the deadline; return how many bytes it took."""
    sent_bytes = 0
    for part in parts:
        done = 0
        while done < len(part):
            try:
                count = _send(taken, part, done, is_last=part is parts[-1])
            except BlockingIOError:
                if not _wait(taken, deadline_s):
                    return sent_bytes + done
                continue
            except OSError:
                # The disk's or the socket's? The rest is read, which asks only the disk, and is
                # then handed to the connection, which asks only the socket.
                return sent_bytes + done
            if not count:
                return sent_bytes + done
            done += count
        sent_bytes += done
    return sent_bytes


def _send(taken: socket.socket, part: Part, done: int, *, is_last: bool) -> int:
    if isinstance(part, FileRange):
        return part.send(taken.fileno(), done)
    return taken.send(memoryview(part)[done:], 0 if is_last else socket.MSG_MORE)


def _wait(taken: socket.socket, deadline_s: float) -> bool:
    """Wait until the socket has room; return False if the time is over."""
    left_s = deadline_s - monotonic()
    if left_s <= 0:
        return False
    poll = select.poll()
    poll.register(taken, select.POLLOUT)
    return bool(poll.poll(left_s * 1000))


def _rest(parts: Sequence[Part], sent_bytes: int) -> list[Bytes]:
    """Return what was not sent; read it from files."""
    rest: list[Bytes] = []
    for part in parts:
        start = min(sent_bytes, len(part))
        sent_bytes -= start
        if start < len(part):
            rest.append(
                part.read(start) if isinstance(part, FileRange) else memoryview(part)[start:]
            )
    return rest


def lend_socket(transport: Any, patience: Patience) -> LentSocket | None:
    """Return a loan of the transport's socket; None if its bytes must go through the transport.

    That is so for TLS, for transports that are no sockets, while no descriptor is free, and while
    there are 64 loans.
    """
    if not CAN_SEND_FILES or transport.get_extra_info("sslcontext") is not None:
        return None
    own = transport.get_extra_info("socket")
    if own is None or not _permits:
        return None
    _permits.pop()  # only the event loop takes one
    try:
        return LentSocket(_duplicate(own), patience)
    except OSError:
        _permits.append(None)
        return None


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
