"""Counts of the work of share partitions, for the metrics."""

from collections import Counter

from spindle.runtime.metrics.durations import Durations


class Ratios:
    """Count and sum of ratios, each from 0 to 1."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def observe(self, ratio: float) -> None:
        self.count += 1
        self.total += ratio


class ShareCounts:
    """Counts since the start of the broker.

    Attributes:
        acknowledgements: records that members have acknowledged, by the number of the type.
        loads: time to read the state of a share partition.
        acquires: time from the arrival of a fetch to its first acquired records, by group.
        ratios: how many of the partitions in its session a fetch has got records of, by group.
    """

    __slots__ = ("acknowledgements", "acquires", "loads", "ratios")

    def __init__(self) -> None:
        self.acknowledgements: Counter[int] = Counter()
        self.loads = Durations()
        self.acquires: dict[str, Durations] = {}
        self.ratios: dict[str, Ratios] = {}

    def acquired(self, group_id: str, elapsed_s: float, ratio: float) -> None:
        """Count a fetch that has acquired records."""
        self.acquires.setdefault(group_id, Durations()).observe(elapsed_s)
        self.ratios.setdefault(group_id, Ratios()).observe(ratio)
