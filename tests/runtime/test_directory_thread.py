"""The I/O thread of a log directory."""

import asyncio
import errno
import os
import re
import struct
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from waiting import until

from spindle.common.errors import CorruptLog, CorruptRecords, LogDirectoryFailed
from spindle.runtime.disks import serial_executor
from spindle.runtime.disks.directory_thread import DirectoryThread


@asynccontextmanager
async def directory_thread() -> AsyncIterator[tuple[DirectoryThread, list[LogDirectoryFailed]]]:
    failures: list[LogDirectoryFailed] = []
    thread = DirectoryThread("/d", asyncio.get_running_loop(), failures.append)
    try:
        yield thread, failures
    finally:
        assert thread.stop(5.0)


def broken() -> None:
    raise OSError(errno.EIO, "Input/output error")


async def test_work_runs_on_its_thread_in_order() -> None:
    async with directory_thread() as (thread, _):
        seen: list[int] = []
        for number in range(50):
            thread.submit_nowait(seen.append, number)
        name = await thread.submit(lambda: threading.current_thread().name)
        assert name == "io /d"
        assert seen == list(range(50))


async def test_callbacks_run_on_the_loop_in_order() -> None:
    async with directory_thread() as (thread, _):
        seen: list[tuple[int | None, str]] = []
        main = threading.current_thread().name
        for number in range(20):
            thread.call(
                lambda result, _: seen.append((result, threading.current_thread().name)),
                abs,
                -number,
            )
        await thread.submit(int)
        assert seen == [(number, main) for number in range(20)]


async def test_a_callback_that_raises_does_not_hold_up_those_behind_it() -> None:
    async with directory_thread() as (thread, _):
        loop = asyncio.get_running_loop()
        mistakes: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: mistakes.append(context))

        def mistaken(*_: object) -> None:
            raise ValueError("a mistake")

        # The loop is held up until both jobs are done, so that one turn finds both results.
        thread.call(mistaken, int)
        done = loop.create_future()
        thread.call(lambda *_: done.set_result(None), int)
        both_done = threading.Event()
        thread.submit_nowait(both_done.set)
        assert both_done.wait(10)
        await done
        assert [str(mistake["exception"]) for mistake in mistakes] == ["a mistake"]


async def test_a_note_waits_for_the_next_work_and_the_last_one_counts() -> None:
    seen: list[int] = []

    async with directory_thread() as (thread, _):
        note = seen.append
        thread.note(note, 1)
        thread.note(note, 2)
        assert await thread.submit(seen.copy) == [2]
        await thread.submit(int)
        assert seen == [2]
        thread.note(note, 3)
    assert seen == [2, 3], "whoever stops has done it"


async def test_an_io_error_takes_the_directory_offline() -> None:
    async with directory_thread() as (thread, failures):
        with pytest.raises(LogDirectoryFailed, match="Input/output error"):
            await thread.submit(broken)
        touched: list[int] = []
        with pytest.raises(LogDirectoryFailed):
            await thread.submit(touched.append, 1)
        assert touched == []
        await asyncio.sleep(0)
        assert [f.path for f in failures] == ["/d"]


@pytest.mark.parametrize(
    "error",
    [
        CorruptLog("/d/x", 7, "garbage"),
        CorruptRecords("garbage"),
        struct.error("garbage"),
        MemoryError(),
        ZeroDivisionError(),
    ],
    ids=repr,
)
async def test_an_error_that_is_not_of_the_disk_reaches_the_caller_alone(error: Exception) -> None:
    def fail() -> None:
        raise error

    async with directory_thread() as (thread, failures):
        for submit in (thread.submit, thread.submit_beside):
            with pytest.raises(type(error)):
                await submit(fail)
        assert await thread.submit(abs, -3) == 3
        assert failures == []


async def test_the_first_cause_stays() -> None:
    async with directory_thread() as (thread, failures):
        thread.fail("first")
        thread.fail("second")
        await asyncio.sleep(0)
        assert [str(f.cause) for f in failures] == ["first"]


async def test_stop_reports_a_thread_that_hangs() -> None:
    gate = threading.Event()
    thread = DirectoryThread("/d", asyncio.get_running_loop(), lambda _: None)
    thread.submit_nowait(gate.wait)
    assert not thread.stop(0.01)
    gate.set()
    assert thread.stop(5.0)


class HangingDisk:
    """A thread that waits for its disk; the test looks at it instead of the clock."""

    def __init__(self, hang_limit_s: float = 60.0) -> None:
        self.gate = threading.Event()
        self.failures: list[LogDirectoryFailed] = []
        self.loop = asyncio.get_running_loop()
        self.thread = DirectoryThread("/d", self.loop, self.failures.append, hang_limit_s)
        self.thread.watch.stop()
        self.is_in_job = threading.Event()
        self.has_ended = threading.Event()

    def job(self) -> None:
        self.is_in_job.set()
        self.gate.wait()
        self.has_ended.set()

    def look(self, times: int) -> None:
        for _ in range(times):
            self.thread.watch.look()

    async def hang(self, *, beside: bool = False) -> "asyncio.Future[None]":
        """Return a job that has begun and stands still, which was seen for 0 s so far."""
        submit = self.thread.submit_beside if beside else self.thread.submit
        future = asyncio.ensure_future(submit(self.job))
        await asyncio.to_thread(self.is_in_job.wait)
        await asyncio.to_thread(time.sleep, 0.1)  # until it has gone to sleep
        self.look(1)
        return future

    async def end(self) -> None:
        self.gate.set()
        self.thread.stop(0.0)
        await asyncio.to_thread(self.has_ended.wait)


