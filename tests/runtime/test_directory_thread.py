"""The I/O thread of a log directory."""

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from spindle.common.errors import CorruptLog, LogDirectoryFailed
from spindle.runtime.directory_thread import DirectoryThread

Scenario = Callable[[DirectoryThread, list[LogDirectoryFailed]], Coroutine[Any, Any, None]]


def run(scenario: Scenario) -> None:
    async def main() -> None:
        failures: list[LogDirectoryFailed] = []
        thread = DirectoryThread("/d", asyncio.get_running_loop(), failures.append)
        try:
            await scenario(thread, failures)
        finally:
            assert thread.stop(5.0)

    asyncio.run(main())


def broken() -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_work_runs_on_its_thread_in_order() -> None:
    async def scenario(thread: DirectoryThread, _: list[LogDirectoryFailed]) -> None:
        seen: list[int] = []
        for number in range(50):
            thread.submit_nowait(seen.append, number)
        name = await thread.submit(lambda: threading.current_thread().name)
        assert name == "io /d"
        assert seen == list(range(50))

    run(scenario)


def test_callbacks_run_on_the_loop_in_order() -> None:
    async def scenario(thread: DirectoryThread, _: list[LogDirectoryFailed]) -> None:
        seen: list[tuple[int, str]] = []
        main = threading.current_thread().name
        for number in range(20):
            thread.call(
                lambda result, _: seen.append((result, threading.current_thread().name)),
                abs,
                -number,
            )
        await thread.submit(int)
        assert seen == [(number, main) for number in range(20)]

    run(scenario)


def test_a_note_waits_for_the_next_work_and_the_last_one_counts() -> None:
    seen: list[int] = []

    async def scenario(thread: DirectoryThread, _: list[LogDirectoryFailed]) -> None:
        note = seen.append
        thread.note(note, 1)
        thread.note(note, 2)
        assert await thread.submit(seen.copy) == [2]
        await thread.submit(int)
        assert seen == [2]
        thread.note(note, 3)

    run(scenario)
    assert seen == [2, 3], "whoever stops has done it"


def test_an_io_error_takes_the_directory_offline() -> None:
    async def scenario(thread: DirectoryThread, failures: list[LogDirectoryFailed]) -> None:
        with pytest.raises(LogDirectoryFailed, match="Input/output error"):
            await thread.submit(broken)
        touched: list[int] = []
        with pytest.raises(LogDirectoryFailed):
            await thread.submit(touched.append, 1)
        assert touched == []
        await asyncio.sleep(0)
        assert [f.path for f in failures] == ["/d"]

    run(scenario)


def test_bad_bytes_at_rest_take_the_directory_offline() -> None:
    def corrupt() -> None:
        raise CorruptLog("/d/x", 7, "garbage")

    async def scenario(thread: DirectoryThread, _: list[LogDirectoryFailed]) -> None:
        with pytest.raises(LogDirectoryFailed, match="garbage"):
            await thread.submit(corrupt)

    run(scenario)


def test_another_error_reaches_who_waits_and_nobody_else() -> None:
    async def scenario(thread: DirectoryThread, failures: list[LogDirectoryFailed]) -> None:
        with pytest.raises(ZeroDivisionError):
            await thread.submit(lambda: 1 // 0)
        assert await thread.submit(abs, -3) == 3
        assert failures == []

    run(scenario)


def test_the_first_cause_stays() -> None:
    async def scenario(thread: DirectoryThread, failures: list[LogDirectoryFailed]) -> None:
        thread.fail("first")
        thread.fail("second")
        await asyncio.sleep(0)
        assert [str(f.cause) for f in failures] == ["first"]

    run(scenario)


def test_stop_tells_of_a_thread_that_hangs() -> None:
    async def main() -> None:
        gate = threading.Event()
        thread = DirectoryThread("/d", asyncio.get_running_loop(), lambda _: None)
        thread.submit_nowait(gate.wait)
        assert not thread.stop(0.01)
        gate.set()
        assert thread.stop(5.0)

    asyncio.run(main())
