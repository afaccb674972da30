"""Make Arrow rows of batch headers (see `batch_columns`)."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from spindle.columnar import header_table
from spindle.columnar.batch_columns import BATCH_TYPES, ROW_COUNT_COLUMN
from spindle.columnar.columns import arrow_schema
from spindle.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
)

_MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_FIELDS: Final = {
    "position": header_table.POSITION,
    "sizeBytes": header_table.SIZE_BYTES,
    "baseOffset": header_table.BASE_OFFSET,
    "recordCount": header_table.RECORD_COUNT,
    "attributes": header_table.ATTRIBUTES,
    "leaderEpoch": header_table.LEADER_EPOCH,
    "crc": header_table.CRC,
}
_FIELDS_OR_NULL: Final = {
    "producerId": header_table.PRODUCER_ID,
    "producerEpoch": header_table.PRODUCER_EPOCH,
    "baseSequence": header_table.BASE_SEQUENCE,
}
_FLAGS: Final = {"isTransactional": TRANSACTIONAL_FLAG, "isControl": CONTROL_FLAG}


def batch_rows(
    columns: tuple[str, ...],
    fields: Any,
    constants: dict[str, Any],
    row_counts: Any,
    *,
    has_computed_crcs: bool,
) -> pa.RecordBatch:
    """Return the wanted columns of batches.

    Args:
        fields: Header fields, an array (FIELD_COUNT, batches) of `headers`.
        constants: Values of the columns that are the same for all these batches; None for null.
        row_counts: The values of `rowCount`; not used if the column is not wanted.
        has_computed_crcs: The fields have computed checksums.
    """
    arrays = [
        _constant(name, constants[name], fields.shape[1])
        if name in constants
        else pa.array(row_counts, pa.int32())
        if name == ROW_COUNT_COLUMN
        else _column(name, fields, has_computed_crcs)
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns, BATCH_TYPES))


def _column(name: str, fields: Any, has_computed_crcs: bool) -> Any:
    kind = BATCH_TYPES[name][0]
    attributes = fields[header_table.ATTRIBUTES]
    if name in _FIELDS:
        return pa.array(fields[_FIELDS[name]]).cast(kind)
    if name in _FIELDS_OR_NULL:
        values = fields[_FIELDS_OR_NULL[name]]
        return pa.array(values, mask=values < 0).cast(kind)
    if name in _FLAGS:
        return pa.array(attributes & _FLAGS[name] != 0)
    if name == "lastOffset":
        return pa.array(fields[header_table.BASE_OFFSET] + fields[header_table.LAST_DELTA])
    if name == "codec":
        return _codecs(attributes & CODEC_MASK)
    if name == "timestampType":
        return pa.array((attributes & TIMESTAMP_TYPE_FLAG != 0).astype(np.int32))
    if name == "baseTimestamp":
        return _timestamps(
            fields[header_table.BASE_TIMESTAMP], attributes & DELETE_HORIZON_FLAG != 0
        )
    if name == "maxTimestamp":
        return _timestamps(fields[header_table.MAX_TIMESTAMP], np.zeros(len(attributes), bool))
    if not has_computed_crcs:
        return pa.nulls(len(attributes), kind)
    return pa.array(fields[header_table.CRC] == fields[header_table.COMPUTED_CRC])


def _timestamps(values_ms: Any, is_null: Any) -> Any:
    is_null = is_null | (values_ms < 0) | (values_ms > _MAX_TIMESTAMP_MS)
    return pa.array(np.where(is_null, 0, values_ms) * 1000, mask=is_null).cast(
        pa.timestamp("us", tz="UTC")
    )


def _codecs(numbers: Any) -> Any:
    known = pa.array([*_CODECS, *(f"unknown ({number})" for number in range(5, 8))])
    return known.take(pa.array(numbers))


def _constant(name: str, value: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value, BATCH_TYPES[name][0]), count)
