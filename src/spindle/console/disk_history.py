"""The history of directories in memory: a ring of the last samples of each, of fixed size."""

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from spindle.operations.directories import DirectoryKey
from spindle.planner.forecast.growth import DirectoryGrowth
from spindle.planner.forecast.time_to_full import TimeToFull, time_to_full, unknown
from spindle.planner.forecast.trend import fit_trend, span_of

MAX_SAMPLES: Final = 720
"""An hour of samples every 5 s."""
MAX_DIRECTORIES: Final = 2_000
_TREND_POINTS: Final = 48
"""A trend costs the square of its points."""


class DiskSample(NamedTuple):
    """A directory at one time; a value that is unknown is NaN."""

    time_s: float
    used_bytes: float
    read_bytes_per_second: float
    write_bytes_per_second: float
    p99_ms: float


_WIDTH: Final = len(DiskSample._fields)


class DiskHistory:
    """The last `MAX_SAMPLES` samples of up to 2,000 directories, about 30 KB for each."""

    def __init__(self) -> None:
        self._rings: dict[DirectoryKey, array[float]] = {}

    def add(self, key: DirectoryKey, sample: DiskSample) -> None:
        """Append a sample; the oldest one goes when the ring is full."""
        ring = self._rings.pop(key, None)
        if ring is None:
            if len(self._rings) >= MAX_DIRECTORIES:
                self._rings.pop(next(iter(self._rings)))
            ring = array("d")
        # The directory without a sample for the longest time is first.
        self._rings[key] = ring
        ring.extend(sample)
        if len(ring) > MAX_SAMPLES * _WIDTH:
            del ring[:_WIDTH]

    def samples(self, key: DirectoryKey) -> list[DiskSample]:
        """Return the samples of a directory, the oldest first."""
        values = self._rings.get(key, array("d"))
        return [
            DiskSample(*values[start : start + _WIDTH]) for start in range(0, len(values), _WIDTH)
        ]

    def forecast(self, key: DirectoryKey, free_bytes: int) -> TimeToFull:
        """Return when a directory is full.

        Args:
            free_bytes: negative if unknown.
        """
        points = [(s.time_s, s.used_bytes) for s in self.samples(key) if s.used_bytes >= 0]
        if not points:
            return unknown("there are no samples with its used bytes")
        thinned = list(_thinned(points))
        growth = DirectoryGrowth(len(points), span_of(points), None, None, fit_trend(thinned))
        return time_to_full(free_bytes, growth)


def _thinned(points: list[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    step = max(1, -(-len(points) // _TREND_POINTS))
    yield from points[:-1:step]
    yield points[-1]
