"""Looks for followers that have fallen behind, twice in `replica.lag.time.max.ms`."""

import asyncio
from collections.abc import Callable


class IsrExpiration:
    """Calls `check_isrs` from time to time."""

    def __init__(self, check_isrs: Callable[[], None], max_lag_ms: int) -> None:
        self._check_isrs = check_isrs
        self._period_s = max(max_lag_ms / 2000, 0.001)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="ISR expiration")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            self._check_isrs()
