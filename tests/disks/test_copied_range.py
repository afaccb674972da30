"""Copied records are read back from the device and compared with what was copied."""

import pytest
from crc32c import crc32c

from spindle.common.filesystem import OsFileSystem
from spindle.disks.copied_range import CopiedRange, FileSpan, read_back
from spindle.testing.filesystem import Fault, MemoryFileSystem

FIRST, SECOND = b"first" * 500_000, b"second" * 10


def written(*parts: FileSpan) -> CopiedRange:
    return CopiedRange(0, 9, crc32c(SECOND, crc32c(FIRST)), parts, 0)


def disk() -> tuple[MemoryFileSystem, CopiedRange]:
    """Return a disk with two segments, and the range that was copied to both."""
    files = MemoryFileSystem()
    files.make_directories("/d")
    for path, data in (("/d/0.log", b"before" + FIRST), ("/d/9.log", SECOND + b"after")):
        files.open(path, create=True).pwrite(data, 0)
    parts = (FileSpan("/d/0.log", 6, len(FIRST)), FileSpan("/d/9.log", 0, len(SECOND)))
    return files, written(*parts)


def test_copied_bytes_are_synced_and_read_back() -> None:
    files, copied = disk()
    assert copied.size_bytes == len(FIRST) + len(SECOND)
    assert read_back(files, copied) == copied.crc
    files.sync_directory("/")
    files.sync_directory("/d")
    files.crash()
    assert read_back(files, copied) == copied.crc


@pytest.mark.parametrize(("path", "position"), [("/d/0.log", 6), ("/d/9.log", len(SECOND) - 1)])
def test_a_flipped_bit_changes_the_checksum(path: str, position: int) -> None:
    files, copied = disk()
    file = files.open(path)
    file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)
    assert read_back(files, copied) not in (copied.crc, None)


def test_a_file_that_is_gone_or_too_short_has_no_checksum() -> None:
    files, copied = disk()
    files.open("/d/9.log").truncate(3)
    assert read_back(files, copied) is None
    files.remove("/d/0.log")
    assert read_back(files, copied) is None


def test_an_error_of_the_disk_goes_to_the_caller() -> None:
    files, copied = disk()
    files.faults.append(Fault("9.log", "sync"))
    with pytest.raises(OSError, match=r"9\.log"):
        read_back(files, copied)


def test_ranges_that_follow_each_other_in_a_file_are_one() -> None:
    one = CopiedRange(0, 5, 1, (FileSpan("a", 0, 10),), 0)
    two = CopiedRange(5, 7, 2, (FileSpan("a", 10, 3),), 4)
    three = CopiedRange(7, 8, 3, (FileSpan("b", 0, 1),), 4)
    both = one.extended(two)
    assert both == CopiedRange(0, 7, 2, (FileSpan("a", 0, 13),), 4)
    assert both.extended(three) == CopiedRange(
        0, 8, 3, (FileSpan("a", 0, 13), FileSpan("b", 0, 1)), 4
    )


def test_a_real_file_is_read_again_after_the_system_has_forgotten_it(tmp_path: object) -> None:
    path = f"{tmp_path}/0.log"
    file = OsFileSystem().open(path, create=True)
    file.pwrite(FIRST, 0)
    file.close()
    copied = CopiedRange(0, 9, crc32c(FIRST), (FileSpan(path, 0, len(FIRST)),), 0)
    assert read_back(OsFileSystem(), copied) == copied.crc
