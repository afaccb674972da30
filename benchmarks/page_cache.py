"""Page cache that every run finds in the same state."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

BLOCK = 2**20
LIMIT_S = 60.0


def recycle(folder: Path, size_bytes: int) -> None:
    """Write a file of `size_bytes` in `folder` and remove it at once.

    The kernel then gives these pages to whatever is written next. Otherwise a run would now and
    then get memory that the host of a virtual machine has not backed yet, and the first write to
    such a page costs several times what a broker does with it.
    """
    block = os.urandom(BLOCK)
    # The file has no name, so closing it frees the pages without a write to the disk.
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(-(-size_bytes // BLOCK)):
            file.write(block)


def wait_until_written() -> None:
    """Wait until the kernel writes no pages to the disk.

    A broker flushes a segment when it begins the next one. If it was filled quickly, the flush is
    still under way when it is read, and takes time from one of the cores.
    """
    deadline_s = time.monotonic() + LIMIT_S
    while _pages_under_way() and time.monotonic() < deadline_s:
        time.sleep(0.1)


def _pages_under_way() -> int:
    text = Path("/proc/vmstat").read_text()
    return int(text.partition("\nnr_writeback ")[2].partition("\n")[0])
