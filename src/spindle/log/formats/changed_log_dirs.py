"""`spindle-log-dirs.json`: log directories that were added or removed while the broker ran.

The file is in the metadata log directory. The property file may belong to another program, so
Spindle does not change it, but stores the difference here. A start merges both.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.common.ports import FileSystem

CHANGED_LOG_DIRS: Final = "spindle-log-dirs.json"
_VERSION: Final = 1


class ChangedLogDirs(NamedTuple):
    """The difference between `log.dirs` and the directories that the broker uses; paths."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def with_added(self, path: str, configured: Sequence[str]) -> "ChangedLogDirs":
        """Return the difference after a directory was added."""
        added = tuple(other for other in self.added if other != path)
        removed = tuple(other for other in self.removed if other != path)
        return ChangedLogDirs(added if path in configured else (*added, path), removed)

    def with_retired(self, path: str, configured: Sequence[str]) -> "ChangedLogDirs":
        """Return the difference after a directory was removed."""
        added = tuple(other for other in self.added if other != path)
        removed = tuple(other for other in self.removed if other != path)
        return ChangedLogDirs(added, (*removed, path) if path in configured else removed)

    def settled(self, configured: Sequence[str]) -> "ChangedLogDirs":
        """Return the remaining difference to a property file that may have been changed."""
        return ChangedLogDirs(
            tuple(path for path in self.added if path not in configured),
            tuple(path for path in self.removed if path in configured),
        )

    def merged(self, configured: Sequence[str]) -> list[str]:
        """Return the directories to use: the configured ones first."""
        kept = [path for path in configured if path not in self.removed]
        return [*kept, *(path for path in self.added if path not in kept)]


def read_changed_log_dirs(file_system: FileSystem, metadata_log_dir: str) -> ChangedLogDirs:
    """Return the stored difference; an empty one without a file.

    Raises:
        ConfigError: the file cannot be understood.
        OSError: it cannot be read.
    """
    path = f"{metadata_log_dir.rstrip('/')}/{CHANGED_LOG_DIRS}"
    try:
        data = file_system.read_bytes(path)
    except FileNotFoundError:
        return ChangedLogDirs()
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}, known is {_VERSION}")
        lists = [content["added"], content["retired"]]
        if not all(isinstance(entries, list) for entries in lists):
            raise ValueError("the paths are not in a list")
        if not all(isinstance(entry, str) for entries in lists for entry in entries):
            raise ValueError("a path is not a text")
        if not all(entry.startswith("/") for entries in lists for entry in entries):
            raise ValueError("a path is not absolute")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error!r}. It names the log directories that were added and "
            "removed while the broker ran. Make log.dirs name the directories to be used, and "
            "remove the file"
        ) from None
    return ChangedLogDirs(tuple(lists[0]), tuple(lists[1]))


def write_changed_log_dirs(
    file_system: FileSystem, metadata_log_dir: str, changed: ChangedLogDirs
) -> None:
    """Store the difference; OSError if the disk refuses."""
    content = {"version": _VERSION, "added": changed.added, "retired": changed.removed}
    path = f"{metadata_log_dir.rstrip('/')}/{CHANGED_LOG_DIRS}"
    file_system.write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
