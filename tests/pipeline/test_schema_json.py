"""JSON values as typed columns: the fast and the slow reader agree, and bad values stay alone."""

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.pipeline.schemas import JsonDecoder, ddl_type

COLUMNS = ddl_type(
    "id BIGINT, small TINYINT, name STRING, price DECIMAL(10, 2), ratio DOUBLE, near FLOAT, "
    "at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, ok BOOLEAN, tags ARRAY<STRING>, "
    "place STRUCT<x: DOUBLE, seen: TIMESTAMP>, steps ARRAY<STRUCT<n: INT, on: DATE>>"
)

NAMES_OF_COLUMNS = {field.name for field in COLUMNS}


def rows_of(decoder: JsonDecoder, values: Sequence[bytes | None]) -> list[tuple[Any, str | None]]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    assert decoded.columns.type == decoder.type
    errors = [None] * len(values) if decoded.errors is None else decoded.errors.to_pylist()
    return list(zip(decoded.columns.to_pylist(), errors, strict=True))


def row_of(text: str | bytes, columns: str) -> tuple[Any, str | None]:
    value = text if isinstance(text, bytes) else text.encode()
    return rows_of(JsonDecoder(ddl_type(columns)), [value])[0]


TIMES = (
    "2020-01-01T10:00:00.123456789Z", "2020-01-01t10:00:00z", "2020-01-01T10:00:00.1234567+01:00",
    "2020-01-01T10:00:00.1234567z\n", "2020-01-01T24:00:00Z", "2020-01-01T23:59:60Z", "10:00:00",
    "2020-01-01T10:00:00.Z", "+10000-01-01T00:00:00Z", "0000-01-01T00:00:00.0000000Z",
)  # fmt: skip
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["2020-01-01", "2020-01-01T10:00:00Z", "2020-01-01 10:00:00", "1.25", "NaN"])
    | st.sampled_from(TIMES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "seen", "n", "on", "z"]), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from([*(field.name for field in COLUMNS), "unknown"])
OBJECTS = st.dictionaries(NAMES, JSON_VALUES, max_size=6).map(lambda o: json.dumps(o).encode())
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            b"{",
            b"}",
            b"[",
            b"]",
            b'"id"',
            b":",
            b"1",
            b",",
            b'"',
            b"\n",
            b" ",
            b"Inf",
            b"NaN",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\\ud800",
            b"-",
            b"1e999",
            b'"a"',
            b"0",
            b"null",
            b"\x00",
        ]
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=40)
@given(st.lists(st.none() | OBJECTS | FRAGMENTS | st.binary(max_size=8), max_size=12))
def test_a_value_has_the_same_row_alone_and_beside_others(values: list[bytes | None]) -> None:
    for refuse_unknown in (False, True):
        decoder = JsonDecoder(COLUMNS, refuse_unknown)
        alone = [rows_of(decoder, [value])[0] for value in values]
        assert repr(rows_of(decoder, values)) == repr(alone)
        assert all(
            row is not None or value is None or error
            for (row, error), value in zip(alone, values, strict=True)
        )


@settings(max_examples=40)
@given(st.lists(OBJECTS | FRAGMENTS, max_size=6))
def test_the_slow_reader_accepts_what_the_fast_one_accepts(values: list[bytes]) -> None:
    fast, slow = (
        JsonDecoder(COLUMNS),
        JsonDecoder(pa.struct([*COLUMNS, pa.field("a map", pa.map_(pa.string(), pa.string()))])),
    )
    for (row, error), (other, _) in zip(rows_of(fast, values), rows_of(slow, values), strict=True):
        if error is None:
            assert other is not None
            other.pop("a map")
            assert repr(other) == repr(row)


@settings(max_examples=40)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "id": st.integers(-(2**63), 2**63 - 1),
                "small": st.integers(-128, 127),
                "name": st.text(st.characters(codec="utf-8")),
                "ratio": st.floats(allow_nan=False, allow_infinity=False),
                "ok": st.booleans(),
                "tags": st.lists(st.none() | st.text(st.characters(codec="utf-8"))),
                "steps": st.lists(st.none() | st.fixed_dictionaries({"n": st.none() | st.just(3)})),
            },
        )
    )
)
def test_rows_come_back_as_they_were_written(rows: list[dict[str, Any]]) -> None:
    read = rows_of(JsonDecoder(COLUMNS), [json.dumps(row).encode() for row in rows])
    for row, (item, error) in zip(rows, read, strict=True):
        assert error is None
        for name, value in row.items():
            if name == "steps":
                value = [item and {**item, "on": None} for item in value]
            assert item[name] == value


