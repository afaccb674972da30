"""Write src/spindle/protocol/messages/ from the message schemas in the jars of Apache Kafka.

A schema is taken from the newest release that has it, and every version that an older release has
must have the same fields there. The records of Kafka's logs are in `record_schemas.txt`, Spindle's
own APIs in `private_schemas.txt` beside this file. Run it with the development environment when
schemas have changed:

    .venv/bin/python tools/kafka/fetch.py
    .venv/bin/python tools/generate_messages.py
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).parent.parent
OUT = ROOT / "src/spindle/protocol/messages"
RELEASES = ("4.4.0", "4.3.1")
"""Newest first."""
PYTHON = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "Bytes",
    "uuid": "bytes",
    "float64": "float",
}
DATA_MODULES = {
    "raft_records": (
        "LeaderChangeMessage",
        "SnapshotHeaderRecord",
        "SnapshotFooterRecord",
        "KRaftVersionRecord",
        "VotersRecord",
    ),
    "group_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
}
Schema = dict[str, Any]


class FieldVersions:
    """The common facts of all versions of a field, and the differences between them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions: list[int] = []
        self.nullable: list[int] = []
        self.tags: dict[int, int] = {}
        self.kind: str | Struct = ""
        self.is_array = False
        self.default: Any = MISSING


class Struct:
    """The name of a struct, in the place of a primitive type's name."""

    def __init__(self, name: str) -> None:
        self.__name__ = name


Structs = dict[str, dict[str, FieldVersions]]
Message = tuple[str, list[str], Structs, int]
"""Name, constants, structs by name and the last version."""


def read_release(release: str) -> dict[str, Schema]:
    """Return the schemas of a release by the name of the message."""
    schemas = {}
    jar = ROOT / "build/kafka" / release / "libs" / f"kafka-clients-{release}.jar"
    with ZipFile(jar) as files:
        for name in files.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = re.sub(r"(^|\s)//.*$", "", files.read(name).decode(), flags=re.MULTILINE)
                schema: Schema = json.loads(text)
                if schema["validVersions"] != "none":
                    schemas[schema["name"]] = schema
    return schemas


def span(text: str, within: tuple[int, int]) -> range:
    """Return the versions of `3+`, `3`, `3-5` or `none` that are also `within`."""
    if text == "none":
        return range(0)
    first, _, last = text.rstrip("+").partition("-")
    end = within[1] if text.endswith("+") else int(last or first)
    return range(max(int(first), within[0]), min(end, within[1]) + 1)


def valid(schema: Schema) -> tuple[int, int]:
    """Return the first and the last version of a message."""
    versions = span(schema["validVersions"], (0, 10**6))
    return versions[0], versions[-1]


def snake(name: str) -> str:
    """Return the project's name of a field or an API."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def declared_structs(schema: Schema) -> dict[str, list[Schema]]:
    """Return the fields of the structs that a message declares, by name."""
    structs: dict[str, list[Schema]] = {}
    to_visit = [*schema.get("commonStructs", []), *schema["fields"]]
    while to_visit:
        field = to_visit.pop()
        if inner := field.get("fields"):
            structs[field.get("type", field["name"]).removeprefix("[]")] = inner
            to_visit += inner
    return structs


def wire_shape(schema: Schema, version: int) -> list[Any]:
    """Return the types of the fields of one version, in their order, and what else is written."""
    structs = declared_structs(schema)
    is_flexible = version in span(schema.get("flexibleVersions", "none"), valid(schema))

    def shape(fields: list[Schema]) -> Iterator[Any]:
        for field in fields:
            if version not in span(field.get("versions", "0+"), (version, version)):
                continue
            tag = None
            if "tag" in field and is_flexible:
                tag = field["tag"]
            elif "tag" in field:
                continue
            kind = field["type"].removeprefix("[]")
            inner = structs.get(kind)
            yield (
                field["type"].startswith("[]"),
                list(shape(inner)) if inner else kind,
                version in span(field.get("nullableVersions", "none"), (version, version)),
                tag,
            )

    return [is_flexible, *shape(schema["fields"])]


def newest_schemas() -> dict[str, Schema]:
    """Return the newest schema of each message.

    Raises:
        ValueError: a release has changed a version that an older one has.
    """
    result: dict[str, Schema] = {}
    for release in RELEASES:
        for name, schema in read_release(release).items():
            newer = result.setdefault(name, schema)
            first, last = valid(schema)
            for version in range(first, last + 1):
                is_kept = version in span(newer["validVersions"], (version, version))
                if not is_kept or wire_shape(newer, version) != wire_shape(schema, version):
                    raise ValueError(f"{name} {version} of {release} differs in {RELEASES[0]}")
    return result


def plain(field: Schema) -> Any:
    """Return a schema's default as a Python value; MISSING for the zero of the type."""
    text = field.get("default")
    if text is None:
        return MISSING
    if text == "null":
        return None
    if field["type"] == "bool":
        return str(text).lower() == "true"
    if field["type"] == "string":
        return text
    if field["type"].startswith(("int", "uint")):
        return int(str(text), 0)
    raise ValueError(f"{field['name']}: a default of type {field['type']}")


