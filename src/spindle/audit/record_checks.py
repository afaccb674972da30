"""Checks of the records inside of batches, with a compiled walk over them.

A checksum says that a batch is as it was written; a producer may have written nonsense.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.segment_scan import SegmentScan
from spindle.common.errors import CorruptRecords, RecordsTooLarge
from spindle.pipeline.records import headers, tables
from spindle.pipeline.records.tables import address_of
from spindle.protocol.records.batch import CODEC_MASK, HEADER_BYTES
from spindle.protocol.records.compression import DecompressionBuffer, decompress

MAX_UNPACKED_BYTES: Final = 64 << 20
"""The most that the records of a batch may have when they are decompressed."""


class RecordChecks:
    """Walks over the records of batches whose checksums are right."""

    def __init__(self, findings: Collector) -> None:
        self._findings = findings
        self._buffer = DecompressionBuffer()

    def window(self, path: Path, fields: Any, reading: SegmentScan) -> None:
        """Check the batches of the present window of a scan, which has walked over plain ones."""
        status = reading.records[headers.RECORDS_STATUS]
        for index in np.flatnonzero(status).tolist():
            row = batch_table(fields[:, index : index + 1], reading.view, reading.window_at)
            if status[index] != headers.RECORDS_ARE_PACKED:
                found = int(reading.records[headers.RECORDS_BYTE, index])
                self._add_contradiction(path, row[0], walk_finding(int(status[index]), found))
                continue
            try:
                records = unpacked_records(row, reading.view, reading.window_at, self._buffer)
            except RecordsTooLarge as error:
                self._add(FindingKind.BATCH_TOO_LARGE, path, row[0], str(error))
            except CorruptRecords as error:
                self._add_contradiction(path, row[0], str(error))
            else:
                self._walk(path, row)
                del records  # the buffer of the next batch

    def _walk(self, path: Path, row: Any) -> None:
        """Check the records of a batch that was decompressed."""
        columns = (tables.ADDRESS, tables.LENGTH, tables.COUNT, tables.LAST_DELTA)
        status, byte = headers.check_records(*row[0, columns].tolist())
        if status:
            self._add_contradiction(path, row[0], walk_finding(status, byte))

    def _add_contradiction(self, path: Path, row: Any, evidence: str) -> None:
        text = f"its records contradict its header or each other: {evidence}"
        self._add(FindingKind.RECORDS, path, row, text)

    def _add(self, kind: FindingKind, path: Path, row: Any, evidence: str) -> None:
        position, offset = int(row[tables.POSITION]), int(row[tables.BASE_OFFSET])
        self._findings.add(kind, path, evidence, position=position, offset=offset)


def batch_table(fields: Any, view: memoryview, window_at: int) -> Any:
    """Return the batch table (`tables`) of batches in memory, with their bytes as they are stored.

    Args:
        view: the bytes of the file from byte `window_at` on.
    """
    table = np.zeros((fields.shape[1], tables.TABLE_WIDTH), np.int64)
    table[:, tables.ADDRESS] = (
        address_of(view) + fields[headers.POSITION] - window_at + HEADER_BYTES
    )
    table[:, tables.LENGTH] = fields[headers.SIZE_BYTES] - HEADER_BYTES
    for column, source in (
        (tables.BASE_OFFSET, headers.BASE_OFFSET),
        (tables.LAST_DELTA, headers.LAST_DELTA),
        (tables.COUNT, headers.RECORD_COUNT),
        (tables.POSITION, headers.POSITION),
        (tables.ATTRIBUTES, headers.ATTRIBUTES),
    ):
        table[:, column] = fields[source]
    return table


def unpacked_records(
    row: Any, view: memoryview, window_at: int, buffer: DecompressionBuffer
) -> Any:
    """Decompress a batch, and let its row of the batch table name the result, which is returned.

    Args:
        row: a batch table of this batch.
        buffer: memory for the result, which is valid until the next call.

    Raises:
        CorruptRecords: the records cannot be decompressed.
        RecordsTooLarge: they have more than `MAX_UNPACKED_BYTES` then.
    """
    codec = int(row[0, tables.ATTRIBUTES]) & CODEC_MASK
    start = int(row[0, tables.POSITION]) - window_at + HEADER_BYTES
    payload = view[start : start + int(row[0, tables.LENGTH])]
    records = decompress(codec, payload, MAX_UNPACKED_BYTES, buffer)
    row[0, tables.ADDRESS] = address_of(records) if records else 0
    row[0, tables.LENGTH] = len(records)
    return records


def walk_finding(status: int, byte: int) -> str:
    """Return what a walk over records found, as the end of a sentence."""
    return f"byte {byte} of its records: {tables.RECORD_FINDINGS[status]}"
