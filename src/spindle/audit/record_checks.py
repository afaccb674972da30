"""Checks of the records inside of batches, with the compiled decoder of the pipeline.

A checksum says that a batch is as it was written; a producer may have written nonsense.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from spindle.audit.findings import Collector, FindingKind
from spindle.common.errors import CorruptRecords
from spindle.common.ports import Bytes
from spindle.pipeline.records import headers, scan
from spindle.pipeline.records.chunk import ChunkDecoder, UndecodableChunk
from spindle.pipeline.records.memory import address_of
from spindle.protocol.records.batch import CODEC_MASK, CONTROL_FLAG, HEADER_BYTES
from spindle.protocol.records.compression import decompress

_MIN_RECORD_BYTES: Final = 7
_EVERYTHING: Final = (-(2**63), 2**63 - 1, -(2**63), 2**63 - 1)
_COLUMNS: Final = ("offset",)


class RecordChecks:
    """Decodes the records of batches whose checksums are right, and looks at their offsets."""

    def __init__(self, findings: Collector) -> None:
        self._findings = findings
        self._chunks = ChunkDecoder(_COLUMNS, np.array(_EVERYTHING, np.int64), {})

    def window(self, path: Path, fields: Any, view: memoryview, window_at: int) -> None:
        """Check the next batches.

        Args:
            view: the bytes of the file from byte `window_at` on.
        """
        is_right = fields[headers.CRC] == fields[headers.COMPUTED_CRC]
        is_data = fields[headers.ATTRIBUTES] & CONTROL_FLAG == 0
        fields = fields[:, is_right & is_data & (fields[headers.RECORD_COUNT] > 0)]
        table = np.zeros((fields.shape[1], scan.TABLE_WIDTH), np.int64)
        table[:, scan.ADDRESS] = address_of(view) + fields[headers.POSITION] - window_at
        table[:, scan.ADDRESS] += HEADER_BYTES
        table[:, scan.LENGTH] = fields[headers.SIZE_BYTES] - HEADER_BYTES
        for column, source in (
            (scan.BASE_OFFSET, headers.BASE_OFFSET),
            (scan.LAST_DELTA, headers.LAST_DELTA),
            (scan.COUNT, headers.RECORD_COUNT),
            (scan.POSITION, headers.POSITION),
        ):
            table[:, column] = fields[source]
        unpacked: list[Bytes] = []
        is_good = np.ones(len(table), bool)
        for index in np.flatnonzero(fields[headers.ATTRIBUTES] & CODEC_MASK).tolist():
            codec = int(fields[headers.ATTRIBUTES, index]) & CODEC_MASK
            start = int(fields[headers.POSITION, index]) - window_at
            payload = view[start + HEADER_BYTES : start + int(fields[headers.SIZE_BYTES, index])]
            try:
                records = decompress(codec, payload)
            except CorruptRecords as error:
                is_good[index] = False
                self._add(path, table[index], str(error))
                continue
            unpacked.append(records)
            table[index, scan.ADDRESS] = address_of(records) if records else 0
            table[index, scan.LENGTH] = len(records)
        is_too_many = table[:, scan.COUNT] > table[:, scan.LENGTH] // _MIN_RECORD_BYTES
        for index in np.flatnonzero(is_too_many & is_good).tolist():
            count, size = table[index, scan.COUNT], table[index, scan.LENGTH]
            self._add(path, table[index], f"it says {count} records, in {size} bytes")
        self._decode(path, view, table[is_good & ~is_too_many])

    def _decode(self, path: Path, view: memoryview, table: Any) -> None:
        while len(table):
            try:
                rows = self._chunks.decode(view, table)
            except UndecodableChunk as error:
                self._add(path, table[error.row], error.finding)
                table = np.delete(table, error.row, axis=0)
                continue
            offsets = np.zeros(0) if rows is None else rows.column(0).to_numpy()
            firsts = np.cumsum(table[:, scan.COUNT])[:-1]
            falls = np.diff(offsets) <= 0
            # Batches that overlap are another finding.
            falls[firsts - 1] = False
            ends = np.cumsum(table[:, scan.COUNT])
            for row in np.flatnonzero(falls).tolist():
                index = int(ends.searchsorted(row, side="right"))
                self._add(path, table[index], f"offset {offsets[row + 1]} follows {offsets[row]}")
            return

    def _add(self, path: Path, row: Any, evidence: str) -> None:
        self._findings.add(
            FindingKind.RECORDS,
            path,
            f"its records contradict its header or each other: {evidence}",
            position=int(row[scan.POSITION]),
            offset=int(row[scan.BASE_OFFSET]),
        )
