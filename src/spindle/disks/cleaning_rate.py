"""The limit of the bytes per second that compaction reads and writes, in all directories together.

It is `log.cleaner.io.max.bytes.per.second`.
"""

from typing import Final

_STEP_S: Final = 0.3
"""The time between two pauses, as in Kafka."""
_MIN_STEP_BYTES: Final = 64 * 1024
_UNLIMITED: Final = 1e15


class CleaningRate:
    """Shares out a rate of bytes. Time is an argument in seconds."""

    __slots__ = ("_free_at_s", "_rate")

    def __init__(self) -> None:
        self._rate = _UNLIMITED
        self._free_at_s = 0.0

    def set_limit(self, bytes_per_second: float) -> None:
        """Use another limit from now on. A limit of 0 or less leaves one byte per second."""
        rate = max(bytes_per_second, 1.0)
        if rate != self._rate:
            # A changed limit starts with a clean account.
            self._rate, self._free_at_s = rate, 0.0

    @property
    def step_bytes(self) -> int | None:
        """How many bytes a pass may use before its next pause; None without a limit."""
        if self._rate >= _UNLIMITED:
            return None
        return max(int(self._rate * _STEP_S), _MIN_STEP_BYTES)

    def pause_s(self, used_bytes: int, now_s: float) -> float:
        """Note used bytes; return how long their user has to pause."""
        if self._rate >= _UNLIMITED:
            return 0.0
        self._free_at_s = max(self._free_at_s, now_s) + used_bytes / self._rate
        return self._free_at_s - now_s
