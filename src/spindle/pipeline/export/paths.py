"""Where a table lies: a directory of the local or of a shared file system."""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?=/)")


def local_directory(path: str | Path) -> Path:
    """Return the absolute path of a table.

    Spark's `file:/a/b` and `file:///a/b` are taken, too. As there, nothing in them is decoded: a
    `%41` is these three characters.

    Raises:
        ValueError: a URL of another scheme than `file` or of another host, no path, or a file.
    """
    text = str(path)
    url = _URL.match(text)
    if url is not None and (url[1].lower() != "file" or url[2] not in (None, "", "localhost")):
        raise ValueError(
            f"path {text!r}: tables are written to and read from local and shared file systems only"
        )
    plain = text if url is None else text[url.end() :]
    if not plain or "\0" in plain:
        raise ValueError(f"path {text!r}: want the path of a directory")
    directory = Path(plain).resolve()
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"path {str(directory)!r} is a file: a table is a directory")
    return directory


def delta_location(directory: str | Path) -> str:
    """Return a directory as delta-rs takes it, which is a URL.

    Raises:
        ValueError: the path has something like `%41`. Parts of delta-rs decode that a second time,
            so they would use the log of another directory.
    """
    escape = _ESCAPE.search(str(directory))
    if escape is not None:
        raise ValueError(
            f"path {str(directory)!r}: delta-rs, which keeps the log of a Delta table, takes "
            f"{escape[0]} in it for {unquote(escape[0])!r}. Use a path without it, or a table of "
            "format parquet"
        )
    return Path(directory).as_uri()


def sync_directory(path: Path) -> None:
    """Flush the names in a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
