"""Write src/spindle/protocol/messages/ from the message schemas of the kio package.

kio keeps one class per message *and* version; this merges the versions of a message into one class
whose fields know their versions. The schemas that kio lacks are in `record_schemas.txt` (records of
Kafka) and `private_schemas.txt` (Spindle's own APIs) beside this file. Run it with the development
environment when schemas have changed:

    .venv/bin/python tools/generate_messages.py
"""

import importlib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

OUT = Path(__file__).parent.parent / "src/spindle/protocol/messages"
PYTHON = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "Bytes",
    "uuid": "bytes",
    "float64": "float",
}
RAFT_RECORDS = {
    "leader_change_message": "LeaderChangeMessage",
    "snapshot_header_record": "SnapshotHeaderRecord",
    "snapshot_footer_record": "SnapshotFooterRecord",
    "k_raft_version_record": "KRaftVersionRecord",
    "voters_record": "VotersRecord",
}
GROUP_PROTOCOL = ("consumer_protocol_subscription", "consumer_protocol_assignment")


class FieldVersions:
    """The common facts of all versions of a field, and the differences between them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions: list[int] = []
        self.nullable: list[int] = []
        self.tags: dict[int, int] = {}
        self.kind: str | type = ""
        self.is_array = False
        self.default: Any = MISSING


def plain(value: Any) -> Any:
    """Return a schema default as a plain Python value."""
    import datetime
    import uuid

    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bool | NoneType):
        return value
    for base in (int, float, str, bytes):
        if isinstance(value, base):
            return base(value)
    return MISSING


def field_name(name: str, kafka_type: str | None) -> str:
    """Return the project's name of a field, with its unit."""
    suffix = kafka_type and kafka_type.startswith(("timedelta", "datetime"))
    name = name.rstrip("_")  # kio avoids the names of built-ins
    return f"{name}_ms" if suffix and not name.endswith("_ms") else name


def wire_type(kafka_type: str) -> str:
    """Return the type that a field has on the wire."""
    return {
        "error_code": "int16",
        "timedelta_i32": "int32",
        "timedelta_i64": "int64",
        "datetime_i64": "int64",
    }.get(kafka_type, kafka_type)


def inspect(
    cls: type,
    version: int,
    structs: dict[str, dict[str, FieldVersions]],
    orders: dict[str, list[list[str]]],
) -> None:
    """Add one version of a struct, and of the structs in it, to the known versions."""
    known = structs.setdefault(cls.__name__, {})
    order: list[str] = []
    hints = get_type_hints(cls)
    for field in fields(cls):
        kafka_type = field.metadata.get("kafka_type")
        name = field_name(field.name, kafka_type)
        order.append(name)
        entry = known.setdefault(name, FieldVersions(name))
        entry.versions.append(version)
        hint = hints[field.name]
        args = (
            get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is UnionType else ()
        )
        optional = NoneType in args
        if optional:
            hint = next(a for a in args if a is not NoneType)
        entry.is_array = get_origin(hint) is tuple
        has_null = kafka_type in (None, "string", "bytes", "records") or entry.is_array
        if optional and has_null:
            entry.nullable.append(version)
        if (tag := field.metadata.get("tag")) is not None:
            entry.tags[version] = tag
        if kafka_type is None:
            struct = get_args(hint)[0] if entry.is_array else hint
            entry.kind = struct
            inspect(struct, version, structs, orders)
        else:
            entry.kind = wire_type(kafka_type)
        if field.default is not MISSING:
            entry.default = plain(field.default)
    orders.setdefault(cls.__name__, []).append(order)


def merged_order(orders: list[list[str]]) -> list[str]:
    """Return one order that keeps every version's order; where it is free, the newest version's."""
    after: dict[str, list[str]] = {}
    for order in orders:
        for left, right in pairwise(order):
            after.setdefault(right, []).append(left)
        for name in order:
            after.setdefault(name, [])
    result: list[str] = []
    names = [n for order in reversed(orders) for n in order]

    def visit(name: str) -> None:
        if name not in result:
            for before in after[name]:
                visit(before)
            if name not in result:
                result.append(name)

    for name in names:
        visit(name)
    return result


def type_name(entry: FieldVersions) -> str:
    """Return the name of a field's wire type or struct."""
    return entry.kind if isinstance(entry.kind, str) else entry.kind.__name__


def annotation(entry: FieldVersions, path: str) -> str:
    """Return the type annotation of a field as source."""
    kind = entry.kind
    inner = PYTHON.get(kind, "int") if isinstance(kind, str) else f"{path}.{kind.__name__}"
    text = f"list[{inner}]" if entry.is_array else inner
    if entry.nullable:
        text += " | None"
    return text


