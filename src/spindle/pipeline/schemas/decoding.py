"""The port of all decoders: the bytes of keys or values in, one struct column out.

A bad value never fails its batch. Its row is null and has a reason; the caller decides about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

_SHOWN_CHARACTERS: Final = 60
_ROW_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


class BadValue(Exception):
    """A value that does not fit its schema: the path to it, and the reason that users read."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self._reason = reason
        self._path = path

    def inside(self, step: str) -> "BadValue":
        """Return the same reason for a value that lies in the field or element `step`."""
        separator = "." if self._path and not self._path.startswith("[") else ""
        return BadValue(self._reason, f"{step}{separator}{self._path}")


def shown(value: object) -> str:
    """Return the text of a value for a reason, cut to a length that people can read."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}..."
    return without_surrogates(text)


def without_surrogates(text: str) -> str:
    """Return a text that a text column takes: halves of surrogate pairs are written as escapes."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a batch: a struct for each value, and the reasons of those that are bad.

    A row without a value (a tombstone) is null and has no reason. `errors` is None if no row of the
    batch is bad; else it holds a reason for each bad row and null for the others.
    """

    columns: Any
    errors: Any | None


class Decoder(Protocol):
    """Turns values into typed columns. Decoders are picklable: tasks get copies of them."""

    @property
    def type(self) -> Any:
        """The struct type of the rows; all of its fields are nullable."""
        ...

    def decode(self, values: Any) -> Decoded:
        """Return a row for each element of a BinaryArray, in their order."""
        ...


def decoded_rows(
    rows: Sequence[dict[str, Any] | None], errors: dict[int, str], kind: Any
) -> Decoded:
    """Return Python rows as a column; a row that Arrow refuses is bad, its neighbours are not.

    Args:
        rows: One element for each value; those with an error must be None.
        errors: Reasons of bad rows by index.
        kind: The struct type.
    """
    reasons = dict(errors)
    columns = _column(rows, 0, reasons, kind)
    return Decoded(columns, error_column(reasons, len(rows)))


def _column(
    rows: Sequence[dict[str, Any] | None], first: int, reasons: dict[int, str], kind: Any
) -> Any:
    try:
        return pa.array(rows, kind)
    except _ROW_ERRORS as error:
        if len(rows) == 1:
            reasons[first] = f"the value does not fit its column: {shown(str(error))}"
            return pa.nulls(1, kind)
    middle = len(rows) // 2
    halves = (rows[:middle], first), (rows[middle:], first + middle)
    return pa.concat_arrays([_column(half, start, reasons, kind) for half, start in halves])


def error_column(reasons: dict[int, str], rows: int) -> Any | None:
    """Return the reasons, by row index, as a string column; None if there are none."""
    if not reasons:
        return None
    return pa.array([reasons.get(row) for row in range(rows)], pa.string())


def joined(parts: Sequence[Decoded]) -> Decoded:
    """Return the rows of several batches of one type as one."""
    if len(parts) == 1:
        return parts[0]
    errors = None
    if any(part.errors is not None for part in parts):
        errors = pa.concat_arrays(
            [
                pa.nulls(len(part.columns), pa.string()) if part.errors is None else part.errors
                for part in parts
            ]
        )
    return Decoded(pa.concat_arrays([part.columns for part in parts]), errors)


def spread(decoded: Decoded, is_present: Any) -> Decoded:
    """Return the rows at the places where `is_present` is true, and null rows at the others."""
    position = pc.subtract(pc.cumulative_sum(is_present.cast(pa.int32())), 1)
    index = pc.if_else(is_present, position, None)
    errors = None if decoded.errors is None else decoded.errors.take(index)
    return Decoded(decoded.columns.take(index), errors)


def merged_errors(first: Any | None, second: Any | None) -> Any | None:
    """Return the reasons of both columns, those of `first` before those of `second`."""
    if first is None or second is None:
        return second if first is None else first
    return pc.coalesce(first, second)
