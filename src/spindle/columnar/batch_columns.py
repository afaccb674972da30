"""The row of `spindle-batches`: one record batch, as its header describes it.

`recordCount` is the number of records in the batch: compaction counts the records that it keeps, so
it is exact on compacted topics, too. `rowCount` is the number of rows that a read of records with
the same options returns from the batch: none of a control batch or an aborted transaction, and only
those within the wanted offsets and times. So the sum of `rowCount` is the count of that read.

Fields that a batch does not have are null: producer, epoch and sequence of a producer without
idempotence, timestamps that no record has, and the place in a file when brokers sent the batch.
"""

from typing import Final

import pyarrow as pa

from spindle.columnar.columns import ColumnTypes

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

BATCH_TYPES: Final[ColumnTypes] = {
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "broker": (pa.int32(), "int"),
    "directory": (pa.string(), "string"),
    "segment": (pa.string(), "string"),
    "position": (pa.int64(), "bigint"),
    "sizeBytes": (pa.int32(), "int"),
    "baseOffset": (pa.int64(), "bigint"),
    "lastOffset": (pa.int64(), "bigint"),
    "recordCount": (pa.int32(), "int"),
    "rowCount": (pa.int32(), "int"),
    "codec": (pa.string(), "string"),
    "attributes": (pa.int32(), "int"),
    "isTransactional": (pa.bool_(), "boolean"),
    "isControl": (pa.bool_(), "boolean"),
    "timestampType": (pa.int32(), "int"),
    "leaderEpoch": (pa.int32(), "int"),
    "producerId": (pa.int64(), "bigint"),
    "producerEpoch": (pa.int32(), "int"),
    "baseSequence": (pa.int32(), "int"),
    "baseTimestamp": (_TIMESTAMP, "timestamp"),
    "maxTimestamp": (_TIMESTAMP, "timestamp"),
    "crc": (pa.int64(), "bigint"),
    "crcOk": (pa.bool_(), "boolean"),
}
"""`crcOk` is null unless checksums are checked."""

BATCH_COLUMNS: Final = tuple(BATCH_TYPES)
ROW_COUNT_COLUMN: Final = "rowCount"