def test_every_type_has_its_form() -> None:
    row = {
        "price": Decimal("1.20"),
        "at": datetime(2020, 1, 1, 8, 30, tzinfo=UTC),
        "wall": datetime(2020, 1, 1, 10),
        "day": date(2020, 2, 29),
        "place": {"x": 1.0, "seen": datetime(2020, 1, 1, tzinfo=UTC)},
        "steps": [{"n": None, "on": date(2020, 1, 2)}, None],
    }
    text = (
        '{"price": 1.2, "at": "2020-01-01T10:00:00+01:30", "wall": "2020-01-01 10:00:00", '
        '"day": "2020-02-29", "place": {"x": 1, "seen": "2020-01-01T00:00:00"}, '
        '"steps": [{"on": "2020-01-02"}, null]}'
    )
    (decoded, error), (_, bad) = rows_of(JsonDecoder(COLUMNS), [text.encode(), b"{"])
    assert error is None
    assert bad is not None
    assert {name: decoded[name] for name in row} == row
    assert {
        name for name, value in decoded.items() if value is None
    } == NAMES_OF_COLUMNS - row.keys()
    assert row_of('{"b": "AAE=", "m": {"k": 1, "l": null}}', "b BINARY, m MAP<STRING, INT>") == (
        {"b": b"\0\1", "m": [("k", 1), ("l", None)]},
        None,
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id":1', "not JSON: Expecting ',' delimiter at character 7"),
        ("", "not JSON: Expecting value at character 0"),
        ("[]", "[] is not an object"),
        ("null", "null is not an object"),
        ('{"id":1}{"id":2}', "not JSON: Extra data at character 8"),
        ('{"id":1.0}', "id: 1.0 is not an integer"),
        ('{"id":9223372036854775808}', "id: 9223372036854775808 does not fit into 64 bits"),
        ('{"small":128}', "small: 128 does not fit into 8 bits"),
        ('{"id":1,"id":2}', "the key 'id' occurs twice"),
        ('{"ratio":NaN}', "ratio: NaN is not a finite number"),
        ('{"ratio":1e999}', "ratio: 1e999 is not a finite number"),
        ('{"near":1e39}', "near: 1e39 is not a finite number that fits into float"),
        (b'{"name":"\xff"}', "not UTF-8: byte 0xff at position 9"),
        ('{"name":"\\ud800"}', "name: half of a surrogate pair is not text"),
        ('{"price":1.255}', "price: 1.255 does not fit into decimal128(10, 2)"),
        ('{"ok":"true"}', 'ok: "true" is neither true nor false'),
        ('{"day":"2021-02-29"}', 'day: "2021-02-29" is not an ISO 8601 text for date32[day]'),
        ('{"steps":[null,{"n":"x"}]}', 'steps[1].n: "x" is not an integer'),
        ('{"place":[]}', "place: [] is not an object"),
        ('{"id":' + "[" * 100_000, "nested too deep"),
    ],
)
def test_a_bad_value_has_a_reason(text: str | bytes, reason: str) -> None:
    value = text if isinstance(text, bytes) else text.encode()
    good = b'{"id": 7}'
    first, bad, last = rows_of(JsonDecoder(COLUMNS), [good, value, good])
    assert bad == (None, reason)
    assert first == last
    assert first[0]["id"] == 7


def test_a_text_column_takes_every_json_value_without_loss() -> None:
    for text in ("1.50", "12345678901234567890123", '{"a":[1,true,null,"x"]}', "false"):
        assert row_of(f'{{"v": {text}}}', "v STRING") == ({"v": text}, None)


