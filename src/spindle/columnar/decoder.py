"""The decoder of all sources: it makes Arrow RecordBatches of whole record batches.

It walks the batch headers, checks CRCs, decompresses batches, leaves out control batches and
aborted transactions, and passes chunks of about one MiB to the kernel. Chunks of one to two MiB
stay in the processor's cache, and Spark reads Arrow batches of this size fastest.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spindle.client.isolation import AbortedTransactions
from spindle.columnar.columns import ALL_COLUMNS, KAFKA_COLUMNS
from spindle.columnar.corruption import (
    MAX_DATA_BYTES,
    CorruptBatch,
    CorruptHeader,
    CorruptionLog,
    Place,
)
from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.compression import decompress
from spindle.protocol.records.record import decode_records

DEFAULT_CHUNK_BYTES: Final = 1024 * 1024
MAX_OFFSET: Final = 2**63 - 1
_MIN_RECORD_BYTES: Final = 7
_MAX_CHUNK_BATCHES: Final = 16384
_SLICE_ABOVE_CHUNKS: Final = 4


class RowFilter(NamedTuple):
    """The rows to return: offsets [start, end) and timestamps in ms, both ends inclusive."""

    start_offset: int = 0
    end_offset: int = MAX_OFFSET
    min_timestamp_ms: int = -(2**63)
    max_timestamp_ms: int = 2**63 - 1


class BatchDecoder:
    """Decodes the batches of one partition, in offset order.

    When an iterator of `decode` is exhausted, `consumed_bytes` is the size of the whole batches in
    that buffer, `next_offset` the offset after them, and `is_finished` is True if the end offset
    was reached.

    Args:
        source: The partition, for the columns and for error messages.
        columns: Names out of `ALL_COLUMNS`, in the order wanted.
        row_filter: Rows to return.
        aborted: Transactions to leave out (read_committed); None returns all (read_uncommitted).
        chunk_bytes: Size of record bytes to aim at for a RecordBatch.
        check_crcs: Verify the checksum of every batch that is decoded.
        corruption: Notes batches that cannot be decoded, and the others are returned. None: such a
            batch is an error.
    """

    def __init__(
        self,
        source: TopicPartition,
        columns: Sequence[str] = KAFKA_COLUMNS,
        row_filter: RowFilter = RowFilter(),  # noqa: B008  (immutable)
        *,
        aborted: AbortedTransactions | None = None,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        check_crcs: bool = True,
        corruption: CorruptionLog | None = None,
    ) -> None:
        # Import numba only in processes that decode.
        import numpy as np

        from spindle.columnar import chunk, tables

        self._source = source
        self._aborted = aborted
        self._chunk_bytes = chunk_bytes
        self._check_crcs = check_crcs
        self._limits = np.array(row_filter, np.int64)
        self._table = np.empty((_MAX_CHUNK_BATCHES, tables.TABLE_WIDTH), np.int64)
        constants = {"topic": source.topic, "partition": source.partition}
        self._chunks = chunk.ChunkDecoder(columns, self._limits, constants)
        self._corruption = corruption
        self._place = Place()
        self._offsets = (0, MAX_OFFSET)
        self._is_segment = False
        self.has_damage = False
        self.next_offset = row_filter.start_offset
        self.consumed_bytes = 0
        self.is_finished = row_filter.start_offset >= row_filter.end_offset

    def begin_segment(self, base_offset: int, max_offset: int) -> None:
        """Expect offsets from `base_offset` to `max_offset`; others are damage.

        The checksum of a batch does not cover its base offset. A wrong one could end the range too
        early, or put records at offsets that others have.
        """
        self._offsets = (base_offset, max_offset)
        self._is_segment = True

    def decode(
        self,
        buffer: Bytes,
        size_bytes: int | None = None,
        place: Place = Place(),  # noqa: B008
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the whole batches in `buffer[:size_bytes]`, without a torn last batch.

        The buffer may be reused when the iterator is exhausted: rows are copies.

        Args:
            place: Where the buffer comes from, for lineage and corrupt batches.

        Raises:
            CorruptBatch: a checksum is wrong or a batch does not parse; names topic, partition and
                offset. The rows of batches before it have been returned, unless it is one whose
                records do not parse. With `corruption`, only for a batch after which the next one
                cannot be found; `consumed_bytes` is its position then.
        """
        from spindle.columnar import tables
        from spindle.columnar.tables import address_of

        view = memoryview(buffer)
        limit = len(view) if size_bytes is None else size_bytes
        address = address_of(view) if limit else 0
        position = 0
        self.consumed_bytes = 0
        self._place = place
        self._chunks.begin(place)
        while not self.is_finished:
            scanned = self._scan(address, position, limit)
            table = self._table[: scanned[tables.SCAN_BATCHES]]
            for rows in self._chunk_rows(view, table):
                yield from _slices(rows, self._chunk_bytes)
            before, position = position, int(scanned[tables.SCAN_POSITION])
            self.is_finished = bool(scanned[tables.SCAN_FINISHED])
            if position > before:
                self.next_offset = int(scanned[tables.SCAN_NEXT_OFFSET])
            self.consumed_bytes = position
            if scanned[tables.SCAN_STATUS]:
                error = self._corrupt(view, position, scanned)
                size = error.header.size_bytes
                if self._corruption is None or not _is_boundary(view, position + size, limit):
                    raise error
                yield from self.noted(error)
                position += size
                self.consumed_bytes = position
            elif position == before:
                break

    def noted(self, error: CorruptBatch) -> Iterator[pa.RecordBatch]:
        """Note a corrupt batch that is passed over, and yield what the option wants of it."""
        assert self._corruption is not None
        yield from self._corruption.note(error, self._place, self.next_offset)
        self.has_damage = True
        header = error.header
        min_offset, max_offset = max(self.next_offset, self._offsets[0]), self._offsets[1]
        end = min(max_offset + 1, int(self._limits[1]))
        if min_offset <= header.base_offset <= header.last_offset < end:
            self.next_offset = header.last_offset + 1
            self.is_finished = self.next_offset >= self._limits[1]

    def _scan(self, address: int, position: int, limit: int) -> Any:
        import numpy as np

        from spindle.columnar import scan, tables

        result = np.zeros(tables.SCAN_WIDTH, np.int64)
        result[tables.SCAN_MIN_OFFSET], result[tables.SCAN_MAX_OFFSET] = self._offsets
        scan.scan_batches(
            address,
            position,
            limit,
            self._limits,
            self._chunk_bytes,
            int(self._aborted is not None),
            int(self._check_crcs),
            self._table,
            result,
        )
        if self._is_segment:
            self._offsets = (int(result[tables.SCAN_MIN_OFFSET]), self._offsets[1])
        return result

    def _chunk_rows(self, view: memoryview, table: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of scanned batches, decompressed and without aborted transactions."""
        from spindle.columnar.tables import ATTRIBUTES, LENGTH, POSITION

        special = CODEC_MASK
        if self._aborted is not None:
            special |= TRANSACTIONAL_FLAG | CONTROL_FLAG
        if not len(table):
            return
        if not (table[:, ATTRIBUTES] & special).any():
            yield from self._decoded(view, table)
            return
        rows: list[int] = []
        unpacked: list[Bytes] = []
        unpacked_bytes = 0
        for index, (position, attributes) in enumerate(table[:, [POSITION, ATTRIBUTES]].tolist()):
            try:
                is_data = self._passes(view, position, attributes)
                if is_data and attributes & CODEC_MASK:
                    unpacked.append(self._unpack(view, position, table[index]))
            except CorruptRecords as error:
                yield from self._failed(self._located(view, position, str(error)))
                continue
            if is_data:
                rows.append(index)
                unpacked_bytes += int(table[index, LENGTH])
            if unpacked_bytes >= self._chunk_bytes:
                yield from self._decoded(view, table[rows])
                rows, unpacked, unpacked_bytes = [], [], 0
        if rows:
            yield from self._decoded(view, table[rows])

    def _decoded(self, view: memoryview, table: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches; decode batch by batch if one of them is corrupt."""
        from spindle.columnar.chunk import UndecodableChunk
        from spindle.columnar.tables import POSITION

        try:
            result = self._chunks.decode(view, table)
        except UndecodableChunk as error:
            if self._corruption is not None and len(table) > 1:
                for index in range(len(table)):
                    yield from self._decoded(view, table[index : index + 1])
                return
            position = int(table[error.row, POSITION])
            yield from self._failed(self._located(view, position, error.finding))
            return
        if result is not None:
            yield result

    def _failed(self, error: CorruptBatch) -> Iterator[pa.RecordBatch]:
        """Raise the error, or note it if batches are passed over."""
        if self._corruption is None:
            raise error
        yield from self._corruption.note(error, self._place, error.header.base_offset)

    def _passes(self, view: memoryview, position: int, attributes: int) -> bool:
        """Return True for a data batch outside aborted transactions; note transaction markers."""
        if self._aborted is None:
            return True
        header = read_header(view, position)
        if attributes & CONTROL_FLAG:
            self._aborted.end_of_transaction(header, decode_records(view, position, header))
            return False
        return not self._aborted.covers(header)

    def _unpack(self, view: memoryview, position: int, row: Any) -> Bytes:
        """Return the decompressed records of a batch, and point its row of the table to them."""
        from spindle.columnar.tables import ADDRESS, ATTRIBUTES, COUNT, LENGTH, address_of

        payload = view[position + HEADER_BYTES : position + HEADER_BYTES + int(row[LENGTH])]
        records = decompress(int(row[ATTRIBUTES]) & CODEC_MASK, payload)
        if row[COUNT] > len(records) // _MIN_RECORD_BYTES:
            raise CorruptRecords(f"{row[COUNT]} records in {len(records)} bytes")
        row[ADDRESS], row[LENGTH] = address_of(records), len(records)
        return records

    def _corrupt(self, view: memoryview, position: int, scanned: Any) -> CorruptBatch:
        from spindle.columnar import tables

        status = int(scanned[tables.SCAN_STATUS])
        finding = tables.SCAN_FINDINGS[status]
        if status == tables.WRONG_CRC:
            stored = read_header(view, position).crc
            finding += f": stored {stored}, computed {scanned[tables.SCAN_COMPUTED_CRC]}"
        return self._located(view, position, finding)

    def torn(self, buffer: Bytes, finding: str) -> CorruptBatch:
        """Return the error of a batch at the front of a buffer, whose end is missing."""
        return self._located(memoryview(buffer), 0, finding)

    def _located(self, view: memoryview, position: int, finding: str) -> CorruptBatch:
        header = BatchHeader._make(HEADER.unpack_from(view, position))
        end = max(position + HEADER_BYTES, min(len(view), position + header.size_bytes))
        data = bytes(view[position : min(end, position + MAX_DATA_BYTES)])
        known = CorruptHeader(header.base_offset, header.last_offset, header.size_bytes, data)
        return CorruptBatch(self._source, position, finding, known)


def _is_boundary(view: memoryview, position: int, limit: int) -> bool:
    """Return True if a batch may begin at `position`, as far as the buffer shows."""
    if position <= 0 or position > limit:
        return False
    if limit - position < HEADER_BYTES:
        return True
    header = BatchHeader._make(HEADER.unpack_from(view, position))
    return header.magic == MAGIC and header.size_bytes >= HEADER_BYTES


def compile_kernel() -> None:
    """Decode one record, which compiles the kernel or loads it from numba's cache on disk."""
    record = SimpleRecord(b"key", b"value", 0, [("header", b"value")])
    decoder = BatchDecoder(TopicPartition("warm-up", 0), ALL_COLUMNS)
    for _ in decoder.decode(build_batch([record])):
        pass


def batch_size(view: memoryview, position: int) -> int:
    """Return the size in bytes of the batch at `position`, by its length field."""
    length = int.from_bytes(view[position + LENGTH_POSITION : position + LOG_OVERHEAD_BYTES], "big")
    return length + LOG_OVERHEAD_BYTES


def _slices(rows: pa.RecordBatch, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield `rows` in slices if one large batch made them much larger than a chunk."""
    pieces = rows.nbytes // chunk_bytes
    if pieces < _SLICE_ABOVE_CHUNKS:
        yield rows
        return
    step = max(1, -(-rows.num_rows // pieces))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
