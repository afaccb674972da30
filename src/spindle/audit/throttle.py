"""A limit on the bytes per second that an audit reads from each log directory."""

import time
from collections.abc import Iterable, Mapping
from multiprocessing.context import ForkContext
from pathlib import Path
from typing import Any


class ReadThrottle:
    """Delays readers; processes that are forked later share the limit of a directory.

    Args:
        bytes_per_second: the limit for each directory, None for none.
    """

    def __init__(
        self, bytes_per_second: int | None, directories: Iterable[Path], context: ForkContext
    ) -> None:
        self._bytes_per_second = bytes_per_second
        # When the rate limit allows the next read; Linux has one monotonic clock.
        self._next_allowed_s: Mapping[Path, Any] = {
            directory: context.Value("d", 0.0) for directory in directories
        }

    def wait(self, directory: Path, size_bytes: int) -> None:
        """Wait until the bytes that were just read from a directory are within the limit."""
        if self._bytes_per_second is None:
            return
        paid_at = self._next_allowed_s[directory]
        with paid_at.get_lock():
            now = time.monotonic()
            paid_at.value = max(now, paid_at.value) + size_bytes / self._bytes_per_second
            pause_s = paid_at.value - now
        time.sleep(pause_s)
