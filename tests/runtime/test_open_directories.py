"""The threads and locks of a process's log directories when the node ends."""

from typing import Any

from spindle.runtime.disks.open_directories import OpenDirectories


class Part:
    """A thread or a lock of a directory."""

    def __init__(self, path: str, *, hangs: bool = False) -> None:
        self.path = path
        self.is_released = False
        self._hangs = hangs

    def hangs(self) -> bool:
        return self._hangs

    def stop(self, _: float) -> bool:
        return not self._hangs

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
