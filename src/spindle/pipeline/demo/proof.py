"""Prove that a copy has every record of the input, by counts and checksums that ignore order.

Each record has a CRC-32 over key, value and timestamp; the sum over all records does not depend on
their order or partition. Plain Python computes it over the input and Spark SQL over a copy, so the
check shares no code with the sources that it checks.
"""

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spindle.pipeline.demo.flights import FlightRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SEPARATOR: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Count, bytes and checksum of a set of records; two sets that differ have different ones."""

    records: int = 0
    keyed_records: int = 0
    value_bytes: int = 0
    checksum: int = 0

    @property
    def checksum_text(self) -> str:
        """The checksum in the form in which the demo shows it."""
        return f"{self.checksum:016x}"


def record_checksum(record: FlightRecord) -> int:
    """Return the CRC-32 of one record."""
    parts = (record.key or b"", record.value, str(record.timestamp_ms).encode())
    return zlib.crc32(_SEPARATOR.join(parts))


class InputFingerprint:
    """Adds up the fingerprint of the input while the records are sent."""

    def __init__(self) -> None:
        self._records = self._keyed = self._value_bytes = self._checksum = 0

    def add(self, record: FlightRecord) -> None:
        """Count one record."""
        self._records += 1
        self._keyed += record.key is not None
        self._value_bytes += len(record.value)
        self._checksum += record_checksum(record)

    def result(self) -> Fingerprint:
        """Return the fingerprint of the records that were added."""
        return Fingerprint(self._records, self._keyed, self._value_bytes, self._checksum)


def fingerprint_of_rows(rows: "DataFrame") -> Fingerprint:
    """Return the fingerprint of rows with the schema of the `kafka` source, by Spark SQL."""
    parts = (
        "coalesce(key, X''), X'00', value, X'00', "
        "cast(cast(unix_millis(timestamp) as string) as binary)"
    )
    row = rows.selectExpr(
        "count(*) as records",
        "count(key) as keyed_records",
        "coalesce(sum(octet_length(value)), 0) as value_bytes",
        f"coalesce(sum(crc32(concat({parts}))), 0) as checksum",
    ).first()
    assert row is not None
    return Fingerprint(row["records"], row["keyed_records"], row["value_bytes"], row["checksum"])
