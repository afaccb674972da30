"""Records that are changes of rows: which row a record writes or deletes, and by which key.

A record with a value writes the row of its key, and one without a value (a tombstone) deletes it.
The envelopes of Debezium and Maxwell say it in their values: the row is taken out of them, as the
JSON text that it is, so that no digit changes.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # absent from typeshed
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spindle.pipeline.schemas.decoding import BadValue, merged_errors, shown

Envelope = Literal["none", "debezium", "maxwell"]
ENVELOPES: Final = ("none", "debezium", "maxwell")
DELETED: Final = "__deleted"
"""The column that marks deleted rows in a table with `order_by`."""
STAGED: Final = {
    "__spindle_delete": pa.bool_(),
    "__spindle_offset": pa.int64(),
    "__spindle_time": pa.int64(),
}
"""The columns behind those of the row in a file of changes that are not merged yet."""
IS_DELETE, OFFSET, TIME = STAGED

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODE: Final = json.JSONDecoder().raw_decode
_MAXWELL_ROWS: Final = frozenset({"insert", "update", "bootstrap-insert"})
_MAXWELL_KEY: Final = "pk."


class Change(NamedTuple):
    """A row to write or to delete: its JSON text, None where the key of the record is enough."""

    row: bytes | None
    is_delete: bool


class OpenedBatch(NamedTuple):
    """The changes in a batch of records.

    `rows` has the columns of the records with the rows in the place of the values. `indices` has
    the number of the record of each change: a record may be no change, or two. `reasons` is None,
    or has a text for each change that cannot be understood.
    """

    rows: Any
    indices: Any
    is_delete: Any
    reasons: Any | None

    def by_record(self, reasons: Any | None, records: int) -> Any | None:
        """Return the reasons of changes as those of their records; None if there is none."""
        if reasons is None or reasons.null_count == len(reasons):
            return None
        by_record: list[str | None] = [None] * records
        for index, reason in zip(self.indices.to_pylist(), reasons.to_pylist(), strict=True):
            by_record[index] = by_record[index] or reason
        return pa.array(by_record, pa.string())


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """How records become changes of the rows of a table. Tasks get it pickled.

    `key_columns` are the columns of the table that identify a row. Those in `value_keys` are fields
    of JSON values, and a tombstone has them in the key of the record; `text_keys` of them are text.
    `order_by` are the columns whose greatest values win; without them the last record wins.
    """

    key_columns: tuple[str, ...]
    envelope: Envelope = "none"
    order_by: tuple[str, ...] = ()
    value_keys: tuple[str, ...] = ()
    text_keys: frozenset[str] = frozenset()

    def opened(self, batch: Any) -> OpenedBatch:
        """Return the changes in a batch of records, which has the columns `key` and `value`."""
        values, keys = batch.column("value"), batch.column("key")
        if self.envelope == "none" and (values.null_count == 0 or not self.value_keys):
            indices = pa.array(range(batch.num_rows), pa.int64())
            return OpenedBatch(batch, indices, values.is_null(), None)
        indices, rows, deletes, reasons = [], [], [], []
        for index, (value, key) in enumerate(
            zip(values.to_pylist(), keys.to_pylist(), strict=True)
        ):
            reason = None
            try:
                changes = self._changes(value, key)
            except (BadValue, ValueError, RecursionError) as error:
                changes, reason = [Change(None, False)], str(error)
            for change in changes:
                indices.append(index)
                rows.append(change.row)
                deletes.append(change.is_delete)
                reasons.append(reason)
        taken = pa.array(indices, pa.int64())
        opened = batch.take(taken)
        column = opened.schema.get_field_index("value")
        opened = opened.set_column(column, "value", pa.array(rows, pa.binary()))
        has_reason = any(reason is not None for reason in reasons)
        faults = pa.array(reasons, pa.string()) if has_reason else None
        return OpenedBatch(opened, taken, pa.array(deletes, pa.bool_()), faults)

    def key_faults(self, rows: Any) -> Any | None:
        """Return why rows cannot be merged: a column of the key or of the order is null."""
        reasons = None
        for name in self.key_columns:
            reasons = merged_errors(
                reasons, _where(rows.column(name).is_null(), f"the key column {name} is null")
            )
        for name in self.order_by:
            reasons = merged_errors(
                reasons,
                _where(
                    rows.column(name).is_null(),
                    f"the column {name} is null, by which changes are ordered"
                    " (order_by='timestamp' orders tombstones, too)",
                ),
            )
        return reasons

    def sampled(self, batch: Any) -> Any:
        """Return the rows that records write, for the inference of a schema."""
        opened = self.opened(batch)
        return opened.rows.column("value").filter(pc.invert(opened.is_delete))

    def _changes(self, value: bytes | None, key: bytes | None) -> list[Change]:
        if value is None:
            # The event before it has deleted the row, with a value for the order.
            if self.order_by and self.envelope != "none":
                return []
            return [self._delete_by_record_key(key)]
        match self.envelope:
            case "debezium":
                return self._of_debezium(_text(value), key)
            case "maxwell":
                return self._of_maxwell(_text(value))
        return [Change(value, False)]

    def _of_debezium(self, text: str, key: bytes | None) -> list[Change]:
        event = _payload(members(text))
        if event is None:
            return [self._delete_by_record_key(key)]
        operation = _string(event.get("op"))
        match operation:
            case "c" | "r" | "u":
                row = event.get("after", "null")
                if row == "null":
                    raise BadValue(f"a Debezium event with op {operation!r} has no field after")
                return [Change(row.encode(), False)]
            case "d":
                row = event.get("before", "null")
                if row == "null":
                    return [self._delete_by_record_key(key)]
                return [Change(row.encode(), True)]
            case "m":
                return []
            case "t":
                raise BadValue("a Debezium event truncates the source table: empty the table")
        raise BadValue(
            "no Debezium event: the value has no field op"
            if operation is None
            else f"unknown op {shown(operation)!r} of a Debezium event"
        )

    def _of_maxwell(self, text: str) -> list[Change]:
        event = members(text)
        kind = _string(event.get("type"))
        if kind is None:
            raise BadValue("no Maxwell event: the value has no field type")
        if kind not in _MAXWELL_ROWS and kind != "delete":
            # Definitions of tables, and the marks around a bootstrap.
            return []
        row = event.get("data", "null")
        if row == "null":
            raise BadValue(f"a Maxwell event of type {kind!r} has no field data")
        if kind == "delete":
            return [Change(row.encode(), True)]
        old = members(event["old"]) if event.get("old", "null") != "null" else {}
        moved = [name for name in self.value_keys if name in old]
        if not moved:
            return [Change(row.encode(), False)]
        before = {**members(row), **{name: old[name] for name in moved}}
        return [Change(_object(before.items()), True), Change(row.encode(), False)]

    def _delete_by_record_key(self, key: bytes | None) -> Change:
        if not self.value_keys:
            return Change(None, True)
        if key is None:
            raise BadValue("a record without key and value deletes nothing")
        return Change(_object(self._key_members(_text(key)).items()), True)

    def _key_members(self, text: str) -> dict[str, str]:
        """Return the columns of the key from the key of a record, as JSON texts."""
        try:
            given = _payload(members(text)) or {}
        except BadValue:
            if len(self.value_keys) > 1:
                raise BadValue(
                    f"the key {shown(text)!r} of a tombstone is no JSON object with the fields "
                    f"{', '.join(self.value_keys)}"
                ) from None
            (name,) = self.value_keys
            return {name: self._scalar(name, text)}
        found_keys = {}
        for name in self.value_keys:
            value = given.get(name, given.get(f"{_MAXWELL_KEY}{name}"))
            if value is None:
                raise BadValue(f"the key {shown(text)!r} of a tombstone has no field {name!r}")
            found_keys[name] = value
        return found_keys

    def _scalar(self, name: str, text: str) -> str:
        try:
            parsed: Any = json.loads(text)
        except ValueError:
            return json.dumps(text)
        if name in self.text_keys and not isinstance(parsed, str):
            return json.dumps(text)
        return text


def members(text: str) -> dict[str, str]:
    """Return the members of a JSON object, each with its value as it is written.

    Raises:
        BadValue: no JSON object.
    """
    try:
        return dict(_members(text))
    except (ValueError, IndexError):
        raise BadValue(f"{shown(text)} is not a JSON object") from None


def _members(text: str) -> Iterable[tuple[str, str]]:
    place = _after_space(text, 0)
    if text[place] != "{":
        raise ValueError(text)
    place = _after_space(text, place + 1)
    while text[place] != "}":
        if text[place] != '"':
            raise ValueError(text)
        name, place = scanstring(text, place + 1)
        place = _after_space(text, place)
        if text[place] != ":":
            raise ValueError(text)
        start = _after_space(text, place + 1)
        _, end = _DECODE(text, start)
        yield name, text[start:end]
        place = _after_space(text, end)
        if text[place] == ",":
            place = _after_space(text, place + 1)
            if text[place] != '"':
                raise ValueError(text)
        elif text[place] != "}":
            raise ValueError(text)
    if _after_space(text, place + 1) != len(text):
        raise ValueError(text)


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return place if match is None else match.end()


def _payload(event: dict[str, str]) -> dict[str, str] | None:
    """Return the event without the schema that Connect's converter puts beside it; None if null."""
    if event.keys() != {"schema", "payload"}:
        return event
    return None if event["payload"] == "null" else members(event["payload"])


def _object(pairs: Iterable[tuple[str, str]]) -> bytes:
    return ("{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in pairs) + "}").encode()


def _string(value: str | None) -> str | None:
    parsed = None if value is None else json.loads(value)
    return parsed if isinstance(parsed, str) else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise BadValue(
            f"not UTF-8: byte 0x{value[error.start]:02x} at position {error.start}"
        ) from None


def _where(mask: Any, reason: str) -> Any | None:
    if not pc.any(mask, min_count=0).as_py():
        return None
    return pc.if_else(mask, pa.scalar(reason, pa.string()), pa.scalar(None, pa.string()))
