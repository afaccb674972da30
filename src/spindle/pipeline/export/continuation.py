"""Where an export continues: the planned ranges without those that the table holds.

A table holds one contiguous range of offsets for each (topic id, partition). A run appends to its
end. A run that would leave a gap or repeat rows is refused before any record is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from spindle.common.uuids import uuid_text
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.export.model import (
    Coverage,
    ExportRefused,
    ExportSource,
    PartitionIdentity,
    PlannedRange,
)


def key_of(piece: PlannedRange) -> PartitionIdentity:
    """Return topic id and partition of a range, which identify it in the table."""
    return PartitionIdentity(piece.topic_id, piece.partition.partition)


def remaining_ranges(
    source: ExportSource,
    planned: Iterable[PlannedRange],
    covered: Mapping[PartitionIdentity, Coverage],
) -> list[PlannedRange]:
    """Return the parts of `planned` that the table does not hold yet.

    Raises:
        ExportRefused: an explicit start is before the table's first offset or leaves a gap.
        DataLoss: retention removed offsets that were to be exported next.
    """
    remaining: list[PlannedRange] = []
    ordered = sorted(planned, key=lambda piece: (key_of(piece), piece.start_offset))
    for key, group in groupby(ordered, key_of):
        pieces = list(group)
        held = covered.get(key)
        if held is not None:
            _check_contiguous(source, pieces, held)
            pieces = [
                _from_offset(piece, held.end) for piece in pieces if piece.end_offset > held.end
            ]
        remaining += pieces
    return remaining


def _from_offset(piece: Any, start_offset: int) -> Any:
    """Return the range from `start_offset` on; the ranges of every source are dataclasses."""
    if piece.start_offset >= start_offset:
        return piece
    return replace(piece, start_offset=start_offset)


def _check_contiguous(source: ExportSource, pieces: Sequence[PlannedRange], held: Coverage) -> None:
    first = pieces[0]
    name = f"{first.partition} (topic id {uuid_text(first.topic_id)})"
    if source.start_is_explicit and first.start_offset < held.start:
        raise ExportRefused(
            f"{name}: the table begins at offset {held.start}; rows from {first.start_offset} on "
            "cannot be put before them. Leave out the starting offset to continue at the end, or "
            "use another table"
        )
    if first.start_offset > held.end:
        gap = f"{name}: offsets [{held.end}, {first.start_offset}) would be missing in the table"
        if source.start_is_explicit:
            raise ExportRefused(f"{gap}. Leave out the starting offset to continue at the end")
        if source.fail_on_data_loss:
            raise DataLoss(
                f"{gap}: the log no longer has them (failOnDataLoss=false continues without them)"
            )
