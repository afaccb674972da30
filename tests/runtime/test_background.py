"""Tasks beside the requests: an exception that nobody expects is told and ends nothing for good."""

import asyncio
from typing import Any

from spindle.runtime import background


class Failures:
    """Collects what reaches the exception handler of the event loop."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        asyncio.get_running_loop().set_exception_handler(self._tell)

    def _tell(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.told.append((context["message"], repr(context["exception"])))


async def test_a_turn_that_fails_is_reported_and_the_next_one_follows() -> None:
    failures = Failures()
    turns: asyncio.Queue[int] = asyncio.Queue()
    mended: list[int] = []

    async def turn() -> None:
        await asyncio.sleep(0)
        turns.put_nowait(turns.qsize())
        if len(mended) < 2:
            raise KeyError("a mistake")

    task = background.run_forever(turn, "the watch", on_failure=lambda: mended.append(1), pause_s=0)
    for _ in range(4):
        await asyncio.wait_for(turns.get(), 60)
    await background.end(task)
    assert failures.told == [("the watch: unexpected failure", "KeyError('a mistake')")] * 2
    assert task.cancelled()


async def test_a_task_that_ends_with_an_exception_is_reported_even_while_it_is_held() -> None:
    failures = Failures()

    async def work() -> None:
        raise ValueError("no such thing")

    task = background.run_once(work(), "the errand")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    expected = ("the errand: unexpected failure", "ValueError('no such thing')")
    assert failures.told == [expected]


async def test_ending_tasks_is_no_failure() -> None:
    failures = Failures()

    async def wait() -> None:
        await asyncio.Event().wait()

    task = background.run_once(wait(), "the wait")
    await asyncio.sleep(0)
    await background.end(task, None)
    assert task.cancelled()
    assert failures.told == []
