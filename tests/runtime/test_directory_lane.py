"""The leases of one lane, with a fake in place of the native thread."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from spindle.common.native import is_native_available

if not is_native_available():
    pytest.skip("there is no native code", allow_module_level=True)
from spindle.runtime.lanes import directory_lane
from spindle.runtime.lanes.directory_lane import DirectoryLane


class FakeNative:
    """A lane that reports what the test stores, and has no descriptor left for a grant."""

    path = "/disk"

    def __init__(self) -> None:
        self.ended: list[tuple[int, int, int]] = []

    def enter(self) -> None:
        """The gate is free."""

    def take_changes(self) -> tuple[list[Any], list[tuple[int, int, int]], None]:
        ended, self.ended = self.ended, []
        return [], ended, None

    def grant(self, **terms: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")


class FakeExecutor:
    def __init__(self) -> None:
        self.failures: list[object] = []

    def fail(self, cause: object) -> None:
        self.failures.append(cause)


def lane() -> tuple[DirectoryLane, FakeNative, FakeExecutor]:
    native: Any = FakeNative()
    executor = FakeExecutor()
    directory: Any = SimpleNamespace(executor=executor)
    io: Any = None
    return DirectoryLane(native, directory, io, lambda: None), native, executor


def test_a_lease_is_forgotten_only_after_the_thread_has_its_last_progress() -> None:
    directory_lane, native, executor = lane()
    lease: Any = SimpleNamespace(has_ended=True, log=SimpleNamespace(lease=None))
    directory_lane.granted[1] = lease
    for _ in range(3):
        directory_lane.forget_ended()
    native.ended.append((1, 5, 5))
    directory_lane.enter()
    assert not executor.failures
    assert 1 in directory_lane.granted
    for _ in range(2):
        directory_lane.forget_ended()
    assert not directory_lane.granted


def test_no_lease_is_granted_without_descriptors_and_the_disk_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    its_lane, _, executor = lane()
    terms = SimpleNamespace(_asdict=dict)
    monkeypatch.setattr(directory_lane, "lease_terms", lambda *a, **named: terms)
    log: Any = SimpleNamespace(former_lease=None)
    assert its_lane.grant(log, 0, is_sole_replica=True) is None
    assert not executor.failures
