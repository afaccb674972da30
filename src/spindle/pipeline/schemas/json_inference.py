"""The schema of JSON values, from a sample of them."""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from spindle.pipeline.schemas.decoding import BadValue
from spindle.pipeline.schemas.json_rows import Number, parse_json
from spindle.pipeline.schemas.widening import merged_types, widened

_INT64_END: Final = 1 << 63
_LONGEST_INTEGER: Final = 20


def inferred_type(values: Iterable[bytes | None]) -> Any:
    """Return the struct type in which every field of the sampled objects has a place.

    Whole numbers are `int64` and fractions `float64`. Numbers that do not fit, fields whose types
    contradict each other, and fields of which only nulls and empty objects or arrays were seen are
    text. Values that are no JSON objects, and objects with a name that is no UTF-8, count as bad
    and do not matter.

    Raises:
        ValueError: no object with a field is among the values.
    """
    found = pa.null()
    for value in values:
        if value is None:
            continue
        try:
            parsed = parse_json(value)
            if isinstance(parsed, dict):
                found = widened(found, _type_of(parsed))
        except (BadValue, RecursionError, UnicodeEncodeError):
            continue
    kind = _settled(found)
    if not pa.types.is_struct(kind):
        raise ValueError(
            "no schema can be inferred: none of the sampled values is a JSON object with a field"
        )
    return kind


def _type_of(value: Any) -> Any:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, Number):
        return _number_type(value)
    if isinstance(value, dict):
        return pa.struct([(name, _type_of(each)) for name, each in value.items()])
    if isinstance(value, list):
        return pa.list_(merged_types(map(_type_of, value)))
    return pa.string()


def _number_type(text: str) -> Any:
    if not text.lstrip("-").isdigit():
        return pa.float64()
    fits = len(text) <= _LONGEST_INTEGER and -_INT64_END <= int(text) < _INT64_END
    return pa.int64() if fits else pa.string()


def _settled(kind: Any) -> Any:
    """Return the type with text in place of what is not known, because only nulls were seen."""
    if pa.types.is_struct(kind):
        fields = [(field.name, _settled(field.type)) for field in kind]
        return pa.struct(fields) if fields else pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pa.types.is_null(kind) else kind