def read_struct(
    name: str,
    fields: list[Schema],
    versions: tuple[int, int],
    flexible: range,
    structs: Structs,
    declared: Mapping[str, list[Schema]],
) -> None:
    """Add a struct, and the structs in it, to the known ones."""
    known = structs.setdefault(name, {})
    for field in fields:
        within = span(field.get("versions", "0+"), versions)
        if "tag" in field:
            within = range(max(within.start, flexible.start), min(within.stop, flexible.stop))
        if not within:
            continue
        # A struct may be the type of several fields, which have different versions.
        field_name = snake(field["name"])
        entry = known.setdefault(field_name, FieldVersions(field_name))
        entry.versions = sorted({*entry.versions, *within})
        inside = (within[0], within[-1])
        entry.nullable = sorted(
            {*entry.nullable, *span(field.get("nullableVersions", "none"), inside)}
        )
        if "tag" in field:
            tagged = sorted({*entry.tags, *span(field["taggedVersions"], inside)})
            entry.tags = dict.fromkeys(tagged, field["tag"])
        kind = field["type"].removeprefix("[]")
        entry.is_array = kind != field["type"]
        entry.default = plain(field)
        entry.kind = kind
        if kind in declared:
            entry.kind = Struct(kind)
            read_struct(kind, declared[kind], inside, flexible, structs, declared)


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
    structs: Structs,
    constants: list[str],
    last: int,
    indent: str,
    path: str,
) -> Iterator[str]:
    """Return the source of a class and of the classes inside it."""
    entries = list(structs[name].values())
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


def load(schema: Schema) -> Message:
    """Return all versions of one message."""
    versions = valid(schema)
    flexible = span(schema.get("flexibleVersions", "none"), versions)
    structs: Structs = {}
    declared = declared_structs(schema)
    read_struct(schema["name"], schema["fields"], versions, flexible, structs, declared)
    constants = [f"FIRST_VERSION = {versions[0]}", f"LAST_VERSION = {versions[1]}"]
    if flexible:
        constants.append(f"FLEXIBLE_FROM = {flexible[0]}")
    return schema["name"], constants, structs, versions[1]


def source(message: Message, api_key: int | None) -> str:
    """Return a message class as source."""
    name, constants, structs, last = message
    if api_key is not None:
        constants = [f"API_KEY = {api_key}", *constants]
    return "\n".join(emit_class(name, structs, constants, last, "", name)) + "\n"


def write(path: Path, title: str, bodies: list[str], origin: str = "the published schemas") -> None:
    """Write a module of message classes."""
    body = "\n\n".join(bodies)
    head = HEAD.format(title=title, imports=imports_for(body), origin=origin)
    path.write_text(head + "\n\n" + body)


def read_field(line: str, last: int) -> FieldVersions:
    """Read one field line of a schema file of our own."""
    name, kind, *options = line.split()
    entry = FieldVersions(name)
    entry.is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    entry.kind = Struct(kind) if kind[0].isupper() else kind
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
        structs: Structs = {name: {}}
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
        text = "\n".join(emit_class(name, structs, constants, last, "", name)) + "\n"
        modules.setdefault(module, []).append(text)
    return modules


def main() -> None:
    """Generate all modules of message classes."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "__init__.py").write_text(
        '"""Message classes, one module per API; generated by tools/generate_messages.py."""\n'
    )
    schemas = newest_schemas()
    for schema in schemas.values():
        if schema["type"] == "request":
            api, key = schema["name"].removesuffix("Request"), schema["apiKey"]
            pair = [schema, schemas[f"{api}Response"]]
            bodies = [source(load(message), key) for message in pair]
            write(OUT / f"{snake(api)}.py", f"{snake(api)} (API key {key}).", bodies)
    for name, messages in DATA_MODULES.items():
        bodies = [source(load(schemas[message]), None) for message in messages]
        write(OUT / f"{name}.py", name.replace("_", " ").capitalize() + ".", bodies)
    principal = source(load(schemas["DefaultPrincipalData"]), None)
    write(OUT / "default_principal_data.py", "Principal inside an Envelope.", [principal])
    here = Path(__file__).parent
    for module, bodies in read_schemas(here / "record_schemas.txt").items():
        write(OUT / f"{module}.py", module.replace("_", " ").capitalize() + ".", bodies)
    private = here / "private_schemas.txt"
    for module, bodies in read_schemas(private).items():
        title = f"{module}, one of Spindle's own APIs."
        write(OUT / f"{module}.py", title, bodies, f"tools/{private.name}")


if __name__ == "__main__":
    main()
