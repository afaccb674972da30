"""The threads and locks of a process's log directories when the node ends."""

from collections.abc import Callable
from typing import Any

import pytest
from waiting import until

from spindle.common.errors import LogDirectoryFailed
from spindle.runtime.disks import open_directories
from spindle.runtime.disks.open_directories import OpenDirectories


class Part:
    """A thread or a lock of a directory."""

    failure: LogDirectoryFailed | None = None

    def __init__(self, path: str, *, hangs: bool = False) -> None:
        self.path = path
        self.is_released = False
        self.has_ended = False
        self._hangs = hangs

    def answer_again(self) -> None:
        self._hangs = False

    def hangs(self) -> bool:
        return self._hangs

    def fail(self, cause: str) -> LogDirectoryFailed:
        self.failure = LogDirectoryFailed(self.path, cause, 0)
        return self.failure

    def run_after_failure(self, function: Callable[..., object], *args: object) -> None:
        assert not self.hangs()
        function(*args)

    def stop(self, _: float) -> bool:
        return self.has_ended or not self._hangs

    def release(self) -> None:
        self.is_released = True


class Machine:
    """The disk of `/hung` does not answer any more."""

    def __init__(self) -> None:
        self.locks: dict[str, Part] = {}

    def open_directory(self, path: str, *_: object) -> Part:
        return Part(path, hangs=path == "/hung")

    def lock_directory(self, path: str) -> Part:
        self.locks[path] = Part(path)
        return self.locks[path]


def test_the_end_of_a_node_does_not_touch_a_retired_disk_that_hangs() -> None:
    machine: Any = Machine()
    directories = OpenDirectories(machine, lambda _: None, 1.0)
    for path in ("/good", "/hung"):
        directories.open(path, None, is_vital=False)
    directories.remove("/hung")
    directories.close(0)
    released = {path: lock.is_released for path, lock in machine.locks.items()}
    assert released == {"/good": True, "/hung": False}


async def test_the_lock_of_a_disk_that_hangs_is_released_when_it_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_directories, "_LOOK_AGAIN_S", 0.001)
    machine: Any = Machine()
    directories = OpenDirectories(machine, lambda _: None, 1.0)
    directories.open("/hung", None, is_vital=False)
    thread: Any = directories.thread("/hung")
    directories.failed(thread.fail("it hangs"))
    assert not machine.locks["/hung"].is_released
    thread.answer_again()
    await until(lambda: machine.locks["/hung"].is_released)


def test_the_end_of_a_node_keeps_the_lock_while_a_native_thread_may_still_write() -> None:
    machine: Any = Machine()
    directories = OpenDirectories(machine, lambda _: None, 1.0)
    directories.open("/hung", None, is_vital=False)
    thread: Any = directories.thread("/hung")
    thread.has_ended = True
    directories.close(0)
    assert not machine.locks["/hung"].is_released
