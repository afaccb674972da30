"""Spark's schema texts as an Arrow type, and back.

ddl_type("id BIGINT, tags ARRAY<STRING>, price DECIMAL(10, 2)")
ddl_type(schema.simpleString())
spark_json_type(json.loads(schema.json()))
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from spindle.pipeline.schemas.decoding import shown
from spindle.pipeline.schemas.field_names import name_fault

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
_MAX_DEPTH: Final = 50
_MAX_PRECISION: Final = 38

_SIMPLE: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
_DDL_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}
_STRUCT: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.IGNORECASE | re.DOTALL)
_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|('(?:[^'\\]|\\.|'')*')|(\S))")


def ddl_type(text: str) -> Any:
    """Return the struct type of a schema text; every field is nullable.

    Raises:
        ValueError: no schema text, an unknown type, or a column that is named twice.
    """
    whole = _STRUCT.fullmatch(text)
    fields = _Parser(text if whole is None else whole[1]).fields(end="", depth=0)
    if not fields:
        raise ValueError("the schema is empty, want columns such as 'id BIGINT, name STRING'")
    return pa.struct(fields)


def spark_json_type(schema: Mapping[str, Any]) -> Any:
    """Return the struct type of the JSON form of a StructType; every field is nullable.

    Metadata are left out, and so is whether a field can be null: bad records have null rows.

    Raises:
        ValueError: no StructType, an unknown type, or a column that is named twice.
    """
    kind = _json_type(schema, 0)
    if not pa.types.is_struct(kind) or kind.num_fields == 0:
        raise ValueError("the schema is empty, want a StructType with fields")
    return kind


def _json_type(schema: Any, depth: int) -> Any:
    _check_depth(depth)
    if isinstance(schema, str):
        return _Parser(schema).whole_type()
    match schema:
        case {"type": "array", "elementType": element}:
            return pa.list_(_json_type(element, depth + 1))
        case {"type": "map", "keyType": key, "valueType": value}:
            return pa.map_(_json_type(key, depth + 1), _json_type(value, depth + 1))
        case {"type": "struct", "fields": list(fields)}:
            columns: list[Any] = []
            for field in fields:
                match field:
                    case {"name": str(name), "type": kind}:
                        _check_new(name, columns)
                        columns.append(pa.field(name, _json_type(kind, depth + 1)))
                    case _:
                        raise ValueError(
                            f"schema: {shown(field)} is not a field with name and type"
                        )
            return pa.struct(columns)
    raise ValueError(f"schema: {shown(schema)} is not a type of Spark that records can have")


def _check_new(name: str, fields: list[Any]) -> None:
    fault = name_fault(name)
    if fault is not None:
        raise ValueError(f"schema: {fault}")
    if any(name.lower() == field.name.lower() for field in fields):
        raise ValueError(f"schema: the column {name!r} is named twice")


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"schema: types are nested more than {_MAX_DEPTH} deep")


def ddl_name(kind: Any) -> str:
    """Return the name of an Arrow type in a schema text.

    Raises:
        ValueError: a type that Spark does not have.
    """
    if kind in _DDL_NAMES:
        return _DDL_NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{ddl_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_name(kind.key_type)},{ddl_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{quoted_name(f.name)}:{ddl_name(f.type)}' for f in kind)}>"
    raise ValueError(f"the type {kind} has no counterpart in Spark")


def ddl_columns(kind: Any) -> str:
    """Return the fields of a struct type as a schema text."""
    return ", ".join(f"{quoted_name(field.name)} {ddl_name(field.type)}" for field in kind)


def quoted_name(name: str) -> str:
    """Return a name as Spark takes it in expressions and schema texts, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match.group().strip() for match in _TOKEN.finditer(text.rstrip())]
        self._next = 0

    def fields(self, end: str, depth: int) -> list[Any]:
        """Read `name type` pairs up to the token `end` (empty: the end of the text)."""
        fields: list[Any] = []
        while self._peek() != end:
            if fields:
                self._take(",")
            name = self._name()
            if self._peek() == ":":
                self._take(":")
            _check_new(name, fields)
            fields.append(pa.field(name, self._type(depth)))
            self._comment()
        if end:
            self._take(end)
        return fields

    def whole_type(self) -> Any:
        """Read a type that is the whole text."""
        kind = self._type(0)
        self._take("")
        return kind

    def _type(self, depth: int) -> Any:
        _check_depth(depth)
        word = self._word().lower()
        match word:
            case "array":
                self._take("<")
                element = self._type(depth + 1)
                self._take(">")
                return pa.list_(element)
            case "map":
                self._take("<")
                key = self._type(depth + 1)
                self._take(",")
                element = self._type(depth + 1)
                self._take(">")
                return pa.map_(key, element)
            case "struct":
                self._take("<")
                return pa.struct(self.fields(">", depth + 1))
            case "decimal" | "numeric" | "dec":
                return self._decimal()
            case "varchar" | "char":
                self._length()
                return pa.string()
        if word not in _SIMPLE:
            raise ValueError(
                f"schema: {word!r} is not a type that records can have, in {self._text!r}; want "
                f"one of {', '.join(_DDL_NAMES.values())}, decimal, varchar, char, array, map or "
                "struct"
            )
        return _SIMPLE[word]

    def _length(self) -> None:
        """Read the length of a text, if it is given."""
        if self._peek() == "(":
            self._take("(")
            self._number()
            self._take(")")

    def _decimal(self) -> Any:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take("(")
            precision = self._number()
            if self._peek() == ",":
                self._take(",")
                scale = self._number()
            self._take(")")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise ValueError(
                f"schema: decimal({precision},{scale}): want 1 <= precision <= {_MAX_PRECISION} "
                "and scale <= precision"
            )
        return pa.decimal128(precision, scale)

    def _comment(self) -> None:
        if self._peek().lower() == "not":
            raise ValueError("schema: NOT NULL is not possible, because bad records give null rows")
        if self._peek().lower() == "comment":
            self._next += 2

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self, token: str) -> None:
        if self._peek() != token:
            present = repr(self._peek()) if self._peek() else "the end"
            wanted = repr(token) if token else "the end"
            raise ValueError(f"schema: want {wanted} and found {present} in {self._text!r}")
        self._next += 1

    def _word(self) -> str:
        word = self._peek()
        if not re.fullmatch(r"\w+", word):
            present = repr(word) if word else "the end"
            raise ValueError(f"schema: want a type and found {present} in {self._text!r}")
        self._next += 1
        return word

    def _number(self) -> int:
        word = self._word()
        if not word.isdecimal():
            raise ValueError(f"schema: want a number and found {word!r} in {self._text!r}")
        return int(word)

    def _name(self) -> str:
        token = self._peek()
        if token.startswith("`") and len(token) > 1:
            self._next += 1
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            present = repr(token) if token else "the end"
            raise ValueError(f"schema: want a column name and found {present} in {self._text!r}")
        self._next += 1
        return token
