"""Answers of one connection that come later, and that wait for their turn."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from spindle.common.ports import Bytes
from spindle.common.promise import Promise

Answer = list[Bytes] | None
"""The frame to send, in pieces; None for a request without an answer (acks=0)."""


class Deferred(NamedTuple):
    """An answer that comes later: `finish` makes the frame of the result of `result`, on the event
    loop."""

    result: Awaitable[Any]
    finish: Callable[[Any], Answer]
    is_alone: bool = False
    """True if no later request is started before it is answered, not even if both are produce
    requests."""


class PendingAnswer:
    """A request that was started and is not answered."""

    __slots__ = ("answer", "is_done", "is_produce", "promise", "size_bytes")

    def __init__(self, is_produce: bool, size_bytes: int) -> None:
        self.is_produce = is_produce
        self.size_bytes = size_bytes
        self.is_done = False
        self.answer: Answer = None
        self.promise: Promise[Any] | None = None
