"""Answers whose records go from a file to the socket, sent by the thread of a log directory.

Finding the batches, writing the answer and sending it is one job of the directory's thread. Nothing
else can truncate, rename or remove the file meanwhile, so the bytes that were found are the bytes
that are sent. A connection lends its socket for one answer, if nothing else is to be sent on it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from spindle.common.ports import Bytes
from spindle.log.segments.file_range import FileRange
from spindle.protocol.api import response_header_version
from spindle.protocol.codec import encode_parts
from spindle.protocol.framing import SIZE, response_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.produce import ProduceResponse
from spindle.protocol.single_produce import write_single_produced

Part: TypeAlias = Bytes | FileRange
"""A piece of an answer."""


class SentAnswer(NamedTuple):
    """An answer of which some bytes, or all, were sent already.

    Attributes:
        sent_bytes: how many.
        rest: what the connection still has to send.
    """

    sent_bytes: int
    rest: list[Bytes]


class AnswerCutOff(Exception):
    """An answer cannot be completed, and some of it may have been sent: close the connection."""


class SocketLoan(Protocol):
    """A socket that a connection lends for one answer."""

    def send(self, compose: Callable[[], Sequence[Part]]) -> SentAnswer | None:
        """Send an answer on the directory's thread, without waiting for a slow client.

        The bytes that the socket does not take are read, and returned. An error of the socket is
        left to the connection, which meets it when it sends the rest.

        Args:
            compose: makes the frame.

        Returns:
            None if the loan was taken back before.

        Raises:
            OSError: of the disk.
            ShortRead: a file is shorter than it was.
        """
        ...

    def take_back(self) -> bool:
        """End the loan, if it was not used or ended before; return False if it was."""
        ...


class SocketOwner(Protocol):
    """A connection that may lend its socket."""

    def lend(self) -> SocketLoan | None:
        """Return a loan, which must be used or taken back; None if answers can only be handed over.

        Call it while the answer to the request is the next thing to be sent.
        """
        ...


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
