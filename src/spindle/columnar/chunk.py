"""Call the kernel once: make a RecordBatch of the batches in a batch table."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spindle.columnar import kernel, tables
from spindle.columnar.arrow import ColumnBuffers, HeaderScratch, Repeated, array_of
from spindle.columnar.columns import CORRUPTION_COLUMN, LINEAGE_COLUMNS, ROW_TYPES
from spindle.columnar.corruption import Place
from spindle.protocol.records.batch import CRC_COVERS_FROM, CRC_POSITION, TIMESTAMP_TYPE_FLAG

_MAX_BYTES: Final = 2**31 - 1
"""Arrow's offsets of binary columns have 32 bits."""


class UndecodableChunk(Exception):
    """A batch of a chunk cannot be decoded: its row in the table, and what is wrong."""

    def __init__(self, row: int, finding: str) -> None:
        super().__init__(row, finding)
        self.row = row
        self.finding = finding


class ChunkDecoder:
    """Decodes chunks of one partition into the wanted columns.

    `place` says where the batches come from; it is set before each buffer that has lineage.
    """

    def __init__(self, columns: Sequence[str], limits: Any, constants: dict[str, Any]) -> None:
        self._columns = tuple(columns)
        self._limits = limits
        self._scratch = HeaderScratch()
        self._constants = {
            name: Repeated(value, ROW_TYPES[name][0])
            for name, value in constants.items()
            if name in columns
        }
        if CORRUPTION_COLUMN in columns:
            self._constants[CORRUPTION_COLUMN] = Repeated(None, ROW_TYPES[CORRUPTION_COLUMN][0])
        self.begin(Place())

    def begin(self, place: Place) -> None:
        """Note where the next batches come from."""
        for name, value in zip(LINEAGE_COLUMNS[:3], place[:3], strict=True):
            if name in self._columns:
                self._constants[name] = Repeated(value, ROW_TYPES[name][0])
        self._place = place

    def decode(self, view: memoryview, table: Any) -> pa.RecordBatch | None:
        """Return the wanted rows of the batches of `table`, None if there are none.

        Raises:
            UndecodableChunk: a batch does not parse, or unpacks to 2 GiB or more.
        """
        size_bytes = int(table[:, tables.LENGTH].sum())
        if size_bytes > _MAX_BYTES:
            raise UndecodableChunk(
                0, f"its records unpack to {size_bytes} bytes, above the limit of {_MAX_BYTES}"
            )
        max_rows = int(table[:, tables.COUNT].sum())
        buffers = ColumnBuffers(self._columns, max_rows, size_bytes, self._scratch)
        result = buffers.fill(table, self._limits)
        if result[kernel.STATUS]:
            raise UndecodableChunk(
                int(result[kernel.FAILED_BATCH]),
                f"byte {result[kernel.FAILED_POSITION]} of its records: "
                f"{tables.RECORD_FINDINGS[int(result[kernel.STATUS])]}",
            )
        rows = int(result[kernel.ROW_COUNT])
        if not rows:
            return None
        given = {name: column.of(rows) for name, column in self._constants.items()}
        return buffers.record_batch(result, given | self._of_batches(view, table))

    def _of_batches(self, view: memoryview, table: Any) -> dict[str, Any]:
        """Return the columns that are the same for all records of a batch."""
        given = {}
        rows = table[:, tables.ROWS]
        if "timestampType" in self._columns:
            flags = table[:, tables.ATTRIBUTES] & TIMESTAMP_TYPE_FLAG != 0
            given["timestampType"] = array_of(np.repeat(flags.astype(np.int32), rows), pa.int32())
        if "position" in self._columns:
            begin = self._place.position
            given["position"] = (
                pa.nulls(int(rows.sum()), pa.int64())
                if begin is None
                else array_of(np.repeat(table[:, tables.POSITION] + begin, rows), pa.int64())
            )
        if "crc" in self._columns:
            places = table[:, tables.POSITION, None] + np.arange(CRC_POSITION, CRC_COVERS_FROM)
            crcs = np.frombuffer(view, np.uint8)[places].view(">u4")[:, 0].astype(np.int64)
            given["crc"] = array_of(np.repeat(crcs, rows), pa.int64())
        return given
