"""Whole record batches in, Arrow RecordBatches out: the decoder that all sources share.

It walks the batch headers, checks CRCs, unpacks compressed batches, leaves out control batches and
aborted transactions, and gives chunks of about one MiB to the kernel; one to two MiB is both
cache-resident and the size at which Spark takes Arrow batches fastest.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.pipeline.records.columns import ALL_COLUMNS, KAFKA_COLUMNS
from spindle.pipeline.records.transactions import AbortedTransactions
from spindle.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    check_crc,
    read_header,
)
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.compression import decompress
from spindle.protocol.records.record import decode_records

DEFAULT_CHUNK_BYTES: Final = 1024 * 1024
MAX_OFFSET: Final = 2**63 - 1
_MIN_RECORD_BYTES: Final = 7
_MAX_CHUNK_BYTES: Final = 2**31 - 1
_SLICE_ABOVE_CHUNKS: Final = 4


class RowFilter(NamedTuple):
    """Which rows are returned: offsets [start, end) and timestamps in ms, both ends inclusive."""

    start_offset: int = 0
    end_offset: int = MAX_OFFSET
    min_timestamp_ms: int = -(2**63)
    max_timestamp_ms: int = 2**63 - 1


class BatchDecoder:
    """Decodes the batches of one partition, fed in offset order.

    After each `decode` is exhausted, `consumed_bytes` says how much of that buffer was whole
    batches, `next_offset` which offset comes next, and `is_finished` whether the end offset was
    reached.

    Args:
        source: The partition, for the columns and for error messages.
        columns: Names out of `ALL_COLUMNS`, in the order wanted.
        row_filter: Rows to return.
        aborted: Transactions to leave out (read_committed); None returns all (read_uncommitted).
        chunk_bytes: Size of record bytes to aim at for a RecordBatch.
        check_crcs: Verify the checksum of every batch that is decoded.
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
    ) -> None:
        # Only a process that decodes pays for the import of numba.
        from spindle.pipeline.records import arrow

        self._source = source
        self._columns = tuple(columns)
        self._filter = row_filter
        self._aborted = aborted
        self._chunk_bytes = chunk_bytes
        self._check_crcs = check_crcs
        self._topic = arrow.Repeated(source.topic, pa.string())
        self._partition = arrow.Repeated(source.partition, pa.int32())
        self._chunk = _Chunk(self._columns, row_filter)
        self.next_offset = row_filter.start_offset
        self.consumed_bytes = 0
        self.is_finished = row_filter.start_offset >= row_filter.end_offset

    def decode(self, buffer: Bytes, size_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of the whole batches in `buffer[:size_bytes]`, a torn last batch excluded.

        The buffer may be reused when the iterator is exhausted: rows are copies.

        Raises:
            CorruptRecords: a checksum is wrong or a batch does not parse; names topic, partition
                and offset. Rows of the batches before it may not have been returned.
        """
        view = memoryview(buffer)
        limit = len(view) if size_bytes is None else size_bytes
        position = 0
        self.consumed_bytes = 0
        while limit - position >= HEADER_BYTES:
            size = batch_size(view, position)
            if limit - position < size:
                break
            header = read_header(view, position)
            if header.base_offset >= self._filter.end_offset:
                self.is_finished = True
                break
            try:
                self._take(view, position, header)
            except CorruptRecords as error:
                raise self._located(header, error) from error
            position += header.size_bytes
            self.next_offset = header.next_offset
            self.is_finished = header.next_offset >= self._filter.end_offset
            if self._chunk.size_bytes >= self._chunk_bytes:
                yield from self._flush()
        yield from self._flush()
        self.consumed_bytes = position

    def _take(self, view: memoryview, position: int, header: BatchHeader) -> None:
        """Add a batch to the chunk, unless none of its records is wanted."""
        if header.is_control:
            if self._aborted is not None:
                self._verify(view, position, header)
                records = decode_records(view, position, header)
                self._aborted.end_of_transaction(header, records)
            return
        if self._aborted is not None and self._aborted.covers(header):
            return
        if not self._may_hold_rows(header):
            return
        self._verify(view, position, header)
        payload = view[position + HEADER_BYTES : position + header.size_bytes]
        records_bytes = decompress(header.codec, payload) if header.codec else payload
        self._chunk.add(header, records_bytes)

    def _may_hold_rows(self, header: BatchHeader) -> bool:
        wanted = self._filter
        return (
            header.record_count > 0
            and header.last_offset >= wanted.start_offset
            and header.max_timestamp >= wanted.min_timestamp_ms
            and not (header.has_log_append_time and header.max_timestamp > wanted.max_timestamp_ms)
        )

    def _verify(self, view: memoryview, position: int, header: BatchHeader) -> None:
        if self._check_crcs:
            check_crc(view, position, header)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        if self._chunk.is_empty:
            return
        try:
            rows = self._chunk.decode(self._topic, self._partition)
        except CorruptRecords as error:
            raise CorruptRecords(f"{self._source}: {error}") from error
        finally:
            self._chunk = _Chunk(self._columns, self._filter)
        yield from _slices(rows, self._chunk_bytes)

    def _located(self, header: BatchHeader, error: CorruptRecords) -> CorruptRecords:
        return CorruptRecords(f"{self._source} at offset {header.base_offset}: {error}")


class _Chunk:
    """Batches that go to the kernel together. Keeps the unpacked bytes alive until then."""

    def __init__(self, columns: tuple[str, ...], row_filter: RowFilter) -> None:
        self._columns = columns
        self._filter = row_filter
        self._batches: list[tuple[BatchHeader, Bytes]] = []
        self.size_bytes = 0
        self._max_rows = 0

    @property
    def is_empty(self) -> bool:
        return not self._batches

    def add(self, header: BatchHeader, records: Bytes) -> None:
        size_bytes = len(records)
        if header.record_count > size_bytes // _MIN_RECORD_BYTES:
            raise CorruptRecords(f"{header.record_count} records in {size_bytes} bytes")
        if self.size_bytes + size_bytes > _MAX_CHUNK_BYTES:
            raise CorruptRecords(
                f"the batch unpacks to {size_bytes} bytes, above the limit {_MAX_CHUNK_BYTES}"
            )
        self._batches.append((header, records))
        self.size_bytes += size_bytes
        self._max_rows += header.record_count

    def decode(self, topic: Any, partition: Any) -> pa.RecordBatch:
        from spindle.pipeline.records import kernel
        from spindle.pipeline.records.arrow import ColumnBuffers

        table, limits = self._table()
        buffers = ColumnBuffers(self._columns, self._max_rows, self.size_bytes)
        result = buffers.fill(table, limits)
        if result[kernel.STATUS]:
            header, _ = self._batches[int(result[kernel.FAILED_BATCH])]
            raise CorruptRecords(
                f"batch with base offset {header.base_offset}, byte "
                f"{result[kernel.FAILED_POSITION]} of its records: "
                f"{kernel.FINDINGS[int(result[kernel.STATUS])]}"
            )
        return buffers.record_batch(result, topic, partition, self._timestamp_types(table))

    def _table(self) -> tuple[Any, Any]:
        import numpy as np

        from spindle.pipeline.records.kernel import CREATE_TIME, address_of

        rows = [
            (
                address_of(records),
                len(records),
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if header.has_log_append_time else CREATE_TIME,
                header.last_offset_delta,
                header.record_count,
                0,
            )
            for header, records in self._batches
        ]
        return np.array(rows, np.int64), np.array(self._filter, np.int64)

    def _timestamp_types(self, table: Any) -> Any:
        """0 for the record's own time, 1 for the time of the append, for every row."""
        import numpy as np

        from spindle.pipeline.records.kernel import ROWS

        types = np.array([header.has_log_append_time for header, _ in self._batches], np.int32)
        return np.repeat(types, table[:, ROWS])


def compile_kernel() -> None:
    """Decode one record, so that the machine code is in memory and in numba's cache on disk."""
    record = SimpleRecord(b"key", b"value", 0, [("header", b"value")])
    decoder = BatchDecoder(TopicPartition("warm-up", 0), ALL_COLUMNS)
    for _ in decoder.decode(build_batch([record])):
        pass


def batch_size(view: memoryview, position: int) -> int:
    """Size in bytes of the batch at `position`, by its length field alone.

    Raises:
        CorruptRecords: a message set of format 0 or 1, or a length below the minimum.
    """
    if view[position + MAGIC_POSITION] < MAGIC:
        raise CorruptRecords(
            f"message format {view[position + MAGIC_POSITION]} is not supported by the record "
            f"kernel; want {MAGIC}"
        )
    length = int.from_bytes(view[position + LENGTH_POSITION : position + LOG_OVERHEAD_BYTES], "big")
    return length + LOG_OVERHEAD_BYTES


def _slices(rows: pa.RecordBatch, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    """`rows`, cut when one large batch made it much larger than a chunk."""
    if rows.num_rows == 0:
        return
    pieces = rows.nbytes // chunk_bytes
    if pieces < _SLICE_ABOVE_CHUNKS:
        yield rows
        return
    step = max(1, -(-rows.num_rows // pieces))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
