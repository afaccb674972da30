"""Join the results of the segments of a log: offsets, epochs, producers, digests.

A segment is audited without the earlier ones, so that another process or machine may read each. Its
part is small: it holds only the state that later segments need.
"""

from pathlib import Path
from typing import Final

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.segment_part import BatchPart, EpochRun, OffsetGap

_LAST_RUNS: Final = 100


class JoinedBatches:
    """The batches of a log, from the parts of its segments in order.

    Attributes:
        next_offset: the offset after the last batch, None before the first one.
        first_offset: the base offset of the first batch, None before it.
        epoch_runs: the leader epochs of the batches, in their order.
        is_rewritten: a segment shows signs of compaction (`BatchPart`).
        gaps: offsets that are missing inside of segments, and between them.
    """

    def __init__(self, findings: Collector) -> None:
        self._findings = findings
        self._path = Path()
        self.epoch_runs: list[EpochRun] = []
        self.next_offset: int | None = None
        self.first_offset: int | None = None
        self.is_rewritten = False
        self.gaps: list[OffsetGap] = []

    def take(self, path: Path, base_offset: int, part: BatchPart) -> None:
        """Add the next segment."""
        if self.next_offset is not None and self.next_offset > base_offset:
            self._findings.add(
                FindingKind.OFFSET_OVERLAP,
                self._path,
                f"its last offset is {self.next_offset - 1}, but the next segment begins at "
                f"{base_offset}",
                offset=base_offset,
            )
        self._path = path
        self.is_rewritten = self.is_rewritten or part.is_rewritten
        if part.first_offset is None:
            return
        expected = base_offset if self.next_offset is None else self.next_offset
        if part.first_offset > expected:
            self.gaps.append(OffsetGap(path, None, expected, part.first_offset))
        self.gaps += part.gaps
        if self.first_offset is None:
            self.first_offset = part.first_offset
        self.next_offset = part.next_offset
        self._take_epochs(part)

    def last_epochs(self) -> tuple[tuple[int, int, int], ...]:
        """Return (epoch, first offset, last offset) of the last runs with the same epoch."""
        return tuple(
            (run.epoch, run.first_offset, run.last_offset) for run in self.epoch_runs[-_LAST_RUNS:]
        )

    def _take_epochs(self, part: BatchPart) -> None:
        runs = list(part.epoch_runs)
        if self.epoch_runs and runs and self.epoch_runs[-1].epoch == runs[0].epoch:
            last = runs.pop(0).last_offset
            self.epoch_runs[-1] = self.epoch_runs[-1]._replace(last_offset=last)
        self.epoch_runs += runs
