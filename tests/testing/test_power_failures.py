"""A power failure takes what was not synced, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from spindle.common.filesystem import OsFileSystem
from spindle.common.ports import FileSystem
from spindle.testing.faults.disk_faults import FaultyDisk
from spindle.testing.faults.faulty_files import FaultyFileSystem
from spindle.testing.faults.unsynced import lose_unsynced


class Worst(Random):
    """Loses everything that may be lost."""

    def random(self) -> float:
        return 1.0

    def randint(self, a: int, b: int) -> int:
        return a


def after_power_failure(
    folder: Path, work: Callable[[FileSystem, str], Any], random: Random | None = None
) -> dict[str, bytes]:
    """Return the files below a folder, by their paths, after some work and a power failure."""
    disk = FaultyDisk(str(folder))
    (folder / "old").write_bytes(b"0123")
    work(FaultyFileSystem(OsFileSystem(), {disk.path: disk}), disk.path)
    lose_unsynced(disk.path, disk.cut_power(), random or Worst())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_bytes_behind_the_last_sync_are_lost(tmp_path: Path) -> None:
    def work(files: FileSystem, path: str) -> None:
        file = files.open(f"{path}/old")
        file.append([b"45"])
        file.sync()
        file.append([b"67"])

    assert after_power_failure(tmp_path, work) == {"old": b"012345"}


def test_lost_bytes_may_be_zeros(tmp_path: Path) -> None:
    class Zeros(Worst):
        def random(self) -> float:
            return 0.0

    def work(files: FileSystem, path: str) -> None:
        files.open(f"{path}/old").append([b"45"])

    assert after_power_failure(tmp_path, work, Zeros()) == {"old": b"0123\0\0"}


def test_a_new_file_is_lost_without_a_sync_of_its_directory(tmp_path: Path) -> None:
    def work(files: FileSystem, path: str) -> None:
        for name in ("kept", "lost"):
            file = files.open(f"{path}/{name}", create=True)
            file.append([b"x"])
            file.sync()
            if name == "kept":
                files.sync_directory(path)

    assert after_power_failure(tmp_path, work) == {"old": b"0123", "kept": b"x"}


def test_a_renamed_directory_has_its_old_name_and_its_unsynced_bytes_are_lost(
    tmp_path: Path,
) -> None:
    def work(files: FileSystem, path: str) -> None:
        files.make_directories(f"{path}/a")
        file = files.open(f"{path}/a/log", create=True)
        file.append([b"12"])
        file.sync()
        files.sync_directory(f"{path}/a")
        files.sync_directory(path)
        files.rename(f"{path}/a", f"{path}/b")
        file.append([b"34"])

    assert after_power_failure(tmp_path, work) == {"old": b"0123", "a/log": b"12"}


def test_an_atomic_write_and_a_removal_are_durable(tmp_path: Path) -> None:
    def work(files: FileSystem, path: str) -> None:
        files.write_atomically(f"{path}/checkpoint", b"1")
        files.remove(f"{path}/old")

    assert after_power_failure(tmp_path, work) == {"checkpoint": b"1"}


def test_a_truncated_file_does_not_grow_again(tmp_path: Path) -> None:
    def work(files: FileSystem, path: str) -> None:
        file = files.open(f"{path}/old")
        file.append([b"45"])
        file.truncate(2)

    assert after_power_failure(tmp_path, work) == {"old": b"01"}
