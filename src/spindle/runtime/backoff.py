"""Waiting between retries: doubles from `initial_ms` to `max_ms`, with a little jitter."""

from collections.abc import Callable


class Backoff:
    """One sequence of failures. `random` gives numbers in [0, 1)."""

    def __init__(self, initial_ms: int, max_ms: int, random: Callable[[], float]) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._random = random
        self.failures = 0

    def next_ms(self) -> float:
        """Return how long to wait after one more failure; within 2 % of the exact value."""
        exact: int = min(self._initial_ms * 2**self.failures, self._max_ms)
        self.failures = min(self.failures + 1, 30)
        return exact * (0.98 + 0.04 * self._random())

    def reset(self) -> None:
        self.failures = 0
