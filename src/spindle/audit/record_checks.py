"""Checks of the records inside of batches, with a compiled walk over them.

A right checksum shows that a batch is unchanged, not that the producer wrote valid records.
"""

from pathlib import Path
from typing import Final, NamedTuple

from spindle.audit.findings import Collector, FindingKind
from spindle.columnar import tables
from spindle.columnar.unpacked_records import check_records
from spindle.common.errors import CorruptRecords, RecordsTooLarge
from spindle.common.ports import Bytes
from spindle.protocol.records.compression import DecompressionBuffer, decompress

MAX_UNPACKED_BYTES: Final = 64 << 20
"""Maximum size of the decompressed records of a batch."""


class PackedBatch(NamedTuple):
    """A batch with compressed records: its place, and the header fields about the records."""

    position: int
    base_offset: int
    codec: int
    record_count: int
    last_delta: int


class RecordChecks:
    """Reports the records that contradict their batches, whose checksums are right."""

    def __init__(self, findings: Collector, path: Path) -> None:
        self._findings = findings
        self._path = path
        self._buffer = DecompressionBuffer()

    def packed(self, batch: PackedBatch, payload: Bytes) -> None:
        """Decompress the records of a batch, and check them."""
        place = batch.position, batch.base_offset
        try:
            records = decompress(batch.codec, payload, MAX_UNPACKED_BYTES, self._buffer)
        except RecordsTooLarge as error:
            self._add(FindingKind.BATCH_TOO_LARGE, *place, str(error))
        except CorruptRecords as error:
            self._add_contradiction(*place, str(error))
        else:
            status, byte = check_records(records, batch.record_count, batch.last_delta)
            if status:
                self.walked(*place, status, byte)

    def walked(self, position: int, offset: int, status: int, byte: int) -> None:
        """Report the findings of a walk over the records of a batch."""
        evidence = f"byte {byte} of its records: {tables.RECORD_FINDINGS[status]}"
        self._add_contradiction(position, offset, evidence)

    def _add_contradiction(self, position: int, offset: int, evidence: str) -> None:
        text = f"its records contradict its header or each other: {evidence}"
        self._add(FindingKind.RECORDS, position, offset, text)

    def _add(self, kind: FindingKind, position: int, offset: int, evidence: str) -> None:
        self._findings.add(kind, self._path, evidence, position=position, offset=offset)
