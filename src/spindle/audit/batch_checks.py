"""Checks of the batches of a segment, in order, over windows of header columns.

Checksums, offsets and leader epochs. `merge` compares segments with each other.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from spindle.audit.findings import MAX_OF_A_KIND, Collector, FindingKind
from spindle.audit.segment_part import NO_BATCHES, BatchPart, EpochRun, OffsetGap
from spindle.audit.segment_scan import MAX_BAD_SPANS, BadSpan
from spindle.columnar.header_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    COMPUTED_CRC,
    CRC,
    LAST_DELTA,
    LEADER_EPOCH,
    POSITION,
    RECORD_COUNT,
)
from spindle.log.formats.index_entries import MAX_RELATIVE_OFFSET
from spindle.protocol.records.batch import CODEC_MASK, CONTROL_FLAG, DELETE_HORIZON_FLAG

_LAST_CODEC: Final = 4
_NO_RUN: Final = -(2**31) - 1


class BatchChecks:
    """Checks the batches of one segment.

    Args:
        path: the segment.
        base_offset: the offset in its name.
        noted: the state after the batches before the first window, which are sound.

    Attributes:
        has_wrong_checksum: a batch is damaged, so its timestamps may be wrong, too.
    """

    def __init__(
        self, findings: Collector, path: Path, base_offset: int, noted: BatchPart = NO_BATCHES
    ) -> None:
        self._findings = findings
        self._path = path
        self._segment_base = base_offset
        self._epoch_runs = list(noted.epoch_runs)
        self._next_offset = noted.next_offset
        self._first_offset = noted.first_offset
        self._is_rewritten = noted.is_rewritten
        self._end = noted.next_offset
        self._gaps: dict[int, OffsetGap] = {}
        self.has_wrong_checksum = False

    def part(self) -> BatchPart:
        """Return the combined state of the batches."""
        return BatchPart(
            self._first_offset,
            self._next_offset,
            self._is_rewritten,
            tuple(self._epoch_runs),
            tuple(self._gaps.values())[:MAX_OF_A_KIND],
        )

    def window(self, fields: Any) -> None:
        """Check the next batches."""
        bases = fields[BASE_OFFSET]
        ends = bases + fields[LAST_DELTA] + 1
        self._check_checksums(fields)
        self._check_range(fields, ends)
        self._check_order(fields, ends)
        self._note_epochs(fields)
        attributes = fields[ATTRIBUTES]
        is_rewritten = (fields[RECORD_COUNT] != fields[LAST_DELTA] + 1) | (
            attributes & DELETE_HORIZON_FLAG != 0
        )
        if is_rewritten.any():
            self._is_rewritten = True
        if self._first_offset is None:
            self._first_offset = int(bases[0])
        self._next_offset = int(ends[-1])

    def _check_checksums(self, fields: Any) -> None:
        for index in np.flatnonzero(fields[CRC] != fields[COMPUTED_CRC]).tolist():
            self.has_wrong_checksum = True
            self._add(
                FindingKind.BATCH_CHECKSUM,
                fields,
                index,
                f"the batch has checksum {fields[CRC, index]}, its bytes give "
                f"{fields[COMPUTED_CRC, index]}",
            )
        attributes = fields[ATTRIBUTES]
        is_unknown = (attributes & CODEC_MASK > _LAST_CODEC) & (attributes & CONTROL_FLAG == 0)
        for index in np.flatnonzero(is_unknown).tolist():
            codec = attributes[index] & CODEC_MASK
            self._add(FindingKind.BATCH_HEADER, fields, index, f"codec {codec} is unknown")

    def _check_range(self, fields: Any, ends: Any) -> None:
        relative = fields[BASE_OFFSET] - self._segment_base
        is_outside = (relative < 0) | (ends - 1 - self._segment_base > MAX_RELATIVE_OFFSET)
        for index in np.flatnonzero(is_outside)[:1].tolist():
            self._add(
                FindingKind.SEGMENT_NAME,
                fields,
                index,
                f"the batch has offset {fields[BASE_OFFSET, index]}, which does not belong into "
                f"a segment that begins at {self._segment_base}",
            )

    def _check_order(self, fields: Any, ends: Any) -> None:
        bases = fields[BASE_OFFSET]
        first = int(bases[0]) if self._next_offset is None else self._next_offset
        expected = np.concatenate(([first], ends[:-1]))
        self._note_gaps(fields, ends)
        for index in np.flatnonzero(bases < expected).tolist():
            culprit, evidence = (
                index,
                (
                    f"the batch has offset {bases[index]}, but the batch before it ends at "
                    f"{expected[index] - 1}"
                ),
            )
            if (
                index
                and bases[index] >= expected[index - 1]
                and bases[index - 1] > expected[index - 1]
            ):
                # The batch before it is the wrong one: without it the offsets ascend.
                culprit = index - 1
                evidence = (
                    f"the batch has offset {bases[culprit]}, but the one before it ends at "
                    f"{expected[culprit] - 1} and the one after it begins at {bases[index]}"
                )
            self._gaps.pop(int(fields[POSITION, culprit]), None)
            self._add(FindingKind.OFFSET_OVERLAP, fields, culprit, evidence)

    def _note_gaps(self, fields: Any, ends: Any) -> None:
        """Record the batches that begin after the end of all batches before them."""
        bases = fields[BASE_OFFSET]
        first = int(bases[0]) if self._end is None else self._end
        reached = np.maximum.accumulate(np.concatenate(([first], ends)))
        self._end = int(reached[-1])
        for index in np.flatnonzero(bases > reached[:-1]).tolist():
            if len(self._gaps) > MAX_BAD_SPANS:
                return
            position = int(fields[POSITION, index])
            self._gaps[position] = OffsetGap(
                self._path, position, int(reached[index]), int(bases[index])
            )

    def _note_epochs(self, fields: Any) -> None:
        """Record the runs of equal epochs, to be compared with the checkpoint later."""
        epochs, bases = fields[LEADER_EPOCH], fields[BASE_OFFSET]
        lasts = bases + fields[LAST_DELTA]
        before = self._epoch_runs[-1].epoch if self._epoch_runs else _NO_RUN
        starts = np.flatnonzero(np.diff(epochs, prepend=before)).tolist()
        ends = [*starts, len(epochs)]
        if self._epoch_runs and ends[0] > 0:
            last = int(lasts[ends[0] - 1])
            self._epoch_runs[-1] = self._epoch_runs[-1]._replace(last_offset=last)
        self._epoch_runs += [
            EpochRun(
                self._path,
                int(fields[POSITION, start]),
                int(epochs[start]),
                int(bases[start]),
                int(lasts[end - 1]),
            )
            for start, end in pairwise(ends)
        ]

    def _add(self, kind: FindingKind, fields: Any, index: int, evidence: str) -> None:
        self._findings.add(
            kind,
            self._path,
            evidence,
            position=int(fields[POSITION, index]),
            offset=int(fields[BASE_OFFSET, index]),
        )

    def bad_spans(self, spans: list[BadSpan], *, may_be_torn: bool) -> None:
        """Report the bytes of the current segment that are not batches.

        Args:
            may_be_torn: the segment is being written, or was when its broker died: a batch that
                is not whole at its end, or zeros, are normal.
        """
        for span in spans:
            self._gaps.pop(span.end, None)
            size = f"{span.end - span.start} bytes from here on are not batches"
            if span.is_too_large:
                kind, evidence = FindingKind.BATCH_TOO_LARGE, span.reason
            elif span.reason:
                kind, evidence = FindingKind.BATCH_HEADER, f"{span.reason}; {size}"
            elif span.is_at_end and may_be_torn:
                continue
            elif span.is_zeros:
                kind, evidence = FindingKind.SEGMENT_ZEROS, f"{size}, but zeros"
            else:
                kind, evidence = FindingKind.SEGMENT_TORN, f"{size}; the file ends inside of one"
            self._findings.add(kind, self._path, evidence, position=span.start)
