"""Work that may hang: others go on, and the process can end."""

import asyncio
import threading

import pytest
from waiting import until

from spindle.common.errors import ConfigError
from spindle.runtime import detached_threads
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


async def test_a_read_that_hangs_is_given_up_and_none_begins_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()
    reads = StoreReads("listener SECURE")
    monkeypatch.setattr(detached_threads, "_LIMIT_S", 0.01)

    def has_read() -> bool:
        try:
            return reads.read_blocking(int, "7") == 7
        except ConfigError:
            return False

    with pytest.raises(ConfigError, match=r"listener SECURE: not read after 0\.01 s"):
        await reads.read(answers.wait)
    with pytest.raises(ConfigError, match="listener SECURE: an earlier read still hangs"):
        reads.read_blocking(int, "7")
    answers.set()
    await until(has_read)
    answers.clear()
    with pytest.raises(ConfigError, match="not read after"):
        reads.read_blocking(answers.wait)
    answers.set()
