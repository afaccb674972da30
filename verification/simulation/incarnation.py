"""The owner of running code: each callback and task belongs to one life of one host.

The owner travels in the context variables of asyncio, so everything that a node starts belongs to
that node. The callbacks of a life that is over do not run: that is a crash.
"""

from contextvars import Context, ContextVar, copy_context
from typing import Final

from verification.simulation.clock import SkewedClock


class Life:
    """One life of a host, from its start to its end."""

    __slots__ = ("clock", "host", "is_over", "number")

    def __init__(self, host: str, number: int, clock: SkewedClock) -> None:
        self.host = host
        self.number = number
        self.clock = clock
        self.is_over = False

    def __str__(self) -> str:
        return self.host

    def context(self) -> Context:
        """Return a context in which everything is this life's."""
        context = copy_context()
        context.run(LIFE.set, self)
        return context


THE_WORLD: Final = Life("the world", 1, SkewedClock())
"""The simulation itself: it sees true time and never ends."""
LIFE: Final[ContextVar[Life]] = ContextVar("LIFE", default=THE_WORLD)
