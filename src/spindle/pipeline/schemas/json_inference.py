"""The schema of JSON values, from a sample of them."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import pyarrow as pa

from spindle.pipeline.schemas.decoding import BadValue, shown
from spindle.pipeline.schemas.field_names import name_fault
from spindle.pipeline.schemas.json_rows import Number, parse_json
from spindle.pipeline.schemas.widening import merged_types, widened, with_new_fields

_INT64_END: Final = 1 << 63
_MAX_INTEGER: Final = 20
_MAX_DEPTH: Final = 40
_MAX_FIELDS: Final = 2000


def inferred_type(
    values: Iterable[bytes | None],
    taken: Collection[str] = (),
    held: Any | None = None,
    fault_of: Callable[[Any], str | None] = lambda kind: None,
) -> Any:
    """Return the struct type in which every field of the sampled objects has a place.

    Whole numbers are `int64` and fractions `float64`. Numbers that do not fit, fields whose types
    contradict each other, and fields of which only nulls and empty objects or arrays were seen are
    text. Values that are no JSON objects count as bad and do not matter, nor do objects with a
    field that cannot be a column: one with a taken or an empty name, or a name that is not UTF-8,
    has the character U+0000 or more than 1,000 bytes, or differs from another one in case only; one
    nested deeper than 40; and one with which there would be more than 2,000 fields.

    Args:
        taken: Names in lower case that no field may have.
        held: The struct type of fields that there are already. They come first, with their types.
        fault_of: Returns why a table cannot have the fields of a struct type, None if it can.

    Raises:
        ValueError: no object with a field is among the values, and nothing is held.
    """
    inferred, refusal = pa.null(), None
    kept = pa.struct([]) if held is None else held
    for value in values:
        try:
            parsed = None if value is None else parse_json(value)
            if not isinstance(parsed, dict):
                continue
            grown = widened(inferred, _type_of(parsed))
            if grown != inferred:
                _check_fields(with_new_fields(kept, grown), taken, fault_of)
            inferred = grown
        except BadValue as error:
            refusal = refusal or str(error)
        except RecursionError:
            refusal = refusal or "nested too deep"
    settled = _settled(inferred)
    kind = with_new_fields(kept, settled) if pa.types.is_struct(settled) else kept
    if not kind.num_fields:
        first = f"; the first refusal: {refusal}" if refusal else ""
        raise ValueError(
            "no schema can be inferred: none of the sampled values is a JSON object with fields "
            f"that can be columns{first}"
        )
    return kind


def _check_fields(kind: Any, taken: Collection[str], fault_of: Callable[[Any], str | None]) -> None:
    """Refuse fields that cannot be columns of one table.

    Raises:
        BadValue: as `inferred_type` says.
    """
    for field in kind:
        if field.name.lower() in taken:
            raise BadValue(
                f"the field {shown(field.name)!r} has the name of another column, which the "
                "option columns can leave out"
            )
    if _checked_fields(kind, 1) > _MAX_FIELDS:
        raise BadValue(f"more than {_MAX_FIELDS} fields")
    fault = fault_of(kind)
    if fault is not None:
        raise BadValue(fault)


def _checked_fields(kind: Any, depth: int) -> int:
    """Return the number of fields of a type, those of its inner types included."""
    if depth > _MAX_DEPTH:
        raise BadValue(f"nested more than {_MAX_DEPTH} deep")
    if pa.types.is_list(kind):
        return _checked_fields(kind.value_type, depth + 1)
    if not pa.types.is_struct(kind):
        return 0
    if len({field.name.lower() for field in kind}) < kind.num_fields:
        raise BadValue("the names of two fields differ in case only")
    count: int = kind.num_fields
    return count + sum(_checked_fields(field.type, depth + 1) for field in kind)


def _type_of(value: Any) -> Any:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, Number):
        return _number_type(value)
    if isinstance(value, dict):
        if len(value) > _MAX_FIELDS:
            raise BadValue(f"more than {_MAX_FIELDS} fields")
        return pa.struct([(_field_name(name), _type_of(member)) for name, member in value.items()])
    if isinstance(value, list):
        return pa.list_(merged_types(map(_type_of, value)))
    return pa.string()


def _field_name(name: str) -> str:
    fault = name_fault(name)
    if fault is not None:
        raise BadValue(fault)
    return name


def _number_type(text: str) -> Any:
    if not text.lstrip("-").isdigit():
        return pa.float64()
    fits = len(text) <= _MAX_INTEGER and -_INT64_END <= int(text) < _INT64_END
    return pa.int64() if fits else pa.string()


def _settled(kind: Any) -> Any:
    """Return the type with text in place of what is not known, because only nulls were seen."""
    if pa.types.is_struct(kind):
        fields = [(field.name, _settled(field.type)) for field in kind]
        return pa.struct(fields) if fields else pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pa.types.is_null(kind) else kind
