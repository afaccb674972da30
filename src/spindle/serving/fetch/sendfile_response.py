"""Responses whose records a directory's thread sends from their file with sendfile.

One job of the directory's thread finds the batches, builds the response and sends its beginning. A
connection lends its socket to a job if it has nothing else to send. The thread sends as much as the
socket accepts at once. If the client has read its earlier responses, the job then waits a short
time until the socket is writable, while the thread runs other jobs. Otherwise the connection sends
a small piece; as soon as that is sent, the socket is writable again, and another job continues.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from spindle.common.ports import Bytes
from spindle.disks.executor import Callback, DirectoryExecutor, Unfinished
from spindle.protocol.api import response_header_version
from spindle.protocol.codec import encode_parts
from spindle.protocol.framing import SIZE, response_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.produce import ProduceResponse
from spindle.protocol.single_produce import write_single_produced
from spindle.serving.fetch.response_parts import AnswerParts, Part

_LAST_PIECE_BYTES: Final = 64 * 1024
"""An unsent part of at most this size is read and handed to the connection as a whole."""
_PROBE_BYTES: Final = 4096
"""Size of the piece for the connection while the socket is full; once sent, it has room again."""


class AnswerCutOff(Exception):
    """A response cannot be completed and may be partly sent: the connection must be closed."""


class BorrowedSocket(Protocol):
    """A socket that a connection lends for one job.

    Attributes:
        descriptor: descriptor to poll for writability after a partial `send`:
            `send` can then be used again until `end`. -1 if the socket was returned by `send`.
    """

    descriptor: int

    def send(self, begin: Callable[[], AnswerParts]) -> "SocketWait | None":
        """Send as much of the response as the socket accepts now. Runs on the disk thread.

        A socket error is left to the connection, which gets it with its next send.

        Args:
            begin: returns the response.

        Returns:
            None if the connection took the socket back before.

        Raises:
            RangeLost: bytes of an earlier job were cut from the log meanwhile.
        """
        ...

    def end(self) -> None:
        """Return a socket that was kept after `send`."""
        ...

    def take_back(self) -> bool:
        """Return the socket if it was neither used nor returned; else return False."""
        ...


class SocketWait(NamedTuple):
    """The state of the socket after a job.

    Attributes:
        sent_bytes: number of bytes sent.
        is_full: it accepts no more bytes now; False if everything is sent, or if sending failed.
    """

    sent_bytes: int
    is_full: bool


class SocketOwner(Protocol):
    """A connection that may lend its socket.

    Attributes:
        may_send_directly: the client reads each large response before it sends the next request.
    """

    may_send_directly: bool

    def borrow_socket(self) -> BorrowedSocket | None:
        """Return the socket, which must be used or taken back; None if it cannot be lent.

        Call it only while the response to the request is the next one to send.
        """
        ...


class PartialResponse(NamedTuple):
    """A response that was sent partly or completely.

    Attributes:
        sent_bytes: how many.
        next: the bytes that the connection must send now.
        rest: the part that a job sends after that; None at the end of the response.
    """

    sent_bytes: int
    next: list[Bytes]
    rest: "StreamedResponse | None"


class StreamedResponse:
    """The unsent part of a response that jobs on a directory's thread send in pieces.

    Args:
        compose: builds the frame, on the directory's thread.
    """

    __slots__ = ("_compose", "_executor", "_parts")

    def __init__(self, executor: DirectoryExecutor, compose: Callable[[], Sequence[Part]]) -> None:
        self._executor = executor
        self._compose = compose
        self._parts: AnswerParts | None = None

    @property
    def memory_bytes(self) -> int:
        """Return how many of its bytes are in memory. Call it between two jobs."""
        return 0 if self._parts is None else self._parts.memory_bytes

    def start_next_job(
        self, done: Callback[PartialResponse | None], loan: BorrowedSocket | None
    ) -> None:
        """Start the next job. Call it when the connection has sent all its bytes.

        Args:
            done: called on the event loop with the result of `send_on`, or its error.
            loan: None if the socket cannot be lent now: a piece is then read instead.
        """
        self._executor.call(done, self.send_on, loan)

    def send_on(self, loan: BorrowedSocket | None) -> "PartialResponse | PendingResponse | None":
        """Send as much as the socket accepts; None if the socket was taken back before.

        Raises:
            OSError: of the disk.
            ShortRead: a file is shorter than it was.
            RangeLost: the bytes were cut from the log after the answer had begun.
        """
        try:
            room = SocketWait(0, False) if loan is None else loan.send(self.begun)
            if room is None:
                self.release_files()
                return None
            if loan is None or loan.descriptor < 0:
                return self.hand_over(room)
            self.begun().pin_files()
        except BaseException:
            if loan is not None:
                loan.end()
            self.release_files()
            raise
        return PendingResponse(self, loan, room.sent_bytes)

    def hand_over(self, room: SocketWait) -> PartialResponse:
        """Return the connection's next step; see `send_on` for the errors."""
        parts = self.begun()
        is_probe = room.is_full and parts.size_bytes > _LAST_PIECE_BYTES
        piece = parts.take(_PROBE_BYTES if is_probe else _LAST_PIECE_BYTES)
        if not parts.size_bytes:
            return PartialResponse(room.sent_bytes, piece, None)
        parts.pin_files()
        return PartialResponse(room.sent_bytes, piece, self)

    def begun(self) -> AnswerParts:
        """Return the unsent part of the response, on the directory's thread."""
        parts = self._parts
        if parts is None:
            parts = self._parts = AnswerParts(self._compose())
        return parts

    def release_files(self) -> None:
        """Unpin the files; nothing more is sent. Runs on the directory's thread."""
        if self._parts is not None:
            self._parts.unpin_files()

    def give_up(self) -> None:
        """Unpin the files because the client disconnected. Call it between two jobs."""
        self._executor.run_after_failure(self.release_files)


