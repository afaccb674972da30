"""Which rows of an export become dead letters, and the columns that dead letters have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spindle.columnar.columns import CORRUPTION_COLUMN
from spindle.pipeline.export.continuation import key_of
from spindle.pipeline.export.model import Coverage, ExportRefused, PartitionIdentity, PlannedRange
from spindle.pipeline.export.row_format import RowFormat
from spindle.pipeline.schemas.decoding import merged_errors

RAW_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
"""The columns of a record that its dead letter keeps."""

DEAD_LETTER_ROWS: Final = RowFormat(RAW_COLUMNS, added=(pa.field("reason", pa.string()),))

WITHOUT_STATISTICS: Final = frozenset({"timestamp"})
"""The time of a dead letter may be why it is one."""


class DecidedOffsets(NamedTuple):
    """Offsets of a partition that are decided: those that are dead letters, in ascending order."""

    held: Coverage
    dead: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeadLetterRule:
    """Which rows of a portion become dead letters. Tasks get it pickled.

    `decided` has the partitions of which earlier runs have decided offsets that are not exported.
    """

    decided: Mapping[PartitionIdentity, DecidedOffsets] = field(default_factory=dict)

    def split(self, batch: Any, reasons: Any | None, piece: PlannedRange) -> tuple[Any, Any | None]:
        """Return which rows are exported (None: all), and the new dead letters (None: none).

        Args:
            batch: The raw rows, with RAW_COLUMNS.
            reasons: The reason of each bad row, null for others; None if there is no bad row.

        Raises:
            ExportRefused: a record is bad that an earlier run has decided to be good, because the
                schema has changed between the runs.
        """
        batch, reasons = _with_corrupt_batches(batch, reasons)
        decided = self.decided.get(key_of(piece))
        if reasons is None and decided is None:
            return None, None
        rows = batch.num_rows
        is_bad = pa.array([False] * rows) if reasons is None else reasons.is_valid()
        is_dead, is_new = is_bad, is_bad
        if decided is not None:
            offsets = batch.column("offset")
            is_decided = pc.and_(
                pc.greater_equal(offsets, decided.held.start), pc.less(offsets, decided.held.end)
            )
            was_dead = pc.is_in(offsets, pa.array(decided.dead, pa.int64()))
            lost = pc.and_(is_decided, pc.and_not(is_bad, was_dead))
            if reasons is not None and pc.any(lost, min_count=0).as_py():
                row = pc.index(lost, True).as_py()
                raise ExportRefused(
                    f"{piece.partition} offset {offsets[row]} cannot be decoded ({reasons[row]}), "
                    "but the run before this one, which was killed, could decode it. Finish that "
                    "export with its schema first (option valueSchema)"
                )
            is_dead = pc.or_(pc.and_not(is_bad, is_decided), was_dead)
            is_new = pc.and_not(is_bad, is_decided)
        return pc.invert(is_dead), _letters(batch, reasons, is_new)


def _with_corrupt_batches(batch: Any, reasons: Any | None) -> tuple[Any, Any | None]:
    """Return the rows with the bytes of corrupt batches as values, and the reasons with theirs.

    A row that stands for a corrupt batch has the first offset that is missing.
    """
    if CORRUPTION_COLUMN not in batch.schema.names:
        return batch, reasons
    corruption = batch.column(CORRUPTION_COLUMN)
    if corruption.null_count == len(corruption):
        return batch, reasons
    findings = pc.binary_join_element_wise(
        "corrupt batch", pc.struct_field(corruption, "reason"), ": "
    )
    value = pc.coalesce(batch.column("value"), pc.struct_field(corruption, "data"))
    batch = batch.set_column(batch.schema.get_field_index("value"), "value", value)
    return batch, merged_errors(findings, reasons)


def _letters(batch: Any, reasons: Any | None, is_new: Any) -> Any | None:
    if reasons is None or not pc.any(is_new, min_count=0).as_py():
        return None
    columns = [batch.column(name) for name in RAW_COLUMNS]
    rows = pa.RecordBatch.from_arrays([*columns, reasons], schema=DEAD_LETTER_ROWS.schema())
    return rows.filter(is_new)
