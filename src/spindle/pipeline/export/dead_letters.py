"""The table of dead letters beside an export: the records that could not be decoded.

Every offset is in the table or in the dead letters, once. For every portion the dead letters are
committed first. This commit decides which records of the portion are bad: their table of dead
letters holds the offsets of the portion from then on, so of two runs only one can decide. A run
that is killed before it commits the portion to the table leaves offsets that are decided and not
exported; the next run exports exactly the records that the decision left over.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.pipeline.export.continuation import key_of
from spindle.pipeline.export.dead_letter_rule import (
    DEAD_LETTER_ROWS,
    WITHOUT_STATISTICS,
    DeadLetterRule,
    DecidedOffsets,
)
from spindle.pipeline.export.model import (
    Coverage,
    CoverageChange,
    PartitionIdentity,
    PlannedRange,
    WrittenFile,
)
from spindle.pipeline.export.parquet_files import parse_compacted_name, parse_file_name
from spindle.pipeline.export.table import CommitBatch, ExportTable, TableLayout

DEAD_LETTER_LAYOUT: Final = TableLayout(
    DEAD_LETTER_ROWS.schema(), without_statistics=WITHOUT_STATISTICS
)


class DeadLetters:
    """The table of dead letters of an export, on the driver."""

    def __init__(self, table: ExportTable) -> None:
        self.table = table
        table.check_layout(DEAD_LETTER_LAYOUT)

    def rule(self, portion: Sequence[PlannedRange]) -> DeadLetterRule:
        """Make the table ready for a portion and return the rule of its tasks."""
        self.table.prepare(DEAD_LETTER_LAYOUT)
        decided = {}
        for key in dict.fromkeys(map(key_of, portion)):
            held = self.table.coverage(key)
            pieces = [piece for piece in portion if key_of(piece) == key]
            if held is not None and any(_overlap(piece, held) for piece in pieces):
                topic = pieces[0].partition.topic
                decided[key] = DecidedOffsets(held, self._dead_offsets(key, topic, held))
        return DeadLetterRule(decided)

    def commit(
        self,
        files: Sequence[WrittenFile],
        portion: Sequence[PlannedRange],
        topics: Mapping[str, Uuid],
    ) -> None:
        """Add the dead letters of a portion, and so decide about its records.

        Raises:
            ExportConflict: another run has decided about some of them meanwhile.
        """
        growth: dict[PartitionIdentity, CoverageChange] = {}
        for piece in portion:
            key = key_of(piece)
            before = growth[key].before if key in growth else self.table.coverage(key)
            so_far = growth[key].after if key in growth else before
            growth[key] = CoverageChange(before, _with_piece(so_far, piece))
        # Only the exported table refuses a topic that was created again.
        self.table.commit(
            CommitBatch(DEAD_LETTER_LAYOUT, files, growth, topics, may_mix_topics=True)
        )

    def _dead_offsets(self, key: PartitionIdentity, topic: str, held: Coverage) -> tuple[int, ...]:
        """Return the offsets of the dead letters of a partition."""
        dead_offsets: set[int] = set()
        wanted = (pc.field("topic") == topic) & (pc.field("partition") == key.partition)
        for path in self.table.live_files():
            if key_in_name(path) in (None, key):
                offsets = pq.read_table(path, columns=["offset"], filters=wanted).column(0)
                dead_offsets.update(offsets.to_pylist())
        return tuple(sorted(offset for offset in dead_offsets if held.start <= offset < held.end))


def key_in_name(path: Path) -> PartitionIdentity | None:
    """Return the partition that the name of a file of dead letters states; None without one."""
    parsed = parse_file_name(path.name) or parse_compacted_name(path.name)
    # A file of letters that has lost its topic id has zeros in the place of it.
    return None if parsed is None or parsed[0].topic_id == ZERO_UUID else parsed[0]


def _overlap(piece: PlannedRange, held: Coverage) -> bool:
    return piece.start_offset < held.end and held.start < piece.end_offset


def _with_piece(held: Coverage | None, piece: PlannedRange) -> Coverage:
    """Return the offsets covered by a range.

    Offsets between the two have been exported by runs without dead letters.
    """
    if held is None:
        return Coverage(piece.start_offset, piece.end_offset)
    return Coverage(min(held.start, piece.start_offset), max(held.end, piece.end_offset))


def dead_letters_of(table: str) -> str:
    """Return the path or name of the table of dead letters of a table."""
    return f"{table.rstrip('/')}_dead_letters"
