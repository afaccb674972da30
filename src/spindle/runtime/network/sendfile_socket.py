"""A duplicated client socket on which an I/O thread sends one response with sendfile().

The thread uses a duplicate of the descriptor: the loop may close the connection at any time, and
another client's connection could then get the same number. One side takes and closes the duplicate:
the thread at the end of its job, or the loop to end the loan.
"""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final, TypeAlias

from spindle.serving.fetch.response_parts import AnswerParts
from spindle.serving.fetch.sendfile_response import SocketWait

CAN_SEND_FILES: Final = sys.platform == "linux"
_MAX_LOANS: Final = 64
"""Maximum number of loans of the process: `open_files` reserves this many descriptors. A thread
that waits for a descriptor must not wait for later loans."""
_permits: Final = [None] * _MAX_LOANS
"""One entry for each loan that is still possible; `pop` and `append` are thread-safe."""
_RESERVED: Final = 16
"""Duplicates reserved for clients that read their responses."""


class SendfileSocket:
    """See `serving.fetch.sendfile_response.BorrowedSocket`.

    Args:
        may_wait: the loan continues after a `send` to a full socket.
    """

    __slots__ = ("_kept", "_may_wait", "_sockets", "descriptor")

    def __init__(self, duplicate: socket.SocketType, *, may_wait: bool) -> None:
        self.descriptor = -1
        self._sockets = [duplicate]
        self._may_wait = may_wait
        self._kept: socket.SocketType | None = None

    def take_back(self) -> bool:
        taken = self._take()
        if taken is None:
            return False
        _end_loan(taken)
        return True

    def _take(self) -> socket.SocketType | None:
        # A list's `pop` is one step of the interpreter, so only one thread gets the socket.
        try:
            return self._sockets.pop()
        except IndexError:
            return None

    def send(self, begin: Callable[[], AnswerParts]) -> SocketWait | None:
        if self._kept is not None:
            return _send_at_once(self._kept, begin())
        taken = self._take()
        if taken is None:
            return None
        try:
            room = _send_at_once(taken, begin())
            if room.is_full and self._may_wait and loans_left() >= _RESERVED:
                self._kept = taken
                self.descriptor = taken.fileno()
            return room
        finally:
            if self._kept is None:
                _end_loan(taken)

    def end(self) -> None:
        kept, self._kept = self._kept, None
        self.descriptor = -1
        if kept is not None:
            _end_loan(kept)


class SocketUnavailable:
    """Replaces a borrowed socket while none can be lent: the next piece is then read instead.

    See `serving.fetch.sendfile_response.BorrowedSocket`.
    """

    __slots__ = ("_uses", "descriptor")

    def __init__(self) -> None:
        self.descriptor = -1
        self._uses = [None]

    def end(self) -> None:
        """Do nothing."""

    def take_back(self) -> bool:
        try:
            self._uses.pop()
        except IndexError:
            return False
        return True

    def send(self, begin: Callable[[], AnswerParts]) -> SocketWait | None:
        if not self.take_back():
            return None
        begin()
        return SocketWait(0, is_full=False)


Borrowed: TypeAlias = SendfileSocket | SocketUnavailable


def _end_loan(taken: socket.SocketType) -> None:
    taken.close()
    _permits.append(None)


def _send_at_once(taken: socket.SocketType, parts: AnswerParts) -> SocketWait:
    """Send until the socket is full, the response is complete, or sending fails."""
    before_bytes = parts.size_bytes
    is_full = False
    while parts.size_bytes and not is_full:
        front = parts.front()
        try:
            if isinstance(front, list):
                wanted = sum(map(len, front))
                flags = 0 if wanted == parts.size_bytes else socket.MSG_MORE
                count = taken.sendmsg(front, (), flags)
            else:
                wanted = parts.front_bytes
                count = parts.send_file(taken.fileno())
        except BlockingIOError:
            is_full = True
            break
        except OSError:
            # The error may come from the disk or the socket. Read the next piece, which uses only
            # the disk, and pass it to the connection, which uses only the socket.
            break
        if not count:  # the file has ended
            break
        is_full = count < wanted
        parts.took(count)
    return SocketWait(before_bytes - parts.size_bytes, is_full)


def loans_left() -> int:
    """Return how many more sockets may be lent at the same time."""
    return len(_permits)


def lend_socket(transport: Any, *, may_wait: bool = False) -> Borrowed | None:
    """Return a loan of the transport's socket; None with TLS or without a socket.

    While no descriptor is free or there are 64 loans, the loan has no socket. With `may_wait` a job
    may wait until the socket is writable again: for a client that has read its last responses.
    """
    if not CAN_SEND_FILES or transport.get_extra_info("sslcontext") is not None:
        return None
    own = transport.get_extra_info("socket")
    if own is None:
        return None
    if not _permits:
        return SocketUnavailable()
    _permits.pop()  # only the event loop removes entries
    try:
        return SendfileSocket(_duplicate(own), may_wait=may_wait)
    except OSError:
        _permits.append(None)
        return SocketUnavailable()


def shut_down(transport: Any) -> None:
    """Shut the connection down, even if a thread that hangs holds a duplicate of its socket."""
    own = transport.get_extra_info("socket")
    if own is not None:
        with suppress(OSError), closing(_duplicate(own)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def _duplicate(own: Any) -> socket.SocketType:
    # The base class, which opens and closes in fewer steps; the family matters to addresses only.
    return socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, 0, os.dup(own.fileno()))