def has_cpu_clocks() -> bool:
    return hasattr(time, "pthread_getcpuclockid")


needs_cpu_clocks = pytest.mark.skipif(not has_cpu_clocks(), reason="no CPU clocks of threads")


@needs_cpu_clocks
@pytest.mark.parametrize("beside", [False, True], ids=["on its thread", "beside its thread"])
async def test_a_disk_that_hangs_is_reported_and_then_given_up(
    beside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """All callers are answered, and later work is refused without the thread."""

    disk = HangingDisk()
    first = await disk.hang(beside=beside)
    touched: list[int] = []
    disk.look(59)
    assert "log directory /d hangs: its disk has not responded for 10 s" in caplog.text
    assert disk.thread.failure is None
    second = asyncio.ensure_future(disk.thread.submit_beside(disk.gate.wait))
    disk.look(1)
    third = disk.thread.submit(touched.append, 2)
    for future in (first, second, third, disk.thread.submit_beside(touched.append, 3)):
        with pytest.raises(LogDirectoryFailed, match="has not answered for 60 s"):
            await future
    assert [f.path for f in disk.failures] == ["/d"]
    assert not disk.thread.stop(5.0) or beside  # at once, for the disk still hangs
    await disk.end()
    assert touched == []


@needs_cpu_clocks
@pytest.mark.parametrize("beside", [False, True], ids=["on its thread", "beside its thread"])
async def test_files_are_closed_after_a_hang_that_ends_late(
    beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_executor, "LOOK_S", 0.001)
    disk = HangingDisk()
    future = await disk.hang(beside=beside)
    disk.look(60)
    with pytest.raises(LogDirectoryFailed):
        await future
    closed: list[bool] = []
    disk.thread.run_after_failure(lambda: closed.append(disk.has_ended.is_set()))
    assert disk.thread.hangs()
    await disk.end()
    await until(lambda: closed == [True])
    await until(lambda: not disk.thread.hangs())


@needs_cpu_clocks
async def test_a_disk_that_answers_again_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    disk = HangingDisk()
    future = await disk.hang()
    disk.look(30)
    disk.gate.set()
    await future
    disk.look(1)
    assert "log directory /d responds again after 30 s" in caplog.text
    disk.look(100)
    assert disk.thread.failure is None
    assert disk.thread.stop(5.0)


@needs_cpu_clocks
async def test_a_job_that_works_does_not_hang() -> None:
    disk = HangingDisk(hang_limit_s=2.0)
    is_over = False

    def work() -> None:
        while not is_over:
            disk.is_in_job.set()

    future = asyncio.ensure_future(disk.thread.submit(work))
    for _ in range(5):
        disk.is_in_job.clear()
        await asyncio.to_thread(disk.is_in_job.wait)
        disk.look(1)
    is_over = True
    await future
    assert disk.thread.stop(5.0)


@needs_cpu_clocks
async def test_a_node_that_stops_does_not_wait_for_long() -> None:
    disk = HangingDisk()
    future = await disk.hang()
    disk.thread.wait_at_most(10.0)
    disk.look(10)
    with pytest.raises(LogDirectoryFailed, match="has not answered for 10 s"):
        await future
    await disk.end()


async def test_work_beside_the_thread_does_not_hold_it_up() -> None:
    async with directory_thread() as (thread, _):
        gate = threading.Event()
        beside = asyncio.ensure_future(thread.submit_beside(gate.wait, 60.0))
        assert await thread.submit(abs, -3) == 3
        gate.set()
        assert await beside is True


async def test_an_io_error_beside_the_thread_takes_the_directory_offline() -> None:
    async with directory_thread() as (thread, failures):
        with pytest.raises(LogDirectoryFailed, match="Input/output error"):
            await thread.submit_beside(broken)
        with pytest.raises(LogDirectoryFailed):
            await thread.submit(int)
        await asyncio.sleep(0)
        assert [f.path for f in failures] == ["/d"]


async def test_the_load_counts_what_waits_and_the_time_of_what_runs() -> None:
    async with directory_thread() as (thread, _):
        assert thread.load().busy_ns == 0
        begun, released = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            released.wait(10)

        done = thread.submit(work)
        thread.submit_nowait(int)
        assert begun.wait(10)
        first, second = thread.load(), thread.load()
        assert first.queue_length == 1
        assert 0 < first.busy_ns < second.busy_ns
        released.set()
        await done
        await thread.submit(int)
        later = thread.load()
        assert later.queue_length == 0
        assert later.busy_ns >= second.busy_ns
        assert later.hang_ms == 0


@pytest.mark.parametrize(
    "name", ["EIO", "EROFS", "ENOSPC", "EDQUOT", "EACCES", "EPERM", "ENOENT", "ESTALE", "ENODEV"]
)
async def test_every_error_of_the_system_is_the_end_of_the_directory(name: str) -> None:
    number = getattr(errno, name)

    def fail() -> None:
        raise OSError(number, os.strerror(number), "/d/t-0/00000000000000000000.log")

    async with directory_thread() as (thread, failures):
        with pytest.raises(LogDirectoryFailed, match=re.escape(os.strerror(number))):
            await thread.submit(fail)
        with pytest.raises(LogDirectoryFailed):
            await thread.submit(int)
        assert [failure.is_fault_of_process for failure in failures] == [False]
        assert name in failures[0].reason
