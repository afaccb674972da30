"""Names of fields: which of them a column can have, and which of them clash in a table."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

MAX_NAME_BYTES: Final = 1000
"""The length of a name in UTF-8. Names stand in the log of a table and in each of its files."""


def name_fault(name: str) -> str | None:
    """Return why no column can have this name, None if one can."""
    if not name:
        return "a field has an empty name"
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        return f"the field name {shown_name(name)} is not UTF-8"
    if size_bytes > MAX_NAME_BYTES:
        return (
            f"the field name {shown_name(name)} has {size_bytes} bytes, more than {MAX_NAME_BYTES}"
        )
    if "\0" in name:
        return f"the field name {shown_name(name)} has the character U+0000, which ends names"
    return None


def check_names(kind: Any) -> None:
    """Refuse a type with a field that no column can be, at any depth.

    Raises:
        ValueError: as `name_fault` says.
    """
    for struct in structs_within(kind):
        for field in struct:
            fault = name_fault(field.name)
            if fault is not None:
                raise ValueError(fault)


def structs_within(kind: Any) -> Iterator[Any]:
    """Yield the struct types in a type, outer ones first; a struct itself is the first."""
    if pa.types.is_struct(kind):
        yield kind
        for field in kind:
            yield from structs_within(field.type)
    elif pa.types.is_list(kind):
        yield from structs_within(kind.value_type)
    elif pa.types.is_map(kind):
        yield from structs_within(kind.key_type)
        yield from structs_within(kind.item_type)


def same_but_for_case(kind: Any) -> str | None:
    """Return a name that differs from one beside it in upper and lower case only, at any depth.

    None: there is no such name.
    """
    for struct in structs_within(kind):
        seen: set[str] = set()
        for field in struct:
            if field.name.lower() in seen:
                return str(field.name)
            seen.add(field.name.lower())
    return None


def shared_path(fields: Iterable[Any]) -> str | None:
    """Return a path with dots that two fields have, at any depth; None if all paths differ.

    Elements of lists are `element`, keys and values of maps `key` and `value`, as Iceberg names
    them.
    """
    seen: set[str] = set()
    for path in _paths("", fields):
        if path in seen:
            return path
        seen.add(path)
    return None


def _paths(prefix: str, fields: Iterable[Any]) -> Iterator[str]:
    for field in fields:
        path = f"{prefix}{field.name}"
        yield path
        yield from _paths_within(path, field.type)


def _paths_within(path: str, kind: Any) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _paths(f"{path}.", kind)
    elif pa.types.is_list(kind):
        yield from _paths(f"{path}.", [pa.field("element", kind.value_type)])
    elif pa.types.is_map(kind):
        inner = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
        yield from _paths(f"{path}.", inner)


def shown_name(name: str) -> str:
    """Return a name for a message: quoted, of at most 60 characters."""
    text = repr(name)
    text = text if len(text) <= 60 else f"{text[:60]}..."
    return text.encode(errors="backslashreplace").decode()
