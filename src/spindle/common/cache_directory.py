"""The directory of this user for files that can be made again: Java's script and machine code.

Both are executed, so a directory that others can write to is refused.
"""

import os
import stat
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """Return `spindle` in the user's cache, or a directory in /tmp if there is no writable home.

    Containers often run under a user without an entry in the password file, or without a home.

    Raises:
        PermissionError: the directory in /tmp belongs to another user, or others can write to it.
    """
    home_cache = user_cache()
    if home_cache is not None:
        directory = home_cache / "spindle"
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            pass
        else:
            if os.access(directory, os.W_OK):
                return directory
    directory = Path(tempfile.gettempdir()) / f"spindle-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"{directory} must be a directory that belongs to the user {os.getuid()} and that only "
            "this user can write to; remove it, or set XDG_CACHE_HOME"
        )
    return directory


def user_cache() -> Path | None:
    """Return XDG_CACHE_HOME or `.cache` in the home, None if this user has no home."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None
