"""Latencies of requests, and their histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Answer(NamedTuple):
    """An answered request: when it was due (monotonic clock), its latency and error code."""

    due_s: float
    waited_ms: float
    error_code: int


class Latencies(NamedTuple):
    """Latencies within a time. `counts` has one number for each of `BOUNDS_MS` and one above."""

    counts: tuple[int, ...]
    p50_ms: float
    p99_ms: float
    max_ms: float
    error_codes: dict[int, int]

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Latencies:
        """Count the answers; without any, all figures are 0."""
        waited = sorted(answer.waited_ms for answer in answers)
        counts = [0] * (len(BOUNDS_MS) + 1)
        for waited_ms in waited:
            counts[sum(waited_ms > bound for bound in BOUNDS_MS)] += 1
        codes: dict[int, int] = {}
        for answer in answers:
            if answer.error_code:
                codes[answer.error_code] = codes.get(answer.error_code, 0) + 1
        if not waited:
            return cls(tuple(counts), 0.0, 0.0, 0.0, codes)
        return cls(
            tuple(counts),
            waited[len(waited) // 2],
            waited[min(len(waited) - 1, len(waited) * 99 // 100)],
            waited[-1],
            codes,
        )


def between(answers: Sequence[Answer], begin_s: float, end_s: float) -> list[Answer]:
    """Return the answers that waited at some time between two times."""
    return [a for a in answers if a.due_s < end_s and a.due_s + a.waited_ms / 1000 > begin_s]
