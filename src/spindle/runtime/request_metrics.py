"""Counts and times of requests, kept as plain numbers on the data path and read by the exporter."""

from collections import deque


class RequestMetrics:
    """Per API: how many requests, total time, and the latest times for quantiles."""

    __slots__ = ("bytes_in", "bytes_out", "counts", "recent_s", "total_s")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.counts: dict[str, int] = {}
        self.total_s: dict[str, float] = {}
        self.recent_s: dict[str, deque[float]] = {}

    def observe(self, api: str, elapsed_s: float) -> None:
        if api not in self.counts:
            self.counts[api] = 0
            self.total_s[api] = 0.0
            self.recent_s[api] = deque(maxlen=1024)
        self.counts[api] += 1
        self.total_s[api] += elapsed_s
        self.recent_s[api].append(elapsed_s)