def default_text(entry: FieldVersions) -> str:
    """Return the default as source, or EMPTY for a new array or struct."""
    if entry.default is not MISSING and not (entry.default is None and not entry.nullable):
        return repr(entry.default)
    if entry.is_array or not isinstance(entry.kind, str):
        return "EMPTY"
    return {
        "bool": "False",
        "string": '""',
        "bytes": 'b""',
        "records": 'b""',
        "uuid": "ZERO_UUID",
        "float64": "0.0",
    }.get(entry.kind, "0")


def field_text(entry: FieldVersions, last: int) -> str:
    """Return the `Field` of a message class as source."""
    kind = repr(entry.kind) if isinstance(entry.kind, str) else entry.kind.__name__
    parts = [repr(entry.name), kind]
    if entry.versions[0]:
        parts.append(f"first={entry.versions[0]}")
    if entry.versions[-1] != last:
        parts.append(f"last={entry.versions[-1]}")
    if entry.is_array:
        parts.append("is_array=True")
    if entry.nullable:
        parts.append(f"nullable={entry.nullable[0]}")
    if entry.tags:
        parts.append(f"tag={next(iter(entry.tags.values()))}, tagged={next(iter(entry.tags))}")
    default = default_text(entry)
    zero = {
        "bool": "False",
        "string": '""',
        "bytes": 'b""',
        "records": 'b""',
        "uuid": "ZERO_UUID",
        "float64": "0.0",
    }
    implied = (
        "EMPTY" if entry.is_array or not isinstance(entry.kind, str) else zero.get(entry.kind, "0")
    )
    if default != implied:
        parts.append(f"default={default}")
    return f"Field({', '.join(parts)})"


def emit_class(
    name: str,
    structs: dict[str, dict[str, FieldVersions]],
    orders: dict[str, list[list[str]]],
    constants: list[str],
    last: int,
    indent: str,
    path: str,
) -> Iterator[str]:
    """Return the source of a class and of the classes inside it."""
    entries = [structs[name][n] for n in merged_order(orders[name])]
    yield f"{indent}class {name}(Message):"
    inner = indent + "    "
    slots = ", ".join(repr(e.name) for e in entries) + ("," if len(entries) == 1 else "")
    yield f"{inner}__slots__ = ({slots})"
    yield from (f"{inner}{c}" for c in constants)
    seen: set[str] = set()
    for entry in entries:
        if not isinstance(entry.kind, str) and entry.kind.__name__ not in seen:
            seen.add(entry.kind.__name__)
            yield ""
            yield from emit_class(
                entry.kind.__name__,
                structs,
                orders,
                [],
                last,
                inner,
                f"{path}.{entry.kind.__name__}",
            )
    if seen:
        yield ""
    yield f"{inner}FIELDS = ("
    yield from (f"{inner}    {field_text(e, last)}," for e in entries)
    yield f"{inner})"
    yield ""
    if entries:
        yield f"{inner}def __init__("
        yield f"{inner}    self,"
        yield f"{inner}    *,"
        yield from (
            f"{inner}    {e.name}: {annotation(e, path)} = {default_text(e)}," for e in entries
        )
        yield f"{inner}) -> None:"
        for entry in entries:
            if default_text(entry) == "EMPTY":
                fresh = "[]" if entry.is_array else f"{path}.{type_name(entry)}()"
                given = f"{entry.name} is EMPTY else {entry.name}"
                yield f"{inner}    self.{entry.name} = {fresh} if {given}"
            else:
                yield f"{inner}    self.{entry.name} = {entry.name}"


HEAD = '''"""{title}

Generated by tools/generate_messages.py from {origin}. Do not edit.
"""

from __future__ import annotations

{imports}'''


def imports_for(body: str) -> str:
    """Return the imports that a module needs."""
    lines = []
    if ": Bytes" in body:
        lines.append("from spindle.common.ports import Bytes")
    if "ZERO_UUID" in body:
        lines.append("from spindle.common.uuids import ZERO_UUID")
    names = [n for n in ("EMPTY", "Field", "Message") if n in body]
    lines.append(f"from spindle.protocol.message import {', '.join(names)}")
    return "\n".join(lines) + "\n"


def load(
    name: str, kind: EntityType
) -> (
    tuple[str, list[str], dict[str, dict[str, FieldVersions]], dict[str, list[list[str]]], int]
    | None
):
    """Return all versions of one message, merged."""
    structs: dict[str, dict[str, FieldVersions]] = {}
    orders: dict[str, list[list[str]]] = {}
    versions = sorted(v for v, kinds in schema_name_map[name].items() if kind in kinds)
    if not versions:
        return None
    flexible = None
    for version in versions:
        module, _, attribute = schema_name_map[name][version][kind].rpartition(":")
        cls = getattr(importlib.import_module(module), attribute)
        inspect(cls, version, structs, orders)
        if flexible is None and cls.__flexible__:
            flexible = version
    constants = [f"FIRST_VERSION = {versions[0]}", f"LAST_VERSION = {versions[-1]}"]
    if flexible is not None:
        constants.append(f"FLEXIBLE_FROM = {flexible}")
    return cls.__name__, constants, structs, orders, versions[-1]


