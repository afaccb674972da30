"""Work that may hang: others go on, and the process can end."""

import asyncio
import threading

import pytest

from spindle.common.errors import ConfigError
from spindle.runtime.detached_threads import StoreReads, on_own_thread


async def test_the_end_of_an_event_loop_does_not_wait_for_work_that_hangs() -> None:
    answers = threading.Event()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await on_own_thread(answers.wait)
    answers.set()


async def test_results_and_errors_come_back() -> None:
    assert await on_own_thread(int, "7") == 7
    with pytest.raises(ValueError, match="seven"):
        await StoreReads("stores").read(int, "seven")
    assert StoreReads("stores").read_blocking(int, "7") == 7


async def test_a_read_that_hangs_is_given_up_and_none_begins_before_it_ends() -> None:
    answers = threading.Event()
    reads = StoreReads("listener SECURE", limit_s=0.01)

    with pytest.raises(ConfigError, match=r"listener SECURE: not read after 0\.01 s"):
        await reads.read(answers.wait)
    with pytest.raises(ConfigError, match="listener SECURE: an earlier read still hangs"):
        reads.read_blocking(int, "7")
    late = reads._late[0]
    answers.set()
    late.result()
    assert StoreReads.read_blocking(StoreReads("x"), int, "7") == 7
    with pytest.raises(ConfigError, match="not read after"):
        reads.read_blocking(threading.Event().wait)
