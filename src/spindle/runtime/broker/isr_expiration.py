"""Checks for lagging followers twice per `replica.lag.time.max.ms`."""

import asyncio
from collections.abc import Callable

from spindle.runtime import background


class IsrExpiration:
    """Calls `review_isrs` periodically."""

    def __init__(self, review_isrs: Callable[[], None], max_lag_ms: int) -> None:
        self._review_isrs = review_isrs
        self._period_s = max(max_lag_ms / 2000, 0.001)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = background.run_forever(self._turn, "ISR expiration")

    async def stop(self) -> None:
        await background.end(self._task)

    async def _turn(self) -> None:
        await asyncio.sleep(self._period_s)
        self._review_isrs()
