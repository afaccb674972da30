"""The file system in memory behaves as that of the machine, and loses what was not synced."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from spindle.common.filesystem import OsFileSystem
from spindle.common.ports import FileSystem
from spindle.testing.filesystem import Fault, MemoryFileSystem


@pytest.fixture(params=["os", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    files: FileSystem = OsFileSystem() if request.param == "os" else MemoryFileSystem()
    root = str(tmp_path)
    files.make_directories(root)
    return files, root


Place = tuple[FileSystem, str]


def test_appended_bytes_are_read_at_their_positions(place: Place) -> None:
    files, root = place
    path = f"{root}/f"
    file = files.open(path, create=True)
    assert file.append([b"abc", memoryview(b"de")]) == 5
    file.pwrite(b"X", 1)
    file.pwrite(b"end", 7)
    assert file.size() == files.size(path) == 10
    assert file.pread(100, 0) == b"aXcde\0\0end"
    assert file.pread(2, 3) == b"de"
    assert file.pread(5, 50) == b""
    file.truncate(3)
    file.truncate(5)
    assert files.read_bytes(path) == b"aXc\0\0"
    file.sync()
    file.close()
    assert files.open(path).append([b"!"]) == 1
    assert files.read_bytes(path) == b"aXc\0\0!"


def test_a_directory_lists_its_names_in_order(place: Place) -> None:
    files, root = place
    files.make_directories(f"{root}/d/e")
    files.make_directories(f"{root}/d/e")
    files.write_atomically(f"{root}/d/b", b"1")
    files.write_atomically(f"{root}/d/b", b"2")
    files.write_atomically(f"{root}/d/a", b"")
    assert files.list_directory(f"{root}/d") == ["a", "b", "e"]
    assert files.read_bytes(f"{root}/d/b") == b"2"
    assert [files.is_directory(f"{root}/d/{name}") for name in "abe"] == [False, False, True]
    assert [files.exists(f"{root}/{name}") for name in ("d", "d/b", "x", "d/b/x")] == [
        True,
        True,
        False,
        False,
    ]
    files.rename(f"{root}/d/b", f"{root}/d/a")
    files.rename(f"{root}/d", f"{root}/g")
    assert files.read_bytes(f"{root}/g/a") == b"2"
    files.sync_directory(f"{root}/g")
    files.remove(f"{root}/g/a")
    files.remove_tree(f"{root}/g")
    assert files.list_directory(root) == []


@pytest.mark.parametrize(
    "action",
    [
        lambda files, root: files.open(f"{root}/no"),
        lambda files, root: files.read_bytes(f"{root}/no"),
        lambda files, root: files.size(f"{root}/no"),
        lambda files, root: files.remove(f"{root}/no"),
        lambda files, root: files.remove_tree(f"{root}/no"),
        lambda files, root: files.rename(f"{root}/no", f"{root}/other"),
        lambda files, root: files.list_directory(f"{root}/no"),
        lambda files, root: files.sync_directory(f"{root}/no"),
        lambda files, root: files.open(f"{root}/no/f", create=True),
    ],
)
def test_a_missing_file_raises_file_not_found(
    place: Place, action: Callable[[FileSystem, str], object]
) -> None:
    with pytest.raises(FileNotFoundError):
        action(*place)


def test_an_open_file_follows_a_rename_and_a_removal(place: Place) -> None:
    files, root = place
    file = files.open(f"{root}/f", create=True)
    files.rename(f"{root}/f", f"{root}/g")
    file.append([b"abc"])
    assert files.read_bytes(f"{root}/g") == b"abc"
    files.remove(f"{root}/g")
    assert file.pread(3, 0) == b"abc"


class TestCrash:
    def test_only_synced_content_under_synced_names_remains(self) -> None:
        files = MemoryFileSystem()
        for name in ("content", "both"):
            file = files.open(f"/{name}", create=True)
            file.append([b"synced"])
            file.sync()
            file.append([b" and not"])
        files.sync_directory("/")
        files.open("/name-only", create=True).append([b"x"])
        files.sync_directory("/")
        files.open("/neither", create=True).append([b"x"])
        files.crash()
        assert files.list_directory("/") == ["both", "content", "name-only"]
        assert files.read_bytes("/content") == b"synced"
        assert files.read_bytes("/name-only") == b""

    def test_renames_come_back_unless_their_directory_is_synced(self) -> None:
        files = MemoryFileSystem()
        files.write_atomically("/a", b"1")
        files.rename("/a", "/b")
        files.crash()
        assert files.list_directory("/") == ["a"]
        files.rename("/a", "/b")
        files.sync_directory("/")
        files.crash()
        assert files.list_directory("/") == ["b"]

    def test_part_of_the_unsynced_bytes_may_survive(self) -> None:
        files = MemoryFileSystem()
        file = files.open("/f", create=True)
        files.sync_directory("/")
        file.append([b"ab"])
        file.sync()
        file.append([b"cdef"])
        asked: list[tuple[str, int]] = []

        def kept(path: str, unsynced: int) -> int:
            asked.append((path, unsynced))
            return 3

        files.crash(kept)
        assert asked == [("/f", 4)]
        assert files.read_bytes("/f") == b"abcde"


def test_a_dead_disk_does_not_seem_to_hold_no_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr("spindle.common.filesystem.os.stat", stat)
    with pytest.raises(OSError, match="Input/output error"):
        OsFileSystem().is_directory("/data/a-0")


class TestFaults:
    def test_by_operation_path_and_count(self) -> None:
        files = MemoryFileSystem()
        files.make_directories("/disk1")
        files.faults.append(Fault("/disk1", "pwrite", errno.ENOSPC, after=1))
        file = files.open("/disk1/f", create=True)
        file.pwrite(b"a", 0)
        with pytest.raises(OSError, match="injected fault in pwrite") as caught:
            file.pwrite(b"b", 1)
        assert caught.value.errno == errno.ENOSPC
        assert file.pread(5, 0) == b"a"
        files.faults.clear()
        file.pwrite(b"b", 1)

    def test_a_closed_file_cannot_be_used(self) -> None:
        files = MemoryFileSystem()
        file = files.open("/f", create=True)
        file.close()
        with pytest.raises(OSError, match="closed"):
            file.pread(1, 0)
