"""Tables that are partitioned by the values of columns: the columns, and the directory of a row.

`date` and `hour` are made from the timestamp of the record (UTC). Directories are named as Hive and
Spark name them: `date=2026-11-23/hour=13`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spindle.columnar.columns import listed_names
from spindle.pipeline.export.stored_values import NULL_NAME, partition_faults

_DERIVED: Final = {"date": pa.date32(), "hour": pa.int32()}
_SOURCE: Final = "timestamp"
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")

Values = tuple[tuple[str, str | None], ...]
"""The name and the text of the value of every partition column; None is null."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The columns by which a table is partitioned, in the order of the directories."""

    columns: tuple[str, ...] = ()

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of the table: those of the rows and those that are made from them.

        Raises:
            ValueError: a column that is missing, or of a type that makes no directory name.
        """
        for name in self.columns:
            if name in _DERIVED and name not in rows.names:
                if _SOURCE not in rows.names:
                    raise ValueError(f"partitioned by {name}: the table has no column {_SOURCE}")
                source = rows.field(_SOURCE).type
                if not pa.types.is_timestamp(source):
                    raise ValueError(
                        f"partitioned by {name}: the type of {_SOURCE} is {source}; want the "
                        "timestamp of the record, or a field of type TIMESTAMP"
                    )
                rows = rows.append(pa.field(name, _DERIVED[name]))
            elif name not in rows.names:
                raise ValueError(
                    f"partitioned by {name!r}: want date, hour or some of {', '.join(rows.names)}"
                )
            kind = rows.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or kind == pa.date32()):
                raise ValueError(
                    f"partitioned by {name}: its type is {kind}; want text, integers or dates"
                )
        if set(self.columns) >= set(rows.names):
            raise ValueError("a table needs a column by which it is not partitioned")
        return rows

    def derived_columns(self, columns: pa.Schema) -> tuple[str, ...]:
        """Return the columns of a table that are made from the timestamp."""
        return tuple(
            name
            for name in self.columns
            if name in _DERIVED
            and name in columns.names
            and columns.field(name).type == _DERIVED[name]
        )

    def extended(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns that are made from them."""
        for name in self.columns:
            if name not in batch.schema.names:
                times = batch.column(_SOURCE).cast(pa.timestamp("us"))
                column = times.cast(pa.date32()) if name == "date" else pc.hour(times)
                batch = batch.append_column(
                    pa.field(name, _DERIVED[name]), column.cast(_DERIVED[name])
                )
        return batch

    def faults(self, batch: pa.RecordBatch) -> Any | None:
        """Return why rows cannot be stored by the values of their partition columns.

        Args:
            batch: Rows with all columns; see `extended`.

        Returns:
            A text for each row that cannot be stored, null for others; None if all can.
        """
        return partition_faults(batch, self.columns, _escaped)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """Yield the rows by the values of the partition columns, in their order.

        The rows have no `faults`.
        """
        if not self.columns or batch.num_rows == 0:
            yield (), batch
            return
        keys = pa.Table.from_batches([batch]).select(list(self.columns))
        distinct = keys.group_by(list(self.columns), use_threads=False).aggregate([]).to_pylist()
        for row in distinct:
            chosen: Any = None
            for name, value in row.items():
                column = batch.column(name)
                same = pc.is_null(column) if value is None else pc.equal(column, value)
                chosen = same if chosen is None else pc.and_(chosen, same)
            rows = batch if len(distinct) == 1 else batch.filter(chosen)
            yield tuple((name, _text(value)) for name, value in row.items()), rows


UNPARTITIONED: Final = Partitioning()


def parse_partition_by(text: str | None) -> Partitioning:
    """Return the partitioning of a list of columns; `hour` means `date,hour`.

    The list has commas, and a name with a comma stands in backticks.

    Raises:
        ValueError: a column is named twice.
    """
    columns: list[str] = []
    for name in [] if text is None else listed_names(text):
        if name == "hour" and "date" not in columns:
            columns.append("date")
        if name in columns or not name:
            raise ValueError(f"partitioned by {text!r}: want different columns")
        columns.append(name)
    return Partitioning(tuple(columns))


def directory_of(values: Values) -> str:
    """Return the directory of rows with these values, and a slash; empty if there are none."""
    return "".join(
        f"{_escaped(name)}={NULL_NAME if text is None else _escaped(text)}/"
        for name, text in values
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)
