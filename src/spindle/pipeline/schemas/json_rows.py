"""JSON values one by one, in Python: for values that the reader of whole batches refuses.

It accepts all that the fast reader accepts, with the same result, and finds the reason for what it
refuses. A text column takes any JSON value: a string as it is, all else as its JSON text. So values
of contradictory types fit into one column and lose nothing.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from spindle.pipeline.schemas.decoding import BadValue, shown

Convert: TypeAlias = Callable[[Any], Any]
_BOM: Final = "\ufeff"
_INTEGER: Final = re.compile(r"-?[0-9]+")
TIME_REWRITES: Final = (
    (r"^([0-9]{4}-[0-9]{2}-[0-9]{2})t", r"\1T"),
    (r"z$", "Z"),
    (r"^(.{19}\.[0-9]{6})[0-9]+", r"\1"),
)
"""Expressions and replacements that turn the texts of RFC 3339 into those that Arrow reads: small
letters become large ones, and more than six digits of a second are cut, as Spark does."""


class Number(str):
    """The text of a JSON number, so that no digit is lost on the way."""

    __slots__ = ()


class _Repeating(dict[str, Any]):
    """An object that names a key twice; `repeated` are these keys."""

    repeated: frozenset[str] = frozenset()


def parse_json(value: bytes) -> Any:
    """Return a JSON value with its numbers as `Number`.

    Raises:
        BadValue: no JSON, or no UTF-8.
        RecursionError: nested too deep.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise BadValue(
            f"not UTF-8: byte 0x{value[error.start]:02x} at position {error.start}"
        ) from None
    try:
        return _JSON.decode(text.removeprefix(_BOM))
    except json.JSONDecodeError as error:
        raise BadValue(f"not JSON: {error.msg} at character {error.pos}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names = [name for name, _ in pairs]
    repeating = _Repeating(members)
    repeating.repeated = frozenset(name for name in members if names.count(name) > 1)
    return repeating


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=Number
)


@lru_cache(maxsize=64)
def row_converter(kind: Any, refuse_unknown: bool) -> Convert:
    """Return a function from a parsed JSON value to a Python row for Arrow.

    The function raises BadValue for a value that does not fit `kind`, a struct type.
    """
    return _struct(kind, refuse_unknown)


def _converter(kind: Any, refuse_unknown: bool) -> Convert:
    types = pa.types
    if types.is_string(kind):
        return _text
    if types.is_boolean(kind):
        return _boolean
    if types.is_signed_integer(kind):
        return _integer(kind.bit_width)
    if kind == pa.float64():
        return _double
    if kind == pa.float32() or types.is_decimal(kind):
        return _cast_number(kind)
    if types.is_timestamp(kind) or types.is_date32(kind):
        return _cast_time(kind)
    if types.is_binary(kind):
        return _base64
    if types.is_list(kind):
        return _list(kind, refuse_unknown)
    if types.is_map(kind):
        return _map(kind, refuse_unknown)
    if types.is_struct(kind):
        return _struct(kind, refuse_unknown)
    raise ValueError(f"JSON cannot be read into a column of type {kind}")


def json_text(value: Any) -> str:
    """Return the JSON text of a parsed value, with its numbers as they were written."""
    if isinstance(value, Number):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    text = value if type(value) is str else json_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue("half of a surrogate pair is not text") from None
    return text


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadValue(f"{shown(json_text(value))} is neither true nor false")
    return value


def _integer(bits: int) -> Convert:
    end = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if not isinstance(value, Number) or not _INTEGER.fullmatch(value):
            raise BadValue(f"{shown(json_text(value))} is not an integer")
        if len(value) > bits or not -end <= (number := int(value)) < end:
            raise BadValue(f"{shown(value)} does not fit into {bits} bits")
        return number

    return convert


def _double(value: Any) -> float:
    if not isinstance(value, Number):
        raise BadValue(f"{shown(json_text(value))} is not a number")
    number = float(value)
    if not math.isfinite(number):
        raise BadValue(f"{shown(value)} is not a finite number")
    return number


def _cast_number(kind: Any) -> Convert:
    takes_text = pa.types.is_decimal(kind)

    def convert(value: Any) -> Any:
        if not isinstance(value, Number) and not (takes_text and isinstance(value, str)):
            raise BadValue(f"{shown(json_text(value))} is not a number")
        try:
            number = pa.scalar(str(value)).cast(kind).as_py()
        except (pa.ArrowInvalid, UnicodeEncodeError):
            raise BadValue(f"{shown(value)} does not fit into {kind}") from None
        if not takes_text and not math.isfinite(number):
            raise BadValue(f"{shown(value)} is not a finite number that fits into {kind}")
        return number

    return convert


def _cast_time(kind: Any) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Number):
            text = value
            for pattern, replacement in TIME_REWRITES:
                text = re.sub(pattern, replacement, text)
            for form in time_forms(kind):
                try:
                    return pa.scalar(text).cast(form).value
                except (pa.ArrowInvalid, UnicodeEncodeError):
                    continue
        raise BadValue(f"{shown(json_text(value))} is not an ISO 8601 text for {kind}")

    return convert


def time_forms(kind: Any) -> tuple[Any, ...]:
    """Return the types as which a text is tried; a time without a zone counts as UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return kind, pa.timestamp(kind.unit)
    return (kind,)


def _base64(value: Any) -> bytes:
    if isinstance(value, str) and not isinstance(value, Number):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise BadValue(f"{shown(json_text(value))} is not base64 text")


def _list(kind: Any, refuse_unknown: bool) -> Convert:
    convert_element = _converter(kind.value_type, refuse_unknown)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise BadValue(f"{shown(json_text(value))} is not an array")
        converted = []
        for index, entry in enumerate(value):
            try:
                converted.append(None if entry is None else convert_element(entry))
            except BadValue as error:
                raise error.inside(f"[{index}]") from None
        return converted

    return convert


def _map(kind: Any, refuse_unknown: bool) -> Convert:
    if not pa.types.is_string(kind.key_type):
        raise ValueError(f"JSON cannot be read into {kind}: keys of JSON objects are text")
    convert_value = _converter(kind.item_type, refuse_unknown)

    def convert(value: Any) -> list[tuple[str, Any]]:
        _check_object(value)
        if isinstance(value, _Repeating):
            raise BadValue(f"the key {shown(min(value.repeated))!r} occurs twice")
        converted = []
        for name, entry in value.items():
            try:
                converted.append((_text(name), None if entry is None else convert_value(entry)))
            except BadValue as error:
                raise error.inside(shown(name)) from None
        return converted

    return convert


def _struct(kind: Any, refuse_unknown: bool) -> Convert:
    fields = [(field.name, _converter(field.type, refuse_unknown)) for field in kind]
    names = frozenset(name for name, _ in fields)

    def convert(value: Any) -> dict[str, Any]:
        _check_object(value)
        if isinstance(value, _Repeating) and (repeated := value.repeated & names):
            raise BadValue(f"the key {min(repeated)!r} occurs twice")
        if refuse_unknown and (unknown := value.keys() - names):
            raise BadValue(f"the field {shown(min(unknown))!r} is not in the schema")
        row = {}
        for name, field in fields:
            member = value.get(name)
            if member is not None:
                try:
                    row[name] = field(member)
                except BadValue as error:
                    raise error.inside(name) from None
        return row

    return convert


def _check_object(value: Any) -> None:
    if not isinstance(value, dict):
        raise BadValue(f"{shown(json_text(value))} is not an object")
