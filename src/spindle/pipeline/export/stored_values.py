"""Values that a table cannot store although they could be decoded: why, row by row.

Such a record is a bad record. The reasons are those of the partition columns, whose values become
names of directories, and those of Iceberg's statistics, which pyiceberg reads as Python's dates.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spindle.pipeline.schemas.decoding import merged_errors, shown

NULL_NAME: Final = "__HIVE_DEFAULT_PARTITION__"
"""The text that stands for null in the name of a directory."""

_MAX_NAME_BYTES: Final = 255
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
_LIMIT: Final = "the years 1 to 9999"
"""The years of Python's dates, as days after 1970-01-01."""
_DAY_US: Final = 86_400_000_000

Rows = Any
Reasons = Any
ReasonOf = Callable[[Any], str | None]


def partition_faults(rows: Rows, columns: Iterable[str], name_of: Callable[[str], str]) -> Reasons:
    """Return why rows cannot be stored below directories that have the values of these columns.

    Args:
        name_of: Returns a text as part of the name of a directory.

    Returns:
        A text for each row that cannot be, null for others; None if all rows can be stored.
    """
    reasons = None
    for column in columns:
        kind = rows.schema.field(column).type
        if pa.types.is_string(kind):
            reasons = merged_errors(reasons, _text_faults(rows, column, name_of))
        elif kind == pa.date32():
            reasons = merged_errors(
                reasons, _year_faults(rows, column, f"partitioned by {column}: {{}}; want {{}}")
            )
    return reasons


def time_faults(rows: Rows, columns: Iterable[str]) -> Reasons:
    """Return why times in these columns cannot have statistics in an Iceberg table.

    Columns of other types have no faults. The result is as that of `partition_faults`.
    """
    reasons = None
    for column in columns:
        kind = rows.schema.field(column).type
        if pa.types.is_timestamp(kind) or kind == pa.date32():
            reasons = merged_errors(
                reasons, _year_faults(rows, column, f"{column}: {{}}; an Iceberg table has {{}}")
            )
    return reasons


def _text_faults(rows: Rows, column: str, name_of: Callable[[str], str]) -> Reasons:
    def reason_of(text: str) -> str | None:
        if text == "":
            return f"partitioned by {column}: the text is empty, which readers take for null"
        if text == NULL_NAME:
            return f"partitioned by {column}: the text is {NULL_NAME}, which readers take for null"
        name = f"{name_of(column)}={name_of(text)}"
        size_bytes = len(name.encode())
        if size_bytes <= _MAX_NAME_BYTES:
            return None
        return (
            f"partitioned by {column}: the text {shown(repr(text))} makes a directory name of "
            f"{size_bytes} bytes; the limit is {_MAX_NAME_BYTES}"
        )

    return _reasons(rows.column(column), rows.column(column).unique(), reason_of)


def _year_faults(rows: Rows, column: str, sentence: str) -> Reasons:
    """`sentence` gets the year and the limit."""
    values = rows.column(column)
    is_date = values.type == pa.date32()
    numbers = values.cast(pa.int32() if is_date else pa.int64())
    first, last = (
        (_FIRST_DAY, _LAST_DAY)
        if is_date
        else (_FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)
    )
    least_and_greatest = pc.min_max(numbers).as_py()
    least, greatest = least_and_greatest["min"], least_and_greatest["max"]
    if least is None or (first <= least and greatest <= last):
        return None

    def reason_of(number: int) -> str | None:
        if first <= number <= last:
            return None
        # Arrow's own years have 16 bits.
        year = np.datetime64(number, "D" if is_date else "us").astype("datetime64[Y]").astype(int)
        return sentence.format(f"the year {1970 + year}", _LIMIT)

    return _reasons(numbers, numbers.unique(), reason_of)


def _reasons(values: Any, distinct: Any, reason_of: ReasonOf) -> Reasons:
    reasons = [None if value is None else reason_of(value) for value in distinct.to_pylist()]
    if not any(reasons):
        return None
    return pa.array(reasons, pa.string()).take(pc.index_in(values, distinct))
