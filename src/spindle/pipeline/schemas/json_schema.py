"""JSON Schema as an Arrow type: the subset that names columns and their types."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from spindle.pipeline.schemas.ddl import TIMESTAMP
from spindle.pipeline.schemas.field_names import name_fault
from spindle.pipeline.schemas.widening import merged_types

_SIMPLE: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "null": pa.null(),
}
_TEXT_FORMATS: Final = {"date-time": TIMESTAMP, "date": pa.date32()}
_MAX_DEPTH: Final = 50


def json_schema_type(schema: Mapping[str, Any]) -> Any:
    """Return the struct type of the objects that a JSON Schema describes.

    Read are `type`, `properties`, `items`, `additionalProperties` with a schema (a map), `format`
    `date-time` and `date`, `enum`, `const`, `anyOf`, `oneOf`, and `$ref` within the document.
    Other keywords limit values and are not checked.

    Raises:
        ValueError: the root is not an object with properties, or a reference leads nowhere or in a
            circle.
    """
    kind = _type(schema, schema, 0)
    if not pa.types.is_struct(kind):
        raise ValueError("the JSON schema does not describe an object with properties")
    return kind


def _type(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the JSON schema is nested more than {_MAX_DEPTH} deep, or in a circle")
    if not isinstance(schema, Mapping):
        return pa.string()
    if "$ref" in schema:
        return _type(_referred(str(schema["$ref"]), root), root, depth + 1)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _known(merged_types(_type(field, root, depth + 1) for field in schema[choice]))
    name = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(name, list):
        return _known(merged_types(_type({**schema, "type": n}, root, depth + 1) for n in name))
    if name == "object":
        return _object(schema, root, depth)
    if name == "array":
        return pa.list_(_known(_type(schema.get("items"), root, depth + 1)))
    if name == "string":
        return _TEXT_FORMATS.get(str(schema.get("format")), pa.string())
    if name not in _SIMPLE:
        raise ValueError(f"the JSON schema has the unknown type {name!r}")
    return _SIMPLE[name]


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties")
    if properties:
        for name in properties:
            fault = name_fault(name)
            if fault is not None:
                raise ValueError(f"the JSON schema: {fault}")
        return pa.struct(
            [
                (name, _known(_type(property_schema, root, depth + 1)))
                for name, property_schema in properties.items()
            ]
        )
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return pa.map_(pa.string(), _known(_type(values, root, depth + 1)))
    return pa.string()


def _known(kind: Any) -> Any:
    return pa.string() if pa.types.is_null(kind) else kind


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    schema: Any = root
    if not reference.startswith("#"):
        raise ValueError(f"the JSON schema refers to {reference!r}, which is another document")
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            if not isinstance(schema, Mapping) or step not in schema:
                raise ValueError(f"the JSON schema refers to {reference!r}, which it does not have")
            schema = schema[step]
    return schema