def source(loaded: tuple[str, list[str], Any, Any, int], api_key: int | None) -> str:
    """Return a message class as source."""
    name, constants, structs, orders, last = loaded
    if api_key is not None:
        constants = [f"API_KEY = {api_key}", *constants]
    return "\n".join(emit_class(name, structs, orders, constants, last, "", name)) + "\n"


def write(path: Path, title: str, bodies: list[str], origin: str = "the published schemas") -> None:
    """Write a module of message classes."""
    body = "\n\n".join(bodies)
    head = HEAD.format(title=title, imports=imports_for(body), origin=origin)
    path.write_text(head + "\n\n" + body)


class Struct:
    """A struct of our own schema files while it is read; it has the place of a kio class."""

    def __init__(self, name: str) -> None:
        self.__name__ = name


def read_field(line: str, last: int) -> FieldVersions:
    """Read one field line of a schema file of our own."""
    name, kind, *options = line.split()
    entry = FieldVersions(name)
    entry.is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    entry.kind = Struct(kind) if kind[0].isupper() else kind  # type: ignore[assignment]
    span = (0, last)
    for option in options:
        key, _, value = option.partition("=")
        if key == "tag":
            entry.tags = {-1: int(value)}
        elif key == "nullable":
            entry.nullable = [int(value or 0)]
        elif key == "default":
            entry.default = (
                {"None": None, "True": True}.get(value) if value[0].isupper() else int(value)
            )
        else:
            first, _, to = key.rstrip("+").partition("-")
            span = (int(first), int(to) if to else last)
    entry.versions = list(span)
    if -1 in entry.tags:
        entry.tags = {span[0]: entry.tags[-1]}
    return entry


def read_schemas(path: Path) -> dict[str, list[str]]:
    """Return the sources of the classes by module name."""
    modules: dict[str, list[str]] = {}
    module = ""
    owners: list[tuple[str, str, list[str]]] = []
    for line in path.read_text().splitlines():
        if line.startswith("module "):
            module = line.split()[1]
        elif line.startswith(("record ", "message ")):
            owners.append((module, line.partition(" ")[2], []))
        elif line.strip() and not line.startswith("#"):
            owners[-1][2].append(line)
    for module, head, lines in owners:
        name, *options = head.split()
        values = dict(o.split("=") for o in options)
        first, last = map(int, values["versions"].split("-"))
        constants = [f"API_KEY = {values['key']}"] if "key" in values else []
        constants += [f"FIRST_VERSION = {first}", f"LAST_VERSION = {last}"]
        if "flexible" in values:
            constants.append(f"FLEXIBLE_FROM = {values['flexible']}")
        structs: dict[str, dict[str, FieldVersions]] = {name: {}}
        stack = [(0, name)]
        for line in lines:
            depth = len(line) - len(line.lstrip())
            while stack[-1][0] >= depth:
                stack.pop()
            entry = read_field(line.strip(), last)
            structs[stack[-1][1]][entry.name] = entry
            if not isinstance(entry.kind, str):
                structs[entry.kind.__name__] = {}
                stack.append((depth, entry.kind.__name__))
        orders = {n: [list(known)] for n, known in structs.items()}
        text = "\n".join(emit_class(name, structs, orders, constants, last, "", name)) + "\n"
        modules.setdefault(module, []).append(text)
    return modules


def main() -> None:
    """Generate all modules of message classes."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "__init__.py").write_text(
        '"""Message classes, one module per API; generated by tools/generate_messages.py."""\n'
    )
    for key, name in sorted(api_key_map.items()):
        loaded = [load(name, k) for k in (EntityType.request, EntityType.response)]
        title = f"{name} (API key {key})."
        write(OUT / f"{name}.py", title, [source(x, key) for x in loaded if x])
    for name, kinds in (
        ("raft_records", list(RAFT_RECORDS)),
        ("group_protocol", list(GROUP_PROTOCOL)),
    ):
        bodies = [source(x, None) for n in kinds if (x := load(n, EntityType.data))]
        write(OUT / f"{name}.py", name.replace("_", " ").capitalize() + ".", bodies)
    here = Path(__file__).parent
    for module, bodies in read_schemas(here / "record_schemas.txt").items():
        write(OUT / f"{module}.py", module.replace("_", " ").capitalize() + ".", bodies)
    private = here / "private_schemas.txt"
    for module, bodies in read_schemas(private).items():
        title = f"{module}, one of Spindle's own APIs."
        write(OUT / f"{module}.py", title, bodies, f"tools/{private.name}")
    body = load("default_principal_data", EntityType.data)
    assert body
    write(OUT / "default_principal_data.py", "Principal inside an Envelope.", [source(body, None)])


if __name__ == "__main__":
    main()
