"""Refuses files that no broker writes: to read them would never end, or would fill the memory."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from spindle.common.sizes import size_text
from spindle.log.formats.names import LOG_SUFFIX

MAX_FILE_BYTES: Final = 1 << 30
"""The most that is read of a file other than a segment, because it is read as a whole."""


def refuse_odd_files(folder: Path) -> None:
    """Refuse a folder with such a file.

    Raises:
        FileNotFoundError: there is no such folder.
        OSError: names the file, and says what is odd about it.
    """
    with os.scandir(folder) as entries:
        paths = [Path(entry.path) for entry in entries]
    for path in paths:
        refuse_odd_file(path)


def refuse_odd_file(path: Path) -> None:
    """Refuse a pipe, a device, or a file beyond `MAX_FILE_BYTES` that is no segment.

    Raises:
        OSError: says which one it is.
    """
    try:
        status = path.stat()
    except OSError:
        return  # the next one who opens it reports it
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    if status.st_size > MAX_FILE_BYTES and LOG_SUFFIX not in path.name:
        reason = f"it has {size_text(status.st_size)}, and at most {size_text(MAX_FILE_BYTES)}"
        raise OSError(errno.EFBIG, f"{reason} are read", str(path))