class PendingResponse(Unfinished):
    """A job that waits until the socket is writable."""

    __slots__ = ("_answer", "_loan", "_sent_bytes")

    def __init__(self, answer: StreamedResponse, loan: BorrowedSocket, sent_bytes: int) -> None:
        super().__init__(loan.descriptor)
        self._answer = answer
        self._loan = loan
        self._sent_bytes = sent_bytes

    def resume(self) -> "PartialResponse | PendingResponse":
        """See `StreamedResponse.send_on`."""
        room = self._loan.send(self._answer.begun)
        assert room is not None, "the loan goes on"
        self._sent_bytes += room.sent_bytes
        if room.is_full:
            return self
        return self._answer.hand_over(SocketWait(self._sent_bytes, is_full=False))

    def cancel_wait(self) -> PartialResponse:
        """See `StreamedResponse.hand_over`."""
        return self._answer.hand_over(SocketWait(self._sent_bytes, is_full=True))

    def close(self, *, has_failed: bool) -> None:
        """See `Unfinished`."""
        self._loan.end()
        if has_failed:
            with suppress(OSError):  # of a file that was open for this answer alone
                self._answer.release_files()


def frame_of(message: Message, api_key: int, api_version: int, correlation_id: int) -> list[Bytes]:
    """Return the frame of a response, in pieces. Large records are the message's own objects."""
    prefix = response_prefix(0, correlation_id, response_header_version(api_key, api_version))
    if isinstance(message, ProduceResponse):
        frame = bytearray(prefix)
        if write_single_produced(message, api_version, frame):
            SIZE.pack_into(frame, 0, len(frame) - SIZE.size)
            return [frame]
    parts = encode_parts(message, api_version, prefix)
    first = parts[0]
    assert not isinstance(first, bytes), "the codec writes to a buffer"
    SIZE.pack_into(first, 0, sum(map(len, parts)) - SIZE.size)
    return parts