def test_unknown_fields_are_left_out_or_refused() -> None:
    values: list[bytes | None] = [b'{"a": 1, "b": {"c": NaN}}', b'{"a": 2}', None]
    kind = ddl_type("a INT")
    assert rows_of(JsonDecoder(kind), values) == [({"a": 1}, None), ({"a": 2}, None), (None, None)]
    assert rows_of(JsonDecoder(kind, refuse_unknown=True), values) == [
        (None, "the field 'b' is not in the schema"),
        ({"a": 2}, None),
        (None, None),
    ]


def test_white_space_and_a_byte_order_mark_do_not_matter() -> None:
    for text in ('\ufeff{"a": 1}', ' \r\n{"a":\n1}\n', '{"a": 1}\t'):
        assert row_of(text, "a INT") == ({"a": 1}, None)


def test_values_that_look_like_neighbours_do_not_shift_rows() -> None:
    """A value with two objects, and one that is empty, are as many rows as two values."""
    values: list[bytes | None] = [b'{"a":1}\n{"a":2}', b"", b'{"a":3}', b'{"a":"}', b'{"a":4}']
    rows = rows_of(JsonDecoder(ddl_type("a INT")), values)
    assert [row and row["a"] for row, _ in rows] == [None, None, 3, None, 4]


def test_a_huge_document_is_read() -> None:
    name = "x" * 20_000_000
    assert row_of(json.dumps({"name": name}), "name STRING") == ({"name": name}, None)


def test_one_bad_value_in_many_is_found() -> None:
    values: list[bytes | None] = [b'{"id": %d}' % number for number in range(5000)]
    values[4321] = b'{"id": "x"}'
    rows = rows_of(JsonDecoder(COLUMNS), values)
    assert [index for index, (_, error) in enumerate(rows) if error] == [4321]
    assert sum(row["id"] for row, _ in rows if row) == 5000 * 4999 // 2 - 4321


def test_a_sliced_batch_gives_its_own_rows() -> None:
    values = pa.array([b'{"id": %d}' % n for n in range(9)] + [None], pa.binary())
    decoded = JsonDecoder(COLUMNS).decode(values[3:])
    assert [row and row["id"] for row in decoded.columns.to_pylist()] == [3, 4, 5, 6, 7, 8, None]
    empty = JsonDecoder(COLUMNS).decode(values[3:3])
    assert (len(empty.columns), empty.errors) == (0, None)


def test_a_decoder_is_picklable_and_refuses_types_that_json_lacks() -> None:
    decoder = JsonDecoder(COLUMNS, refuse_unknown=True)
    assert pickle.loads(pickle.dumps(decoder)) == decoder
    with pytest.raises(ValueError, match="keys of JSON objects are text"):
        JsonDecoder(ddl_type("m MAP<INT, INT>"))
    with pytest.raises(ValueError, match="cannot be read into a column of type"):
        JsonDecoder(pa.struct([("t", pa.duration("s"))]))


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-01-01T00:00:00.123456Z", 123456),
        ("2026-01-01T00:00:00.123456789Z", 123456),
        ("2026-01-01T00:00:00.1234567+00:00", 123456),
        ("2026-01-01 00:00:00.9999999", 999999),
        ("2026-01-01t00:00:00z", 0),
        ("2026-01-01t01:00:00.12345678901+01:00", 123456),
        ("2025-12-31T23:59:59.9999999z", -1),
        ("2026-01-01T24:00:00Z", None),
        ("2025-12-31T23:59:60Z", None),
        ("00:00:00", None),
        ("2026-01-01T00:00:00.1234567Zz", None),
        ("+12026-01-01T00:00:00Z", None),
        ("2026-01-01T00:00:00.1234567Z ", None),
    ],
)
def test_times_are_taken_in_the_spellings_of_rfc_3339_and_cut_to_microseconds(
    text: str, microseconds: int | None
) -> None:
    """A DATE takes no time; others that are no times are bad, in a batch as alone."""
    values = [json.dumps({"at": time}).encode() for time in (text, "2026-01-01T00:00:00Z")]
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for batch in (values, values[:1]):
        row, error = rows_of(JsonDecoder(ddl_type("at TIMESTAMP")), batch)[0]
        if microseconds is None:
            assert row is None
            assert "is not an ISO 8601 text for timestamp" in str(error)
        else:
            assert row == {"at": begin + timedelta(microseconds=microseconds)}
    assert row_of(values[0], "at DATE")[0] is None
