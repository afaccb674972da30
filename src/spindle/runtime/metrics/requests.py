"""Counts and times of requests and connections, as plain numbers.

Times go into buckets of a sixteenth of an octave, so that a quantile has an error of about 3 %
although no single request is stored. Quantiles cover the last one to two minutes.
"""

from collections.abc import Iterable, Sequence
from math import frexp, ldexp
from typing import Final

_PARTS: Final = 16
"""Buckets per octave."""
_MIN: Final = -24
_MAX: Final = 12
"""Number of octaves: from 60 ns to more than an hour."""
_BUCKETS: Final = (_MAX - _MIN + 1) * _PARTS
_FIRST: Final = -_MIN * _PARTS - _PARTS
_MIN_S: Final = ldexp(0.5, _MIN)
_MAX_S: Final = ldexp(0.99, _MAX)
_WINDOW_S: Final = 60.0


class RequestTimes:
    """Count and times of the requests of one API on one listener.

    Attributes:
        count: requests since the start.
        total_s: the sum of their times.
    """

    __slots__ = ("_before", "_began_s", "_now", "api", "count", "listener", "total_s")

    def __init__(self, api: str, listener: str) -> None:
        self.api = api
        self.listener = listener
        self.count = 0
        self.total_s = 0.0
        self._now = [0] * _BUCKETS
        self._before = [0] * _BUCKETS
        self._began_s = 0.0

    def observe(self, elapsed_s: float) -> None:
        self.count += 1
        self.total_s += elapsed_s
        self._now[_bucket_of(elapsed_s)] += 1

    def add(self, total_ns: int, by_time_ns: Iterable[tuple[int, int]]) -> None:
        """Count requests that a lane has served: (time in ns, count)."""
        self.total_s += total_ns / 1e9
        for elapsed_ns, count in by_time_ns:
            self.count += count
            self._now[_bucket_of(elapsed_ns / 1e9)] += count

    def quantiles_s(self, wanted: Sequence[float], now_s: float) -> list[float]:
        """Return the given quantiles (0 to 1) of the times of recent requests; 0 without requests.

        `now_s` is the time of a monotonic clock; it moves the window.
        """
        counts = [new + old for new, old in zip(self._now, self._before, strict=True)]
        if now_s - self._began_s >= _WINDOW_S:
            self._before, self._now = self._now, [0] * _BUCKETS
            self._began_s = now_s
        total = sum(counts)
        return [_quantile_s(counts, total, part) for part in wanted]


def _bucket_of(elapsed_s: float) -> int:
    if not _MIN_S < elapsed_s < _MAX_S:
        elapsed_s = _MIN_S if elapsed_s <= _MIN_S else _MAX_S
    mantissa, exponent = frexp(elapsed_s)
    return (exponent << 4) + int(mantissa * 32) + _FIRST


def _quantile_s(counts: Sequence[int], total: int, part: float) -> float:
    if not total:
        return 0.0
    rank = part * total
    seen = 0
    for index, count in enumerate(counts):
        seen += count
        if count and seen >= rank:
            octave, step = divmod(index, _PARTS)
            return ldexp((_PARTS + step + 0.5) / (2 * _PARTS), octave + _MIN)
    raise AssertionError("a rank is at most the total")


class RequestMetrics:
    """Counts of all listeners of a node.

    Attributes:
        connections: connections that are open now.
        connections_opened: connections accepted since the start.
        connections_refused: connections refused because of a limit.
        connections_muted: connections that waited because of a quota.
        failed_authentications: connections whose TLS handshake or SASL authentication has failed.
        successful_authentications: connections that have authenticated with SASL.
        successful_reauthentications: renewals of a session on its connection (KIP-368).
        sessions_expired: connections closed because they sent requests after the end of their
            session.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "connections",
        "connections_muted",
        "connections_opened",
        "connections_refused",
        "failed_authentications",
        "failed_reauthentications",
        "sessions_expired",
        "successful_authentications",
        "successful_reauthentications",
        "times",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.connections_muted = 0
        self.successful_authentications = 0
        self.failed_authentications = 0
        self.successful_reauthentications = 0
        self.failed_reauthentications = 0
        self.sessions_expired = 0
        self.times: dict[tuple[str, str], RequestTimes] = {}

    def of(self, api: str, listener: str) -> RequestTimes:
        """Return the counters of an API on a listener, for its connections to keep."""
        key = (api, listener)
        time = self.times.get(key)
        if time is None:
            time = self.times[key] = RequestTimes(api, listener)
        return time
