"""The file system of a node whose disks have faults."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from spindle.common.filesystem import OsFileSystem
from spindle.common.ports import FileSystem
from spindle.testing.faults.disk_faults import AfterTear, DiskFaults, DiskOperation, FaultyDisk
from spindle.testing.faults.faulty_files import FaultyFileSystem

READS: list[Callable[[FileSystem, str], object]] = [
    lambda fs, d: fs.read_bytes(f"{d}/a"),
    lambda fs, d: fs.exists(f"{d}/a"),
    lambda fs, d: fs.capacity(d),
    lambda fs, d: fs.is_directory(f"{d}/folder"),
    lambda fs, d: fs.list_directory(d),
    lambda fs, d: fs.size(f"{d}/a"),
    lambda fs, d: fs.modified_ms(f"{d}/a"),
    lambda fs, d: fs.open(f"{d}/a", writable=False),
]
WRITES: list[Callable[[FileSystem, str], object]] = [
    lambda fs, d: fs.open(f"{d}/b", create=True),
    lambda fs, d: fs.write_atomically(f"{d}/a", b"x"),
    lambda fs, d: fs.make_directories(f"{d}/new"),
    lambda fs, d: fs.rename(f"{d}/a", f"{d}/b"),
    lambda fs, d: fs.remove(f"{d}/a"),
    lambda fs, d: fs.remove_tree(f"{d}/folder"),
    lambda fs, d: fs.make_read_only(f"{d}/a"),
]


def faulty(folder: Path) -> tuple[FileSystem, FaultyDisk, str]:
    """Return a file system, its only disk, and the path of that disk with a file and a folder."""
    disk = FaultyDisk(str(folder))
    (folder / "a").write_bytes(b"0123456789")
    (folder / "folder").mkdir()
    (folder / "folder" / "inner").write_bytes(b"01234")
    return FaultyFileSystem(OsFileSystem(), {disk.path: disk}), disk, disk.path


@pytest.mark.parametrize("operation", range(len(READS) + len(WRITES)))
def test_every_operation_on_a_failed_disk_fails(tmp_path: Path, operation: int) -> None:
    file_system, disk, path = faulty(tmp_path)
    disk.set(DiskFaults(errno.EIO))
    with pytest.raises(OSError, match="Input/output error") as failure:
        [*READS, *WRITES][operation](file_system, path)
    assert failure.value.errno == errno.EIO
    assert failure.value.filename.startswith(path)


def test_an_open_file_of_a_failed_disk_fails(tmp_path: Path) -> None:
    file_system, disk, path = faulty(tmp_path)
    file = file_system.open(f"{path}/a")
    disk.set(DiskFaults(errno.EIO))
    for use in (
        lambda: file.pread(1, 0),
        lambda: file.append([b"x"]),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.sync,
        lambda: file_system.sync_directory(path),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            use()
    disk.set(DiskFaults())
    assert file.pread(20, 0) == b"0123456789"


@pytest.mark.parametrize("operation", range(len(WRITES)))
def test_a_read_only_disk_refuses_writes_alone(tmp_path: Path, operation: int) -> None:
    file_system, disk, path = faulty(tmp_path)
    disk.set(DiskFaults(is_readonly=True))
    with pytest.raises(OSError, match="Read-only"):
        WRITES[operation](file_system, path)
    for read in READS:
        read(file_system, path)


def test_a_fault_of_syncs_leaves_other_operations_alone(tmp_path: Path) -> None:
    file_system, disk, path = faulty(tmp_path)
    file = file_system.open(f"{path}/a")
    disk.set(DiskFaults(errno.EIO, operations=frozenset([DiskOperation.SYNC])))
    file.append([b"x"])
    assert file.pread(1, 0) == b"0"
    for use in (
        file.sync,
        lambda: file_system.sync_directory(path),
        lambda: file_system.write_atomically(f"{path}/b", b""),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            use()


def test_a_full_disk_takes_what_fits_and_removed_files_make_room(tmp_path: Path) -> None:
    file_system, disk, path = faulty(tmp_path)
    file = file_system.open(f"{path}/a")
    disk.set(DiskFaults(quota_bytes=18))

    def free() -> int:
        return file_system.capacity(path)[1]

    assert free() == 3
    with pytest.raises(OSError, match="No space left"):
        file.append([b"ab", b"cd"])
    assert file.pread(20, 0) == b"0123456789abc"
    assert free() == 0
    file.pwrite(b"XX", 0)
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"YYYY", 11)
    assert file.pread(20, 0) == b"XX23456789aYY"
    file.truncate(10)
    assert free() == 3
    file_system.remove_tree(f"{path}/folder")
    assert free() == 8
    with pytest.raises(OSError, match="No space left"):
        file_system.write_atomically(f"{path}/b", b"123456789")
    assert (tmp_path / "b.tmp").read_bytes() == b"12345678"
    file_system.remove(f"{path}/b.tmp")
    file_system.write_atomically(f"{path}/a", b"1234")
    assert free() == 14


def test_a_torn_write_leaves_its_first_half_and_a_failed_disk(tmp_path: Path) -> None:
    file_system, disk, path = faulty(tmp_path)
    file = file_system.open(f"{path}/a")
    disk.set(DiskFaults(tear=AfterTear.FAIL, torn_files="a"))
    file_system.write_atomically(f"{path}/other", b"whole")
    with pytest.raises(OSError, match="Input/output error"):
        file.append([b"abc", b"def"])
    assert (tmp_path / "a").read_bytes() == b"0123456789abc"
    with pytest.raises(OSError, match="Input/output error"):
        file_system.exists(f"{path}/a")


def test_a_file_of_a_replaced_disk_fails_for_ever(tmp_path: Path) -> None:
    file_system, disk, path = faulty(tmp_path)
    old = file_system.open(f"{path}/a")
    disk.set(DiskFaults(generation=1))
    with pytest.raises(OSError, match="Input/output error"):
        old.pread(1, 0)
    assert file_system.open(f"{path}/a").pread(1, 0) == b"0"


def test_files_outside_the_disks_have_no_faults(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path / "disk"), DiskFaults(errno.EIO))
    file_system = FaultyFileSystem(OsFileSystem(), {disk.path: disk})
    file_system.write_atomically(str(tmp_path / "file"), b"x")
    assert file_system.read_bytes(str(tmp_path / "file")) == b"x"
    with pytest.raises(OSError, match="Input/output error"):
        file_system.exists(str(tmp_path / "disk" / "file"))


def test_faults_travel_as_json() -> None:
    faults = DiskFaults(errno.EIO, frozenset([DiskOperation.READ]), 5, 1.5, tear=AfterTear.KILL)
    assert DiskFaults.from_json(faults.to_json()) == faults
