"""An operation of a shard that waits for its turn."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from spindle.coordinator.coordinator_result import Token
from spindle.protocol.message import Message
from spindle.runtime.coordinator.shard_writer import AnyResult

ResponseT = TypeVar("ResponseT", bound=Message)

Operation: TypeAlias = Callable[[Token, AnyResult], ResponseT | None]
"""Decides on the request of a token and adds records to the result.

It returns the response, which is sent when the records are committed; None if the request is parked
or already answered.
"""
Exclusivity: TypeAlias = bool | Callable[[], bool]
"""Whether an operation is exclusive, or the condition under which it is."""


class ShardWork:
    """An operation that waits for its turn.

    If a timer started it, `timer` is the timer's key and `future` is None; otherwise `timer` is
    None.
    """

    __slots__ = ("_exclusivity", "deadline", "future", "operation", "submitted_s", "timer")

    def __init__(
        self,
        future: "asyncio.Future[Any] | None",
        operation: Operation[Any],
        submitted_s: float,
        *,
        is_exclusive: Exclusivity,
        timer: Any = None,
    ) -> None:
        self.future = future
        self.operation = operation
        self.submitted_s = submitted_s
        self._exclusivity = is_exclusive
        self.timer = timer
        self.deadline: asyncio.TimerHandle | None = None

    @property
    def is_exclusive(self) -> bool:
        """True if the operation must run alone, as of now."""
        condition = self._exclusivity
        return condition if isinstance(condition, bool) else condition()
