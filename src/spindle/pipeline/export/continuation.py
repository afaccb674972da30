"""Where an export continues: the planned ranges without those that the table holds.

A table holds one contiguous range of offsets for each (topic id, partition). A run appends to its
end. A run with an explicit start before the table's first offset also fills in the offsets between
the two. A run that would leave a gap is refused before any record is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
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
from spindle.pipeline.export.table import ExportTable


def key_of(piece: PlannedRange) -> PartitionIdentity:
    """Return topic id and partition of a range, which identify it in the table."""
    return PartitionIdentity(piece.topic_id, piece.partition.partition)


def coverage_of(
    table: ExportTable, planned: Iterable[PlannedRange]
) -> dict[PartitionIdentity, Coverage]:
    """Return the offsets that a table holds of the planned partitions."""
    held = {key: table.coverage(key) for key in map(key_of, planned)}
    return {key: directory for key, directory in held.items() if directory is not None}


def remaining_ranges(
    source: ExportSource,
    planned: Iterable[PlannedRange],
    covered: Mapping[PartitionIdentity, Coverage],
) -> list[PlannedRange]:
    """Return the parts of `planned` that the table does not hold yet, one or two for a partition.

    Args:
        planned: One range for a partition.

    Raises:
        ExportRefused: an explicit start or end leaves a gap.
        DataLoss: retention removed offsets that were to be exported next, or the log was truncated
            below the end of the table.
    """
    remaining: list[PlannedRange] = []
    for piece in sorted(planned, key=key_of):
        held = covered.get(key_of(piece))
        if held is not None:
            _check_not_truncated(source, piece, held)
        if piece.start_offset == piece.end_offset:
            continue
        if held is None:
            remaining.append(piece)
            continue
        _check_contiguous(source, piece, held)
        if source.start_is_explicit and piece.start_offset < held.start:
            remaining.append(_part(piece, piece.start_offset, held.start))
        if piece.end_offset > held.end:
            remaining.append(_part(piece, max(piece.start_offset, held.end), piece.end_offset))
    return remaining


def extended(held: Coverage | None, piece: PlannedRange) -> Coverage:
    """Return the coverage of a partition after the export of a range next to it."""
    if held is None:
        return Coverage(piece.start_offset, piece.end_offset)
    return Coverage(min(held.start, piece.start_offset), max(held.end, piece.end_offset))


def _part(piece: Any, start_offset: int, end_offset: int) -> Any:
    """Return a part of a range; the ranges of every source are dataclasses."""
    return replace(piece, start_offset=start_offset, end_offset=end_offset)


def _check_not_truncated(source: ExportSource, piece: PlannedRange, held: Coverage) -> None:
    is_truncated = source.ends_at_log_end and piece.end_offset < held.end
    if is_truncated and source.fail_on_data_loss:
        raise DataLoss(
            f"{_name(piece)}: the log ends at {piece.end_offset}, and the table holds offsets up "
            f"to {held.end}. The log was truncated (an unclean leader election), or the table was "
            "exported with another isolationLevel. failOnDataLoss=false continues when the log "
            f"has passed {held.end}; the table lacks what is written below"
        )


def _name(piece: PlannedRange) -> str:
    return f"{piece.partition} (topic id {uuid_text(piece.topic_id)})"


def _check_contiguous(source: ExportSource, piece: PlannedRange, held: Coverage) -> None:
    name = _name(piece)
    if source.start_is_explicit and piece.end_offset < held.start:
        raise ExportRefused(
            f"{name}: offsets [{piece.end_offset}, {held.start}) would be missing in the table, "
            f"which begins at {held.start}. End at {held.start} or later to fill in older offsets"
        )
    if piece.start_offset > held.end:
        gap = f"{name}: offsets [{held.end}, {piece.start_offset}) would be missing in the table"
        if source.start_is_explicit:
            raise ExportRefused(f"{gap}. Leave out the starting offset to continue at the end")
        if source.fail_on_data_loss:
            raise DataLoss(
                f"{gap}: the log no longer has them (failOnDataLoss=false continues without them)"
            )
