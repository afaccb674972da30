"""Rates of log directories and moves, from two responses of the same broker."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spindle.client.disks import BrokerDisks, DiskWork, MoveView, OperationsView
from spindle.disks.io_counts import bucket_limit_ns

_MS: Final = 1000
_NS_PER_MS: Final = 1_000_000
_REMEMBERED: Final = 8
"""Number of responses for the rate of a move, because a throttled move copies in bursts."""


@dataclass(frozen=True, slots=True)
class OperationRate:
    """Operations between two responses. The times are None if there were no operations."""

    count: int
    bytes_per_second: float
    mean_ms: float | None
    median_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class DiskRate:
    """The activity of a directory between two responses.

    Attributes:
        every: reads, writes and syncs together.
        busy: the part of the time in which the I/O thread worked, 0 to 1.
    """

    reads: OperationRate
    writes: OperationRate
    syncs: OperationRate
    every: OperationRate
    busy: float


@dataclass(frozen=True, slots=True)
class MoveRate:
    """The rates of a move over the last responses; None if not known yet."""

    bytes_per_second: float | None
    seconds_left: float | None


MoveKey = tuple[str, int, str]


class BrokerRates:
    """Keeps the last responses of one broker, to compute its rates."""

    def __init__(self) -> None:
        self._last: BrokerDisks | None = None
        self._moves: dict[MoveKey, deque[tuple[int, int]]] = {}

    def add(self, found: BrokerDisks) -> tuple[Mapping[str, DiskRate], Mapping[MoveKey, MoveRate]]:
        """Return the rates since the last response: of directories by path, and of moves.

        After a restart of the broker there are no rates of directories.
        """
        before, self._last = self._last, found
        return (disk_rates(before, found) if before is not None else {}), self._move_rates(found)

    def _move_rates(self, found: BrokerDisks) -> dict[MoveKey, MoveRate]:
        remembered: dict[MoveKey, deque[tuple[int, int]]] = {}
        rates = {}
        for move in found.moves:
            key = key_of(move)
            seen = self._moves.get(key) or deque(maxlen=_REMEMBERED)
            if seen and seen[-1][0] >= found.steady_ms:
                seen.clear()
            seen.append((found.steady_ms, move.size_bytes - move.remaining_bytes))
            remembered[key] = seen
            rates[key] = _move_rate(seen, move.remaining_bytes)
        self._moves = remembered
        return rates


def key_of(move: MoveView) -> MoveKey:
    """Return the key of a move, unique in its broker."""
    return (*move.partition, move.target)


def _move_rate(seen: Sequence[tuple[int, int]], remaining_bytes: int) -> MoveRate:
    (first_ms, first_bytes), (last_ms, last_bytes) = seen[0], seen[-1]
    if last_ms <= first_ms or last_bytes < first_bytes:
        return MoveRate(None, None)
    rate = (last_bytes - first_bytes) * _MS / (last_ms - first_ms)
    if not remaining_bytes:
        return MoveRate(rate, 0.0)
    return MoveRate(rate, remaining_bytes / rate if rate > 0 else None)


def disk_rates(before: BrokerDisks, after: BrokerDisks) -> dict[str, DiskRate]:
    """Return the rates of the directories in both responses, by path.

    There are none after a restart of the broker, because its counters were reset.
    """
    elapsed_ms = after.steady_ms - before.steady_ms
    if before.broker_epoch != after.broker_epoch or elapsed_ms <= 0:
        return {}
    known = {disk.path: disk.work for disk in before.disks}
    rates = {}
    for disk in after.disks:
        first, last = known.get(disk.path), disk.work
        if first is None or last is None or last.busy_ns < first.busy_ns:
            continue
        rates[disk.path] = _disk_rate(first, last, elapsed_ms)
    return rates


def _disk_rate(first: DiskWork, last: DiskWork, elapsed_ms: int) -> DiskRate:
    pairs = list(zip(first.operations, last.operations, strict=True))
    reads, writes, syncs = (_operation_rate([pair], elapsed_ms) for pair in pairs)
    busy = (last.busy_ns - first.busy_ns) / (elapsed_ms * _NS_PER_MS)
    return DiskRate(reads, writes, syncs, _operation_rate(pairs, elapsed_ms), min(busy, 1.0))


def _operation_rate(
    pairs: Sequence[tuple[OperationsView, OperationsView]], elapsed_ms: int
) -> OperationRate:
    """Return the rate of several kinds of operations together, each as (first, last)."""
    buckets: dict[int, int] = {}
    for first, last in pairs:
        for index, count in last.buckets.items():
            new = count - first.buckets.get(index, 0)
            if new > 0:
                buckets[index] = buckets.get(index, 0) + new
    size_bytes = sum(last.size_bytes - first.size_bytes for first, last in pairs)
    total_ns = sum(last.total_ns - first.total_ns for first, last in pairs)
    count = sum(buckets.values())
    return OperationRate(
        count,
        size_bytes * _MS / elapsed_ms,
        total_ns / count / _NS_PER_MS if count else None,
        quantile_ms(buckets, 0.5),
        quantile_ms(buckets, 0.99),
    )


def quantile_ms(buckets: Mapping[int, int], part: float) -> float | None:
    """Return a quantile (0 to 1) of operations by bucket; None without operations.

    It is exact to a quarter of an octave: the middle of its bucket.
    """
    rank = part * sum(buckets.values())
    seen = 0
    for index in sorted(buckets):
        seen += buckets[index]
        if buckets[index] and seen >= rank:
            return (bucket_limit_ns(index - 1) + bucket_limit_ns(index)) / 2 / _NS_PER_MS
    return None
