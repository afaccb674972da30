"""Reject pipes, devices and oversized files, which would block or exhaust memory."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from spindle.common.text import size_text
from spindle.log.formats.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

MAX_SMALL_FILE_BYTES: Final = 64 << 20
"""Maximum size of a file other than a segment or an index, which is read as a whole."""
MAX_TRANSACTION_INDEX_BYTES: Final = 16 << 20
"""Half a million aborted transactions in one segment."""
MAX_BATCH_BYTES: Final = 64 << 20
"""The largest batch that is read as a whole."""
MAX_SNAPSHOT_BYTES: Final = 1 << 30
"""Maximum size of a snapshot of the metadata log."""
_SNAPSHOT_SUFFIX: Final = ".checkpoint"
_READ_IN_PARTS: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)


def _limit_bytes(name: str) -> int | None:
    """Return the maximum size of a file; None for a file that is read in parts."""
    if any(suffix in name for suffix in _READ_IN_PARTS):
        return None
    if TRANSACTION_INDEX_SUFFIX in name:
        return MAX_TRANSACTION_INDEX_BYTES
    if not name.endswith(_SNAPSHOT_SUFFIX):
        return MAX_SMALL_FILE_BYTES
    # Only the metadata log has such files, and its formats take long to import.
    from spindle.metadata_log.snapshots import parse_snapshot_file_name

    return MAX_SMALL_FILE_BYTES if parse_snapshot_file_name(name) is None else MAX_SNAPSHOT_BYTES


def refuse_odd_files(folder: Path) -> None:
    """Refuse a folder with a file that no broker writes.

    Raises:
        FileNotFoundError: there is no such folder.
        OSError: names the file and the reason.
    """
    with os.scandir(folder) as entries:
        paths = [Path(entry.path) for entry in entries]
    for path in paths:
        refuse_odd_file(path)


def refuse_odd_file(path: Path) -> None:
    """Refuse a pipe, a device, or a file that is too large to be read as a whole.

    Raises: OSError: names the reason.
    """
    try:
        status = path.stat()
    except OSError:
        return  # reported when it is opened to be read
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    limit_bytes = _limit_bytes(path.name)
    if limit_bytes is not None and status.st_size > limit_bytes:
        reason = f"file is {size_text(status.st_size)}; the limit is {size_text(limit_bytes)}"
        raise OSError(errno.EFBIG, reason, str(path))
