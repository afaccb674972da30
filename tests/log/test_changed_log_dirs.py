"""The memory of log directories that were added and removed while the broker ran."""

import pytest

from spindle.common.errors import ConfigError
from spindle.log.formats.changed_log_dirs import (
    ChangedLogDirs,
    read_changed_log_dirs,
    write_changed_log_dirs,
)
from spindle.testing.filesystem import MemoryFileSystem

CONFIGURED = ["/a", "/b"]


def test_written_log_dirs_are_read_back() -> None:
    files = MemoryFileSystem()
    files.make_directories("/a")
    assert read_changed_log_dirs(files, "/a") == ChangedLogDirs()
    changed = ChangedLogDirs(("/c", "/d e"), ("/b",))
    write_changed_log_dirs(files, "/a", changed)
    assert read_changed_log_dirs(files, "/a") == changed


def test_added_and_retired_directories_are_merged_with_the_configured_ones() -> None:
    changed = ChangedLogDirs().with_added("/c", CONFIGURED).with_retired("/b", CONFIGURED)
    assert changed == ChangedLogDirs(("/c",), ("/b",))
    assert changed.merged(CONFIGURED) == ["/a", "/c"]
    assert changed.with_added("/b", CONFIGURED) == ChangedLogDirs(("/c",), ())
    assert changed.with_retired("/c", CONFIGURED) == ChangedLogDirs((), ("/b",))


def test_overrides_that_the_property_file_contains_are_dropped() -> None:
    changed = ChangedLogDirs(("/c",), ("/b",))
    assert changed.settled(["/a", "/c"]) == ChangedLogDirs()
    assert changed.settled(["/a", "/b"]) == changed


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"version": 2, "added": [], "retired": []}', b'["x"]',
                b'{"version": 1, "added": [1], "retired": []}', b"\xff",
                b'{"version": 1, "added": "/", "retired": []}', b"[" * 100_000,
                b'{"version": 1, "added": ["d"], "retired": []}']
)  # fmt: skip
def test_a_damaged_file_is_refused_with_its_name(content: bytes) -> None:
    files = MemoryFileSystem()
    files.make_directories("/a")
    files.write_atomically("/a/spindle-log-dirs.json", content)
    with pytest.raises(ConfigError, match=r"^/a/spindle-log-dirs\.json cannot be read"):
        read_changed_log_dirs(files, "/a")
