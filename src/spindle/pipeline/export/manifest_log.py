"""The log of a plain Parquet table: one JSON manifest for each commit.

    TABLE/_spindle/log/00000000000000000007.json       a commit: files added and removed, coverage
    TABLE/_spindle/log/00000000000000000063.state.json the sum of all commits up to this one

A manifest appears under its number at once and only if that number is free (a hard link), so of two
writers one succeeds and the other one sees what the first one did.
"""

import base64
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spindle.common.uuids import Uuid
from spindle.pipeline.export.coverage_text import (
    coverage_json,
    parse_coverage,
    parse_topics,
    topics_json,
)
from spindle.pipeline.export.model import Coverage, PartitionIdentity
from spindle.pipeline.export.paths import sync_directory

HIDDEN: Final = "_spindle"
"""Spark and other readers of directories skip names that begin with an underscore."""

_STATE_EVERY: Final = 64
_FORMAT: Final = 1


class LogCorrupt(Exception):
    """A manifest cannot be read, or is of a newer version of Spindle."""


@dataclass(slots=True)
class TableState:
    """A version of a table: the sum of its manifests.

    `files` has the number of rows of each file by its name, `removed` the time (ms) at which a file
    was removed from the table; it stays on the disk until a vacuum.
    """

    version: int
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    files: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    coverage: dict[PartitionIdentity, Coverage] = field(default_factory=dict)
    topics: dict[str, Uuid] = field(default_factory=dict)
    merge_key: str | None = None
    retry_mark: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The changes of one commit. `forgotten` names removed files that a vacuum has deleted."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    added: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    coverage: Mapping[PartitionIdentity, Coverage] = field(default_factory=dict)
    topics: Mapping[str, Uuid] = field(default_factory=dict)
    merge_key: str | None = None
    retry_mark: int | None = None


def log_directory(table: Path) -> Path:
    """Return the directory of the manifests."""
    return table / HIDDEN / "log"


def read_state(table: Path, version: int | None = None) -> TableState | None:
    """Return the newest version of a table or a given one; None if there is none.

    Raises:
        LogCorrupt: a manifest cannot be read.
    """
    log = log_directory(table)
    newest = _newest(log) if version is None else version
    if newest is None or not (log / _name(newest)).exists():
        return None
    state: TableState | None = None
    first = 0
    for number in sorted(_numbers(log, ".state.json"), reverse=True):
        if number <= newest:
            state, first = _state(_read(log / _name(number, ".state.json")), number), number + 1
            break
    for number in range(first, newest + 1):
        state = _apply(state, number, _read(log / _name(number)))
    return state


def commit_time_ms(table: Path, version: int) -> int:
    """Return the time at which a version was committed, in ms since 1970.

    Raises:
        LogCorrupt: its manifest cannot be read.
    """
    return int(_read(log_directory(table) / _name(version))["time_ms"])


def append(table: Path, version: int, manifest: Manifest) -> bool:
    """Write the manifest of a version durably; return False if another writer has written it.

    Raises:
        OSError: the manifest cannot be written.
    """
    log = log_directory(table)
    log.mkdir(parents=True, exist_ok=True)
    content = {
        "format": _FORMAT,
        "time_ms": time.time_ns() // 1_000_000,
        "schema": _schema_text(manifest.schema),
        "partition_by": manifest.partition_by,
        "added": dict(manifest.added),
        "removed": manifest.removed,
        "forgotten": manifest.forgotten,
        "coverage": coverage_json(manifest.coverage),
        "topics": topics_json(manifest.topics),
    }
    if manifest.merge_key is not None:
        content["merge_key"] = manifest.merge_key
    if manifest.retry_mark is not None:
        content["retry_mark"] = manifest.retry_mark
    if not _write_once(log, _name(version), content):
        return False
    if version % _STATE_EVERY == _STATE_EVERY - 1:
        state = read_state(table, version)
        assert state is not None
        _write_once(log, _name(version, ".state.json"), _state_json(state))
    return True


def _write_once(log: Path, name: str, content: Mapping[str, Any]) -> bool:
    temporary = log / f".{name}.{secrets.token_hex(6)}"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, log / name)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(log)
    return True


def _name(version: int, ending: str = ".json") -> str:
    return f"{version:020d}{ending}"


def _numbers(log: Path, ending: str) -> Iterator[int]:
    if log.is_dir():
        for path in log.iterdir():
            stem = path.name.removesuffix(ending)
            if path.name.endswith(ending) and stem.isdecimal():
                yield int(stem)


def _newest(log: Path) -> int | None:
    return max(_numbers(log, ".json"), default=None)


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LogCorrupt(f"{path}: {error}") from error
    if content.get("format") != _FORMAT:
        raise LogCorrupt(f"{path}: format {content.get('format')!r}; this version reads {_FORMAT}")
    return content


def _apply(state: TableState | None, version: int, content: dict[str, Any]) -> TableState:
    schema, partition_by = _schema(content["schema"]), tuple(content["partition_by"])
    after = state or TableState(version, schema)
    after.version, after.schema, after.partition_by = version, schema, partition_by
    for name in content["removed"]:
        after.files.pop(name, None)
        after.removed[name] = content["time_ms"]
    for name in content["forgotten"]:
        after.removed.pop(name, None)
    after.files.update(content["added"])
    after.coverage.update(parse_coverage(content["coverage"]))
    after.topics.update(parse_topics(content["topics"]))
    after.merge_key = content.get("merge_key", after.merge_key)
    after.retry_mark = content.get("retry_mark", after.retry_mark)
    return after


def _state_json(state: TableState) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "schema": _schema_text(state.schema),
        "partition_by": state.partition_by,
        "files": state.files,
        "removed": state.removed,
        "coverage": coverage_json(state.coverage),
        "topics": topics_json(state.topics),
        "merge_key": state.merge_key,
        "retry_mark": state.retry_mark,
    }


def _state(content: dict[str, Any], version: int) -> TableState:
    return TableState(
        version,
        _schema(content["schema"]),
        tuple(content["partition_by"]),
        content["files"],
        content["removed"],
        parse_coverage(content["coverage"]),
        parse_topics(content["topics"]),
        content.get("merge_key"),
        content.get("retry_mark"),
    )


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
