"""Batches that cannot be decoded: what is known of them, and what a read does about them.

The option `corruptBatches` chooses: `fail` (the read fails), `skip` (the batch is left out, and a
warning names it) or `permissive` (a row stands for it, in whose column `corruption` the place, the
reason and the bytes are; keys, values and all else of a record are null in it).
"""

import logging
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spindle.columnar.columns import CORRUPTION_COLUMN, LINEAGE_COLUMNS, arrow_schema
from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition

OPTION: Final = "corruptBatches"
MAX_DATA_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of a corrupt batch that its row holds."""
ADVICE: Final = (
    f"The option {OPTION}=skip leaves corrupt batches out, permissive has a row for each, and "
    "dead_letters (in exports) puts them into a table of their own"
)
_logger = logging.getLogger(__name__)


class CorruptBatches(Enum):
    """The ways to treat a corrupt batch."""

    FAIL = "fail"
    SKIP = "skip"
    PERMISSIVE = "permissive"


class Place(NamedTuple):
    """Where a buffer of batches comes from; unknown parts are None, as for bytes of a broker.

    `position` is the byte of the file at which the buffer begins.
    """

    broker: int | None = None
    directory: str | None = None
    segment: str | None = None
    position: int | None = None
    file: str | None = None


class CorruptBatch(CorruptRecords):
    """A batch that cannot be decoded. The fields of its header may be what is corrupt.

    `position` is its byte in the buffer, `finding` the message without this byte.
    """

    def __init__(
        self, source: TopicPartition, position: int, reason: str, header: "CorruptHeader"
    ) -> None:
        super().__init__(
            f"{source}: batch with base offset {header.base_offset} at byte {position}: {reason}. "
            f"{ADVICE}"
        )
        self.source = source
        self.position = position
        self.reason = reason
        self.header = header

    @property
    def finding(self) -> str:
        return f"{self.source}: batch with base offset {self.header.base_offset}: {self.reason}"

    def of_size(self, size_bytes: int) -> "CorruptBatch":
        """Return the same finding for a batch whose header does not contain its size."""
        header = self.header._replace(size_bytes=size_bytes)
        return CorruptBatch(self.source, self.position, self.reason, header)


class CorruptHeader(NamedTuple):
    """The header fields of a corrupt batch, and its first bytes."""

    base_offset: int
    last_offset: int
    size_bytes: int
    data: bytes


class CorruptionLog:
    """Notes the corrupt batches of a range as the option says: warnings, or rows.

    Args:
        source: The partition.
        columns: The columns of the rows.
        mode: SKIP or PERMISSIVE.
    """

    def __init__(
        self, source: TopicPartition, columns: Sequence[str], mode: CorruptBatches
    ) -> None:
        self._source = source
        self._columns = tuple(columns)
        self._mode = mode

    def note(self, error: CorruptBatch, place: Place, next_offset: int) -> Iterator[pa.RecordBatch]:
        """Warn of a batch, or yield the row that stands for it.

        Args:
            next_offset: The first offset of which records may be missing.
        """
        at = None if place.position is None else place.position + error.position
        if self._mode is CorruptBatches.SKIP:
            where = "sent by a broker" if place.file is None else f"{place.file} at byte {at}"
            _logger.warning(
                "%s: left out a corrupt batch with base offset %d (%s): %s",
                self._source, error.header.base_offset, where, error.reason,
            )  # fmt: skip
            return
        known = {
            "topic": self._source.topic,
            "partition": self._source.partition,
            "offset": next_offset,
            **dict(zip(LINEAGE_COLUMNS, (*place[:3], at, None), strict=True)),
            CORRUPTION_COLUMN: _described(error, place, at),
        }
        schema = arrow_schema(self._columns)
        row = {name: [known.get(name)] for name in self._columns}
        yield pa.RecordBatch.from_pydict(row, schema=schema)


def corruption_log(
    mode: CorruptBatches, source: TopicPartition, columns: Sequence[str]
) -> CorruptionLog | None:
    """Return the notes of the corrupt batches of a range, None if such a batch is an error."""
    return None if mode is CorruptBatches.FAIL else CorruptionLog(source, columns, mode)


def _described(error: CorruptBatch, place: Place, at: int | None) -> dict[str, Any]:
    header = error.header
    return {
        "file": place.file,
        "position": at,
        "sizeBytes": header.size_bytes,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "reason": error.reason,
        "data": header.data[:MAX_DATA_BYTES],
    }
