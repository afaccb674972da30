"""The options of an export that merges: one row for each key (`mode="upsert"`)."""

from dataclasses import replace
from typing import Final, Literal, TypedDict

import pyarrow as pa

from spindle.columnar.columns import listed_names
from spindle.pipeline.export.changes import DELETED, ENVELOPES, ChangeRule, Envelope
from spindle.pipeline.export.row_format import ENCODINGS, RowFormat
from spindle.pipeline.schemas.json_values import JsonDecoder

Mode = Literal["append", "upsert"]
MODES: Final = ("append", "upsert")


class MergeOptions(TypedDict, total=False):
    """The keyword arguments of an export about the key of its rows.

    key: how the table stores keys: `binary`, or `string` for keys that are UTF-8. With mode
        `upsert` also the comma list of the columns that are the key; otherwise the key of the
        record is.
    mode: `append` a row for each record (the default), or `upsert`: one row for each key, with its
        latest value; a record without a value deletes the row.
    envelope: `debezium` or `maxwell` for JSON values that are events of these; with `upsert`.
    order_by: with `upsert`, columns whose greatest values win. Without them the last record wins.
        Deleted rows stay, with `__deleted` true, so that an older change does not bring them back.
    """

    key: str
    mode: Mode
    envelope: Envelope
    order_by: str


def change_rule(given: MergeOptions) -> ChangeRule | None:
    """Return the rule of the changes before the rows are known, None for an export that appends.

    Raises:
        ValueError: an unknown mode or envelope, an option without use, or a key of equal columns.
    """
    if not is_upsert(given):
        return None
    _, key_columns = key_of_rows(given)
    return ChangeRule(key_columns, given.get("envelope", "none"), _order(given))


def is_upsert(given: MergeOptions) -> bool:
    """Return whether an export has one row for each key.

    Raises:
        ValueError: an unknown mode or envelope, or an option that has no use without `upsert`.
    """
    mode, envelope = given.get("mode", "append"), given.get("envelope", "none")
    for name, value, known in (("mode", mode, MODES), ("envelope", envelope, ENVELOPES)):
        if value not in known:
            raise ValueError(f"{name}={value!r} is none of {', '.join(known)}")
    if mode == "upsert":
        return True
    for name, has_value in (("envelope", envelope != "none"), ("order_by", "order_by" in given)):
        if has_value:
            raise ValueError(f"{name} has no use without mode='upsert'")
    return False


def key_of_rows(given: MergeOptions) -> tuple[str, tuple[str, ...]]:
    """Return how the key of the record is stored, and the columns that are the key of a row."""
    key = given.get("key", "binary")
    if not is_upsert(given) or key in ENCODINGS:
        return key, ("key",)
    columns = tuple(listed_names(key))
    if len(set(columns)) < len(columns) or not all(columns):
        raise ValueError(f"key={key!r}: want different columns, with commas between them")
    return "binary", columns


def _order(given: MergeOptions) -> tuple[str, ...]:
    text = given.get("order_by")
    return () if text is None else tuple(listed_names(text))


def rule_for_rows(rule: ChangeRule, rows: RowFormat) -> tuple[ChangeRule, RowFormat]:
    """Return the rule with what it has to know of the rows, and the rows with the mark of deleted.

    Raises:
        ValueError: the rows lack a column of the key or the order, or its type has no order; or
            the values are not JSON, of which an envelope is.
    """
    schema = rows.schema()
    if rows.decoding.keeps_bad:
        raise ValueError("mode='upsert' and the option badRecords=permissive exclude each other")
    for option, names in (("key", rule.key_columns), ("order_by", rule.order_by)):
        for column in names:
            if column not in schema.names:
                raise ValueError(
                    f"{option}: {column!r} is no column of the table; want some of "
                    f"{', '.join(schema.names)}"
                )
            kind = schema.field(column).type
            if pa.types.is_nested(kind) or (option == "key" and pa.types.is_floating(kind)):
                raise ValueError(
                    f"{option}: the column {column} is of type {kind}, which is no key"
                )
    of_values = {
        place.field.name
        for place in rows.decoding.places(rows.columns)
        if place.origin == "value" and place.field_index is not None
    }
    decoders = {part.name: part.decoder for part in rows.decoding.parts}
    if rule.envelope != "none" and not isinstance(decoders.get("value"), JsonDecoder):
        raise ValueError(f"envelope={rule.envelope!r}: want valueFormat=json, without a registry")
    value_keys = tuple(column for column in rule.key_columns if column in of_values)
    text_keys = frozenset(
        name for name in value_keys if pa.types.is_string(schema.field(name).type)
    )
    rule = replace(rule, value_keys=value_keys, text_keys=text_keys)
    if rule.order_by:
        rows = replace(rows, added=(*rows.added, pa.field(DELETED, pa.bool_())))
    return rule, rows
