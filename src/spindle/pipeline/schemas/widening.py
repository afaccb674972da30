"""How schemas grow: new fields, wider types, and types that contradict each other."""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())


def widened(first: Any, second: Any) -> Any:
    """Return the narrowest type that holds the values of two types.

    Structs get the fields of both. A whole number and a fraction give a double. Types that
    contradict each other give text, in which any JSON value can be stored.
    """
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if first in _INTEGERS and second in _INTEGERS:
        return max(first, second, key=lambda kind: kind.bit_width)
    if {first, second} <= {*_INTEGERS, *_FLOATS}:
        return pa.float64()
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return merged_structs(first, second)
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(widened(first.value_type, second.value_type))
    return pa.string()


def merged_structs(first: Any, second: Any) -> Any:
    """Return the struct with the fields of both, those of `first` in front."""
    fields = {field.name: field.type for field in first}
    for field in second:
        known = fields.get(field.name)
        fields[field.name] = field.type if known is None else widened(known, field.type)
    return pa.struct(list(fields.items()))


def with_new_fields(held: Any, found: Any) -> Any:
    """Return the struct `held` and the fields that only `found` has (by names in lower case).

    The types of fields that are held stay as they are.
    """
    names = {field.name.lower() for field in held}
    return pa.struct([*held, *(field for field in found if field.name.lower() not in names)])


def merged_types(kinds: Iterable[Any]) -> Any:
    """Return the type that holds the values of all types; null for none."""
    merged = pa.null()
    for kind in kinds:
        merged = widened(merged, kind)
    return merged
