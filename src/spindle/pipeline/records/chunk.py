"""Call the kernel once: make a RecordBatch of the batches in a batch table."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.pipeline.records import kernel, scan
from spindle.pipeline.records.arrow import ColumnBuffers, HeaderScratch, Repeated
from spindle.protocol.records.batch import TIMESTAMP_TYPE_FLAG

_MAX_BYTES: Final = 2**31 - 1
"""Arrow's offsets of binary columns have 32 bits."""


class ChunkDecoder:
    """Decodes chunks of one partition into the wanted columns."""

    def __init__(self, source: TopicPartition, columns: Sequence[str], limits: Any) -> None:
        self._source = source
        self._columns = tuple(columns)
        self._limits = limits
        self._scratch = HeaderScratch()
        self._topic = Repeated(source.topic, pa.string())
        self._partition = Repeated(source.partition, pa.int32())

    def decode(self, table: Any) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of the batches of `table`; nothing if there are none.

        Raises:
            CorruptRecords: a batch does not parse, or unpacks to 2 GiB or more.
        """
        size_bytes = int(table[:, scan.LENGTH].sum())
        if size_bytes > _MAX_BYTES:
            raise CorruptRecords(
                f"{self._source}: the batches at offset {table[0, scan.BASE_OFFSET]} unpack to "
                f"{size_bytes} bytes, above the limit of {_MAX_BYTES}"
            )
        max_rows = int(table[:, scan.COUNT].sum())
        buffers = ColumnBuffers(self._columns, max_rows, size_bytes, self._scratch)
        result = buffers.fill(table, self._limits)
        if result[kernel.STATUS]:
            raise self._corrupt(table, result)
        if result[kernel.ROW_COUNT]:
            flags = table[:, scan.ATTRIBUTES] & TIMESTAMP_TYPE_FLAG != 0
            types = np.repeat(flags.astype(np.int32), table[:, scan.ROWS])
            yield buffers.record_batch(result, self._topic, self._partition, types)

    def _corrupt(self, table: Any, result: Any) -> CorruptRecords:
        offset = table[int(result[kernel.FAILED_BATCH]), scan.BASE_OFFSET]
        return CorruptRecords(
            f"{self._source}: batch with base offset {offset}, byte "
            f"{result[kernel.FAILED_POSITION]} of its records: "
            f"{kernel.FINDINGS[int(result[kernel.STATUS])]}"
        )
