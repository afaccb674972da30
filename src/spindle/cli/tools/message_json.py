"""Messages in the JSON of Kafka's tools: the fields of a version, in camel case."""

import json
import re
from base64 import b64encode
from typing import Any

from spindle.common.uuids import uuid_text
from spindle.protocol.message import Field, Message, default_of

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def message_json(message: Message, version: int) -> str:
    """Return a message with its version as compact JSON."""
    return compact({"version": version, **fields_of(message, version)})


def frame_json(record: Message, version: int) -> str:
    """Return a metadata record with its type and version as compact JSON."""
    document = {
        "type": type_name(record),
        "version": version,
        "data": fields_of(record, version),
    }
    return compact(document)


def type_name(record: Message) -> str:
    """Return the name of the type of a record, in capitals."""
    return _WORD.sub("_", type(record).__name__).upper()


def fields_of(message: Message, version: int) -> dict[str, Any]:
    """Return the fields of a version; tagged fields only if their value is not the default."""
    fields = {}
    for field in type(message).FIELDS:
        if not field.first <= version <= field.last:
            continue
        value = getattr(message, field.name)
        if version >= field.tagged and value == default_of(field):
            continue
        fields[_camel_case(field.name)] = _value(field, value, version)
    return fields


def compact(document: dict[str, Any]) -> str:
    """Return JSON without spaces."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _value(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_single(field.type, item, version) for item in value]
    return _single(field.type, value, version)


def _single(kind: Any, value: Any, version: int) -> Any:
    if isinstance(value, Message):
        return fields_of(value, version)
    if kind == "uuid":
        return uuid_text(value)
    if kind in ("bytes", "records"):
        return b64encode(value).decode()
    return value


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
