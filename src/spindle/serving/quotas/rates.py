"""The arithmetic of quotas: rates, and how long to wait until a rate is within its limit.

Both measures give the same numbers as Kafka's: a rate over sliding windows (KIP-13), and a token
bucket that one request may overdraw (KIP-599). Times are milliseconds of a clock that never goes
back.
"""

from typing import Final

MAX_THROTTLE_MS: Final = 2**31 - 1


class WindowedRate:
    """Amount per second, over the last `samples` windows.

    A window begins with the first event after the end of the previous one, so idle time uses no
    windows.
    One window more than `samples` is kept, because the oldest usually overlaps the border.

    Args:
        samples: number of windows, >= 1.
        window_ms: length of a window, >= 1.
        is_spread: measure a new rate over all windows, which allows a burst at the beginning;
            otherwise over the time since its first event, at least one window.
    """

    __slots__ = (
        "_amounts",
        "_current",
        "_is_spread",
        "_last_ms",
        "_samples",
        "_starts_ms",
        "_window_ms",
    )

    def __init__(self, samples: int, window_ms: int, *, is_spread: bool = True) -> None:
        self._samples = samples
        self._is_spread = is_spread
        self._window_ms = window_ms
        self._current = 0
        self._amounts: list[float] = []
        self._starts_ms: list[int] = []
        self._last_ms: list[int] = []

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount; a negative one undoes an earlier one."""
        if not self._amounts:
            self._open(now_ms)
        current = self._current
        if now_ms - self._starts_ms[current] >= self._window_ms:
            current = self._current = (current + 1) % (self._samples + 1)
            if current == len(self._amounts):
                self._open(now_ms)
            else:
                self._reset(current, now_ms)
        self._amounts[current] += amount
        self._last_ms[current] = now_ms

    def per_second(self, now_ms: int) -> float:
        return self._total(now_ms) / (self.elapsed_ms(now_ms) / 1000)

    def elapsed_ms(self, now_ms: int) -> int:
        """Return the time over which `per_second` measures."""
        if not self._starts_ms:
            self._open(now_ms)
        elapsed_ms = now_ms - min(self._starts_ms)
        if not self._is_spread:
            return max(elapsed_ms, self._window_ms)
        full = elapsed_ms // self._window_ms
        return max(elapsed_ms + max(self._samples - 1 - full, 0) * self._window_ms, 1)

    def is_forgotten(self, now_ms: int) -> bool:
        """Return True if no recorded amount counts any more."""
        return all(now_ms - last >= self._samples * self._window_ms for last in self._last_ms)

    def _total(self, now_ms: int) -> float:
        oldest_ms = now_ms - self._samples * self._window_ms
        for index, last_ms in enumerate(self._last_ms):
            if last_ms <= oldest_ms:
                self._reset(index, now_ms)
        return sum(self._amounts)

    def _open(self, now_ms: int) -> None:
        self._amounts.append(0.0)
        self._starts_ms.append(now_ms)
        self._last_ms.append(now_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        self._amounts[index] = 0.0
        self._starts_ms[index] = now_ms
        self._last_ms[index] = now_ms


class TokenBucket:
    """A token bucket: tokens come at a steady rate, at most those of `samples` windows.

    One request may overdraw it; the next one waits until the balance is zero again.
    """

    __slots__ = ("_burst", "_burst_s", "_filled_ms", "per_second", "tokens")

    def __init__(self, samples: int, window_ms: int, per_second: float, now_ms: int) -> None:
        self._burst_s = samples * window_ms / 1000
        self.per_second = per_second
        self._burst = self._burst_s * per_second
        self._filled_ms = now_ms
        self.tokens = self._burst

    def set_pace(self, per_second: float, now_ms: int) -> None:
        """Change the rate; the balance stays, at most the new maximum."""
        if per_second != self.per_second:
            self._fill(now_ms)
            self.per_second = per_second
            self._burst = self._burst_s * per_second
            self.tokens = min(self.tokens, self._burst)

    def take(self, count: float, now_ms: int) -> None:
        """Remove tokens; a negative count returns them."""
        self._fill(now_ms)
        self.tokens = min(self.tokens - count, self._burst)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the balance is not negative; 0 if tokens may be taken now."""
        self._fill(now_ms)
        if self.tokens >= 0:
            return 0
        if self.per_second <= 0:
            return MAX_THROTTLE_MS
        return round_half_up(-self.tokens / self.per_second * 1000)

    def _fill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._filled_ms
        self.tokens = min(self.tokens + elapsed_ms / 1000 * self.per_second, self._burst)
        self._filled_ms = now_ms


def throttle_ms(rate: WindowedRate, limit: float, now_ms: int) -> int:
    """Return how long to wait until the rate falls to the limit; 0 if it is within it."""
    per_second = rate.per_second(now_ms)
    if per_second <= limit:
        return 0
    if limit <= 0:
        return MAX_THROTTLE_MS
    return round_half_up((per_second - limit) / limit * rate.elapsed_ms(now_ms))


def round_half_up(wait_ms: float) -> int:
    """Round to whole milliseconds, at most 2^31 - 1, the largest throttle time of a response."""
    return min(int(wait_ms + 0.5), MAX_THROTTLE_MS)
