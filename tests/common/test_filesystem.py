"""The files of the operating system: writes that are taken in parts, or not at all."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from spindle.common.filesystem import OsFileSystem


def test_a_write_that_is_taken_in_parts_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os_pwrite = os.pwrite

    def some(fd: int, data: bytes, position: int) -> int:
        return os_pwrite(fd, bytes(data)[:3], position)

    def some_of_many(fd: int, parts: Sequence[bytes], position: int) -> int:
        return some(fd, b"".join(parts), position)

    monkeypatch.setattr(os, "pwrite", some)
    monkeypatch.setattr(os, "pwritev", some_of_many)
    file = OsFileSystem().open(str(tmp_path / "file"), create=True)
    assert file.append([b"0123", b"456789"]) == 10
    file.pwrite(b"abcdefg", 2)
    assert file.pread(20, 0) == b"01abcdefg9"
    assert file.append([b"!"]) == 1
    assert (tmp_path / "file").read_bytes() == b"01abcdefg9!"
    file.close()


def test_a_disk_that_takes_nothing_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    monkeypatch.setattr(os, "pwritev", lambda *_: 2)
    file = OsFileSystem().open(str(tmp_path / "file"), create=True)
    with pytest.raises(OSError, match="only 0 of 8 bytes were written") as raised:
        file.append([b"0123456789"])
    assert raised.value.errno == errno.EIO
    file.close()


def test_the_mount_point_of_a_path_is_found_also_where_the_path_is_absent(tmp_path: Path) -> None:
    files = OsFileSystem()
    assert files.mount_point("/proc/self/no such file") == "/proc"
    here = files.mount_point(str(tmp_path))
    assert os.path.ismount(here)
    assert files.mount_point(str(tmp_path / "absent")) == here
    (tmp_path / "link").symlink_to("/proc/self")
    assert files.mount_point(str(tmp_path / "link")) == "/proc"
