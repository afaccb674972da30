"""Proves that a copy has every record of the input: counts, and checksums that ignore order.

Each record gets a CRC-32 over key, value and timestamp; the sum over all records does not depend
on their order or partition. The same sum comes from plain Python on the input and from Spark SQL
on a copy, so that no code is shared between what is checked and what checks it.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spindle.pipeline.demo.flights import FlightRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SEPARATOR: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What is equal for two sets of records if, and practically only if, the sets are."""

    records: int = 0
    keyed_records: int = 0
    value_bytes: int = 0
    checksum: int = 0

    @property
    def checksum_text(self) -> str:
        """The checksum as it is shown."""
        return f"{self.checksum:016x}"


def record_checksum(record: FlightRecord) -> int:
    """The CRC-32 of one record."""
    parts = (record.key or b"", record.value, str(record.timestamp_ms).encode())
    return zlib.crc32(_SEPARATOR.join(parts))


class InputFingerprint:
    """Adds up the fingerprint of the input while it is sent."""

    def __init__(self) -> None:
        self._records = self._keyed = self._value_bytes = self._checksum = 0

    def add(self, record: FlightRecord) -> None:
        """Count one record."""
        self._records += 1
        self._keyed += record.key is not None
        self._value_bytes += len(record.value)
        self._checksum += record_checksum(record)

    def result(self) -> Fingerprint:
        """The fingerprint of what was added."""
        return Fingerprint(self._records, self._keyed, self._value_bytes, self._checksum)


def fingerprint_of_records(records: Iterable[FlightRecord]) -> Fingerprint:
    """The fingerprint of records in hand."""
    total = InputFingerprint()
    for record in records:
        total.add(record)
    return total.result()


def fingerprint_of_rows(rows: "DataFrame") -> Fingerprint:
    """The fingerprint of rows with the schema of Spark's `kafka` source, computed by Spark SQL."""
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
