"""Counts and times of the operations on a log directory's files: plain numbers, for the metrics.

The threads of a directory add to them without a lock. Every addition is one step of the
interpreter; should one be lost, a metric is too low by that operation.
"""

from collections.abc import Iterable
from typing import Final

_PARTS_LOG2: Final = 2
PARTS: Final = 1 << _PARTS_LOG2
"""Buckets of an octave."""
_BUCKETS: Final = 64 * PARTS
_MIN_NS: Final = 2 * PARTS


class OperationCounts:
    """The operations of one kind, such as writes, since the start.

    Attributes:
        size_bytes: bytes that were read or written.
        total_ns: the sum of the times.
        errors: operations that failed; they are in no other attribute.
        buckets: operations by time; `bucket_limit_ns` gives the limit of a bucket.
    """

    __slots__ = ("_longest_ns", "buckets", "errors", "size_bytes", "total_ns")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.total_ns = 0
        self.errors = 0
        self.buckets = [0] * _BUCKETS
        self._longest_ns = 0

    def observe(self, elapsed_ns: int, size_bytes: int = 0) -> None:
        """Count one operation that succeeded."""
        self.size_bytes += size_bytes
        self.total_ns += elapsed_ns
        if elapsed_ns > self._longest_ns:
            self._longest_ns = elapsed_ns
        self.buckets[_bucket_of(elapsed_ns)] += 1

    def add(
        self, size_bytes: int, total_ns: int, longest_ns: int, by_time_ns: Iterable[tuple[int, int]]
    ) -> None:
        """Count operations that other code has measured: (time in ns, count)."""
        self.size_bytes += size_bytes
        self.total_ns += total_ns
        self._longest_ns = max(self._longest_ns, longest_ns)
        for elapsed_ns, count in by_time_ns:
            self.buckets[_bucket_of(elapsed_ns)] += count

    @property
    def count(self) -> int:
        """The number of operations that succeeded."""
        return sum(self.buckets)

    def take_longest_ns(self) -> int:
        """Return the longest time since the last call."""
        longest_ns, self._longest_ns = self._longest_ns, 0
        return longest_ns


def _bucket_of(elapsed_ns: int) -> int:
    if elapsed_ns < _MIN_NS:
        elapsed_ns = _MIN_NS
    octave = elapsed_ns.bit_length()
    part = (elapsed_ns >> (octave - _PARTS_LOG2 - 1)) & (PARTS - 1)
    return (octave << _PARTS_LOG2) + part


def bucket_limit_ns(bucket: int) -> int:
    """Return the time below which the operations of a bucket lie, in nanoseconds."""
    octave, part = divmod(bucket, PARTS)
    return (PARTS + part + 1 << octave) >> (_PARTS_LOG2 + 1)


class DirectoryIo:
    """The operations on the files of one log directory, on all threads that work there."""

    __slots__ = ("path", "reads", "syncs", "writes")

    def __init__(self, path: str) -> None:
        self.path = path
        self.reads = OperationCounts()
        self.writes = OperationCounts()
        self.syncs = OperationCounts()
