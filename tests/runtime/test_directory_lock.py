"""The lock file of a log directory, while disks are replaced and locks change their owners."""

import fcntl
import os
from pathlib import Path

import pytest

from spindle.runtime.disks.directory_lock import LOCK_FILE, DirectoryLock


def test_the_lock_of_a_directory_at_the_same_path_is_not_removed(tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    lock = DirectoryLock(str(directory))
    directory.rename(tmp_path / "unmounted")
    directory.mkdir()
    (directory / LOCK_FILE).touch()
    lock.release()
    assert (directory / LOCK_FILE).exists()


def test_a_directory_that_is_gone_is_released(tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    lock = DirectoryLock(str(directory))
    directory.rename(tmp_path / "unmounted")
    lock.release()
    lock.release()


def test_a_lock_file_that_its_owner_has_just_removed_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former owner removes the file after it was opened here, and before it is locked."""
    true_lock = fcntl.lockf
    path = tmp_path / LOCK_FILE
    attempts = []

    def lock_late(descriptor: int, kind: int) -> None:
        attempts.append(descriptor)
        if len(attempts) == 1:
            path.unlink()
        true_lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "lockf", lock_late)
    lock = DirectoryLock(str(tmp_path))
    assert len(attempts) == 2
    assert os.path.samestat(path.stat(), os.fstat(attempts[1]))
    lock.release()
    assert not path.exists()
