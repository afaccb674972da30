"""Read small files of security: stores, sets of keys, tokens.

The path may come from a client that changes configurations. So only regular files of at most 1 MiB
are read: the open or the read of any other file may never end.
"""

import errno
import os
import stat
from typing import Final

_MAX_BYTES: Final = 1024 * 1024
# A FIFO is opened at once with O_NONBLOCK, and a terminal does not become that of this process.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def read_small_file(path: str) -> bytes:
    """Return the bytes of a file. It blocks for as long as the file system hangs.

    Raises:
        OSError: the file cannot be read, is not regular, or has more than 1 MiB; `strerror` says
            which.
    """
    descriptor = os.open(path, _FLAGS)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "It is not a regular file", path)
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise OSError(errno.EFBIG, "It is larger than 1 MiB", path)
    return data
