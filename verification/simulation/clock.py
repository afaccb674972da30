"""Clocks that are wrong: each host has its own rate and its own idea of the date."""

from typing import Final

START_S: Final = 1_000_000.0
"""True time at the beginning of every simulation; here all steady clocks agree."""


class SkewedClock:
    """One host's clock.

    Args:
        rate: seconds that it counts per true second.
        offset_ms: how far the date is off; may be changed while the host runs.
    """

    __slots__ = ("offset_ms", "rate")

    def __init__(self, rate: float = 1.0, offset_ms: int = 0) -> None:
        self.rate = rate
        self.offset_ms = offset_ms

    def local_s(self, true_s: float) -> float:
        """Return the time of the host's steady clock."""
        return START_S + (true_s - START_S) * self.rate

    def true_s(self, local_s: float) -> float:
        return START_S + (local_s - START_S) / self.rate

    def wall_ms(self, true_s: float) -> int:
        """Return the date by the host, in ms since the epoch."""
        return int(self.local_s(true_s) * 1000) + self.offset_ms
