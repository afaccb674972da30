"""Promises: the listener hears the outcome once, at once, and its errors stay its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from spindle.common.promise import Promise
from spindle.runtime.task_promise import promise_of


@asynccontextmanager
async def loop_complaints() -> AsyncIterator[list[dict[str, Any]]]:
    """Give what reaches the exception handler of the loop meanwhile."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    yield complaints


def promise() -> Promise[str]:
    return Promise(asyncio.get_running_loop())


async def test_the_listener_hears_the_first_outcome_within_the_call() -> None:
    async with loop_complaints() as complaints:
        heard: list[Any] = []
        early, late = promise(), promise()
        early.on_done(lambda *outcome: heard.append(outcome))
        early.settle("yes")
        early.settle(None, ValueError("too late"))
        late.settle("before")
        late.on_done(lambda *outcome: heard.append(outcome))
        assert heard == [("yes", None), ("before", None)]
    assert complaints == []


async def test_an_error_of_the_listener_does_not_reach_the_one_who_settles() -> None:
    async with loop_complaints() as complaints:

        def fail(*_: object) -> None:
            raise KeyError("listener")

        asked = promise()
        asked.on_done(fail)
        asked.settle("yes")
        asked.on_done(fail)
    assert [type(complaint["exception"]) for complaint in complaints] == [KeyError, KeyError]


async def test_a_cancelled_promise_cancels_its_work_and_calls_no_listener() -> None:
    async with loop_complaints() as complaints:
        heard: list[Any] = []
        asked = promise()
        asked.on_cancel = lambda: heard.append("given up")
        asked.on_done(lambda *outcome: heard.append(outcome))
        asked.cancel()
        asked.settle("too late")
        asked.cancel()
        assert heard == ["given up"]
    assert complaints == []


async def test_a_coroutine_that_waits_gets_the_result_or_the_error() -> None:
    async with loop_complaints() as complaints:
        kept, broken, given_up = promise(), promise(), promise()
        waiting = [asyncio.ensure_future(one) for one in (kept, broken, given_up)]
        await asyncio.sleep(0)
        kept.settle("yes")
        broken.settle(None, ValueError("no"))
        waiting[2].cancel()
        assert await waiting[0] == "yes"
        assert await kept == "yes"
        with pytest.raises(ValueError, match="no"):
            await waiting[1]
        with pytest.raises(asyncio.CancelledError):
            await waiting[2]
        assert given_up.is_done
    assert complaints == []


async def test_a_promise_of_a_task_cancels_it_and_reports_its_end() -> None:
    async with loop_complaints() as complaints:
        ends: list[str] = []

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ends.append("ended")

        unwanted, task = promise_of(work()), asyncio.ensure_future(work())
        killed = promise_of(task)
        await asyncio.sleep(0)
        unwanted.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killed
        assert ends == ["ended", "ended"]
    assert complaints == []
