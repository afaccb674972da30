"""Every message at every version: kio reads what this codec writes, and the other way round."""

import importlib
import io
import random
import uuid
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from spindle.protocol.codec import decode, encode
from spindle.protocol.message import Field, Message

CASES = [
    (name, kind, version)
    for name in api_key_map.values()
    for version, kinds in schema_name_map[name].items()
    for kind in (EntityType.request, EntityType.response)
    if kind in kinds
]


RENAMED = {
    "acceptable_recovery_lag": "acceptable_recovery_lag_legacy",
    "generation_id": "generation_id_or_member_epoch",
}
"""Fields that have other names since Kafka 4.4; kio has the schemas of an older release."""


def random_value(rng: random.Random, field: Field, version: int) -> Any:
    if field.is_array:
        if version >= field.nullable and rng.random() < 0.2:
            return None
        return [element(rng, field, version) for _ in range(rng.randrange(4))]
    if version >= field.nullable and rng.random() < 0.3:
        return None
    return element(rng, field, version)


def element(rng: random.Random, field: Field, version: int) -> Any:
    match field.type:
        case "bool":
            return rng.random() < 0.5
        case "int8":
            return rng.randrange(-128, 128)
        case "int16":
            # kio has an enumeration of error codes, so it can write only known ones.
            return rng.randrange(0, 100)
        case "uint16":
            return rng.randrange(0, 65536)
        case "int32":
            return rng.randrange(0, 2**31)
        case "int64":
            # In kio some times are datetimes, which have a limited range.
            return rng.randrange(0, 2**40)
        case "float64":
            return rng.random() * 1e6
        case "string":
            return "".join(rng.choices("abcäß€-", k=rng.choice((0, 1, 5, 200))))
        case "bytes":
            return rng.randbytes(rng.choice((0, 1, 40)))
        case "records":
            return rng.choice((b"", rng.randbytes(300), rng.randbytes(5000)))
        case "uuid":
            return rng.choice((bytes(16), rng.randbytes(16)))
        case _:
            return random_message(rng, field.type, version)


def random_message(rng: random.Random, cls: type[Message], version: int) -> Message:
    message = cls()
    for field in cls.FIELDS:
        if field.first <= version <= field.last:
            setattr(message, field.name, random_value(rng, field, version))
    return message


def load(name: str, kind: EntityType, version: int) -> tuple[type, type[Message]]:
    paths: Mapping[Any, str] = schema_name_map[name][version]
    module, _, attribute = paths[kind].rpartition(":")
    theirs = getattr(importlib.import_module(module), attribute)
    ours = getattr(importlib.import_module(f"spindle.protocol.messages.{name}"), attribute)
    return theirs, ours


def plain(value: Any) -> Any:
    """Return kio's value in the form of this codec."""
    if isinstance(value, timedelta):
        return round(value / timedelta(milliseconds=1))
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, IntEnum):
        return int(value)
    return value


def assert_same(theirs: Any, ours: Any, version: int) -> None:
    names = {f.name for f in type(ours).FIELDS if f.first <= version <= f.last}
    for field in fields(theirs):
        plain_name = field.name.rstrip("_")
        candidates = (plain_name, f"{plain_name}_ms", RENAMED.get(plain_name, plain_name))
        name = next(n for n in candidates if n in names)
        names.remove(name)
        left, right = plain(getattr(theirs, field.name)), getattr(ours, name)
        kind = next(f.type for f in type(ours).FIELDS if f.name == name)
        if isinstance(left, tuple):
            assert right is not None
            assert len(left) == len(right)
            for a, b in zip(left, right, strict=True):
                if isinstance(b, Message):
                    assert_same(a, b, version)
                else:
                    assert (plain(a) or bytes(16)) == b if kind == "uuid" else plain(a) == b
        elif isinstance(right, Message):
            assert_same(left, right, version)
        elif right is None:
            assert left is None
        elif kind == "uuid":
            assert (left or bytes(16)) == right
        else:
            assert left == right, (type(ours).__name__, name)
    assert not names


@pytest.mark.parametrize(
    "name", sorted(set(api_key_map.values())), ids=lambda name: name.replace("_", "-")
)
def test_same_bytes_as_kio(name: str) -> None:
    for _, kind, version in (c for c in CASES if c[0] == name):
        theirs, ours = load(name, kind, version)
        rng = random.Random(f"{name} {kind} {version}")
        for _ in range(5):
            message = random_message(rng, ours, version)
            data = encode(message, version)
            entity: Any
            entity, size = entity_reader(theirs)(data, 0)
            assert size == len(data)
            assert_same(entity, message, version)
            buffer = io.BytesIO()
            entity_writer(theirs)(buffer, entity)
            assert buffer.getvalue() == data
            again, end = decode(ours, version, memoryview(data))
            assert end == len(data)
            assert again == message
