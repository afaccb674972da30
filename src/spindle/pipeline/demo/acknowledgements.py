"""The longest time for which a partition had no acknowledgement, before and after a moment."""

import time
from collections.abc import Callable


class Acknowledgements:
    """Counts acknowledgements by partition, and keeps the longest gap between two of them.

    Args:
        clock: seconds from a monotonic clock.
    """

    def __init__(self, partitions: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s: list[float | None] = [None] * partitions
        self._longest_s = [0.0] * partitions

    def note(self, partition: int) -> None:
        """Count an acknowledgement that has come now."""
        now_s = self._clock()
        last_s = self._last_s[partition]
        if last_s is not None and now_s - last_s > self._longest_s[partition]:
            self._longest_s[partition] = now_s - last_s
        self._last_s[partition] = now_s

    def take_longest_gap_s(self) -> float:
        """Forget the gaps that have ended, and return the longest of them in seconds.

        A gap that lasts still counts from its beginning.
        """
        longest_s = max(self._longest_s)
        self._longest_s = [0.0] * len(self._longest_s)
        return longest_s

    def longest_gap_s(self, partition: int) -> float:
        """Return the longest gap of a partition, in seconds."""
        return self._longest_s[partition]
