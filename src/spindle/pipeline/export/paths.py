"""Where a table lies: a directory of the local or of a shared file system."""

import os
from pathlib import Path


def local_directory(path: str | Path) -> Path:
    """Return the absolute path of a table.

    Raises:
        ValueError: a URL of another scheme than `file`, or a file.
    """
    text = str(path)
    if "://" in text and not text.startswith("file://"):
        raise ValueError(
            f"path {text!r}: tables are written to and read from local and shared file systems only"
        )
    directory = Path(text.removeprefix("file://")).resolve()
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"path {str(directory)!r} is a file: a table is a directory")
    return directory


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
