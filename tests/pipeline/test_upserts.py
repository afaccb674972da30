"""Exports with one row for each key: latest values, deletes, envelopes, orders and kills."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from export_doubles import FORMATS, table_of
from log_directory_files import ReplicaWriter, format_directory
from upserts import JSON, Killed, Upserts, in_this_process, kill_at

from spindle.common.ids import TopicPartition
from spindle.pipeline.export import ExportConflict, ExportRefused, merging, parquet_files
from spindle.pipeline.export.maintenance import compact_table, vacuum_table
from spindle.pipeline.schemas.rows import BadRecord


@pytest.fixture(autouse=True)
def tasks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)


@pytest.fixture(params=FORMATS)
def upserts(request: pytest.FixtureRequest, tmp_path: Any) -> Upserts:
    return Upserts(tmp_path, request.param)


@pytest.fixture
def in_delta(tmp_path: Any) -> Upserts:
    return Upserts(tmp_path, "delta")


def row(number: int, name: str) -> bytes:
    return json.dumps({"id": number, "name": name}).encode()


def test_the_table_has_the_latest_value_of_each_key_and_no_deleted_one(upserts: Upserts) -> None:
    for number in range(6):
        upserts.send(b"%d" % number, row(number, "first"), number % 2)
    upserts.send(b"1", row(1, "second"), 1)
    upserts.send(b"2", None, 0)
    result = upserts.run()
    assert (result.rows, result.deleted) == (5, 1)
    upserts.send(b"3", row(3, "third"), 1)
    upserts.send(b"0", None, 0)
    upserts.send(b"7", None, 1)
    result = upserts.run()
    assert (result.rows, result.deleted) == (1, 2)
    assert [(held["id"], held["name"]) for held in upserts.rows()] == [
        (1, "second"), (3, "third"), (4, "first"), (5, "first"),
    ]  # fmt: skip
    assert upserts.run().is_empty


def test_without_a_schema_the_key_of_the_record_is_the_key(upserts: Upserts) -> None:
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", b"")):
        upserts.send(key, value)
    upserts.run({"columns": "key,value,offset"}, offsets=2, key="string", value="string")
    assert upserts.rows() == [
        {"key": "a", "value": "3", "offset": 2},
        {"key": "c", "value": "", "offset": 4},
    ]


def test_a_key_of_several_columns_and_its_tombstone(upserts: Upserts) -> None:
    options = {
        "valueFormat": "json", "valueSchema": "tenant STRING, id BIGINT, n INT",
        "columns": "tenant,id,n",
    }  # fmt: skip
    for tenant, number, value in (("a", 1, 1), ("b", 1, 2), ("a", 2, 3), ("a", 1, 4)):
        upserts.send(b"", json.dumps({"tenant": tenant, "id": number, "n": value}).encode())
    upserts.send(b'{"tenant": "b", "id": 1}', None)
    upserts.run(options, key="tenant, id")
    assert [list(held.values()) for held in upserts.rows()] == [["a", 1, 4], ["a", 2, 3]]


def debezium(operation: str, before: Any, after: Any, with_schema: bool = False) -> bytes:
    event = {"before": before, "after": after, "op": operation, "ts_ms": 1}
    return json.dumps({"schema": {}, "payload": event} if with_schema else event).encode()


@pytest.mark.parametrize("with_schema", [False, True])
def test_events_of_debezium_become_rows(in_delta: Upserts, with_schema: bool) -> None:
    ada, bob, eve = (
        {"id": number, "name": name} for number, name in enumerate(("ada", "bob", "eve"))
    )
    key = b'{"schema":{},"payload":{"id":2}}' if with_schema else b'{"id": 2}'
    for event in (
        debezium("r", None, ada, with_schema),
        debezium("c", None, bob, with_schema),
        debezium("u", bob, {**bob, "name": "bert"}, with_schema),
        debezium("c", None, eve, with_schema),
        debezium("m", None, None, with_schema),
        debezium("d", {"id": 0, "name": None}, None, with_schema),
    ):
        in_delta.send(b"", event)
    in_delta.run(envelope="debezium")
    assert in_delta.rows() == [{"id": 1, "name": "bert"}, eve]
    # Compaction leaves the tombstone of a row that was deleted.
    in_delta.send(key, None)
    in_delta.run(envelope="debezium")
    assert in_delta.rows() == [{"id": 1, "name": "bert"}]


def maxwell(kind: str, data: Any, **more: Any) -> bytes:
    return json.dumps(
        {"database": "shop", "table": "t", "type": kind, "data": data, **more}
    ).encode()


def test_events_of_maxwell_become_rows_and_a_changed_key_leaves_none(in_delta: Upserts) -> None:
    for event in (
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", {"id": 1, "name": "ada"}),
        maxwell("insert", {"id": 2, "name": "bob"}),
        maxwell("update", {"id": 3, "name": "bob"}, old={"id": 2}),
        maxwell("update", {"id": 1, "name": "Ada"}, old={"name": "ada"}),
        maxwell("insert", {"id": 4, "name": "eve"}),
        maxwell("delete", {"id": 4, "name": "eve"}),
        maxwell("table-alter", None),
    ):
        in_delta.send(b"", event)
    in_delta.run(envelope="maxwell")
    assert in_delta.rows() == [{"id": 1, "name": "Ada"}, {"id": 3, "name": "bob"}]
    in_delta.send(b'{"database":"shop","table":"t","pk.id":3}', None)
    in_delta.run(envelope="maxwell")
    assert in_delta.rows() == [{"id": 1, "name": "Ada"}]


def test_numbers_keep_all_their_digits_on_the_way_out_of_an_envelope(in_delta: Upserts) -> None:
    options = {
        "valueFormat": "json",
        "valueSchema": "id BIGINT, n DECIMAL(30,20)",
        "columns": "id,n",
    }
    in_delta.send(
        b"", b'{"op": "c", "after": {"id": 9007199254740993, "n": 0.12345678901234567890}}'
    )
    in_delta.run(options, envelope="debezium")
    (only,) = in_delta.rows()
    assert only["id"] == 9007199254740993
    assert str(only["n"]) == "0.12345678901234567890"


def test_the_greatest_value_of_the_order_wins_whatever_comes_last(upserts: Upserts) -> None:
    options = {"valueFormat": "json", "valueSchema": "id BIGINT, n INT", "columns": "id,n"}

    def send(number: int, n: int) -> None:
        upserts.send(b"", json.dumps({"id": number, "n": n}).encode())

    for number, n in ((1, 5), (1, 3), (2, 1), (3, 7)):
        send(number, n)
    upserts.run(options, order_by="n")
    for number, n in ((1, 4), (2, 2), (3, 7), (4, 1), (4, 2)):
        send(number, n)
    result = upserts.run(options, order_by="n", offsets=1)
    assert [(held["id"], held["n"]) for held in upserts.rows()] == [(1, 5), (2, 2), (3, 7), (4, 2)]
    assert result.rows == 4, "an older change writes nothing"
    upserts.run({**options, "startingOffsets": "earliest"}, order_by="n")


def test_a_number_of_the_order_that_is_nan_is_the_greatest() -> None:
    # As it is within a portion, so that the rows do not depend on the sizes of portions.
    keys = [merging._order_key({"n": n}) for n in (float("nan"), 5.0, None)]
    assert keys[0] > keys[1] > keys[2]


def test_a_deleted_row_stays_deleted_if_an_older_change_comes_late(upserts: Upserts) -> None:
    options = {**JSON, "columns": "id,name,timestamp"}
    upserts.send(b"1", row(1, "new"), time_ms=2000)
    upserts.send(b"1", None, time_ms=3000)
    upserts.run(options, order_by="timestamp")
    upserts.send(b"1", row(1, "old"), time_ms=1000)
    upserts.run(options, order_by="timestamp")
    assert [(held["id"], held["__deleted"]) for held in upserts.rows()] == [(1, True)]
    upserts.send(b"1", row(1, "again"), time_ms=4000)
    upserts.run(options, order_by="timestamp")
    assert [(held["name"], held["__deleted"]) for held in upserts.rows()] == [("again", False)]


def test_changes_that_are_sent_again_change_nothing(upserts: Upserts) -> None:
    for _ in range(3):
        for number in range(4):
            upserts.send(b"", row(number, "ada"))
        upserts.send(b"2", None)
        upserts.run(offsets=3)
        assert [held["id"] for held in upserts.rows()] == [0, 1, 3]


def test_new_fields_become_columns_and_older_rows_have_nulls(upserts: Upserts) -> None:
    upserts.send(b"", row(1, "ada"))
    upserts.send(b"", row(2, "bob"))
    upserts.run()
    options = {**JSON, "valueSchema": "id BIGINT, name STRING, age INT", "columns": "id,name,age"}
    upserts.send(b"", b'{"id": 2, "name": "bob", "age": 7}')
    upserts.run(options)
    assert [held["age"] for held in upserts.rows()] == [None, 7]
    # An export of the older schema sets what it does not know to null.
    upserts.send(b"", row(2, "bert"))
    upserts.run()
    assert [(held["name"], held["age"]) for held in upserts.rows()] == [
        ("ada", None),
        ("bert", None),
    ]


def test_the_schema_of_events_is_inferred_and_grows(in_delta: Upserts) -> None:
    options = {"valueFormat": "json", "valueSchema": "infer", "columns": "value"}
    in_delta.send(b"", debezium("c", None, {"id": 1, "name": "ada"}))
    in_delta.run(options, envelope="debezium")
    in_delta.send(b"", debezium("u", None, {"id": 1, "name": "ada", "age": 8}))
    in_delta.send(b'{"id": 9}', None)
    in_delta.run(options, envelope="debezium")
    assert in_delta.rows() == [{"id": 1, "name": "ada", "age": 8}]


def test_rows_move_between_the_directories_of_their_values(upserts: Upserts) -> None:
    cities = ["a/b c%41", "ü, x", None]
    for city in [*cities, *reversed(cities)]:
        for number in (1, 2):
            upserts.send(b"", json.dumps({"id": number, "name": city}).encode())
        upserts.run(partition_by="name")
        assert [held["id"] for held in upserts.rows()] == [1, 2]
        if upserts.format != "parquet":
            assert {held["name"] for held in upserts.rows()} == {city}


# -- kills and others


def changes(rng: random.Random, upserts: Upserts, expected: dict[int, str], count: int) -> None:
    """Send random changes; `expected` is what they make of the rows."""
    for _ in range(count):
        number, name = rng.randrange(12), f"v{rng.randrange(1000)}"
        if rng.random() < 0.25:
            upserts.send(b"%d" % number, None, number % 2)
            expected.pop(number, None)
        else:
            upserts.send(b"%d" % number, row(number, name), number % 2)
            expected[number] = name


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.full)])
def test_a_run_that_is_killed_before_any_of_its_steps_is_continued_exactly(
    upserts: Upserts, stride: int
) -> None:
    rng, expected = random.Random(7), dict[int, str]()
    step = 0
    changes(rng, upserts, expected, 10)
    upserts.run()
    while True:
        changes(rng, upserts, expected, 6)
        killed = True
        try:
            with kill_at(step) as steps:
                upserts.run(offsets=4)
                killed = False
        except Killed:
            pass
        upserts.run(offsets=5)
        assert {held["id"]: held["name"] for held in upserts.rows()} == expected, step
        vacuum_table(upserts.format, upserts.path, hours=0)
        if not killed:
            break
        step += stride
    assert len(steps) >= 6
    live = {path.name for path in table_of(upserts.format, upserts.path).live_files()}
    assert upserts.files() == live, "nothing is left of killed runs"


@pytest.mark.parametrize("is_made", [False, True])
def test_a_run_that_is_killed_around_its_commit_is_continued(
    upserts: Upserts, is_made: bool
) -> None:
    def kill(commit: Callable[[], int]) -> int:
        if is_made:
            commit()
        raise Killed

    for number in range(3):
        upserts.send(b"", row(number, "ada"))
        with pytest.raises(Killed):
            upserts.run(commit=kill)
    upserts.send(b"1", None)
    upserts.run()
    assert [held["id"] for held in upserts.rows()] == [0, 2]


def test_of_two_merges_at_the_same_time_one_is_refused(upserts: Upserts) -> None:
    upserts.send(b"", row(1, "ada"))
    upserts.run()
    upserts.send(b"", row(1, "bob"))

    def second(commit: Callable[[], int]) -> int:
        upserts.run()
        upserts.send(b"", row(2, "eve"))
        upserts.run()
        return commit()

    with pytest.raises(ExportConflict):
        upserts.run(commit=second)
    assert upserts.rows() == [{"id": 1, "name": "bob"}, {"id": 2, "name": "eve"}]


def test_a_merge_after_a_compaction_finds_all_rows(upserts: Upserts) -> None:
    for number in range(8):
        upserts.send(b"", row(number, "ada"), number % 2)
        upserts.run()
    compact_table(upserts.format, upserts.path)
    upserts.send(b"3", None, 1)
    upserts.send(b"", row(4, "bob"))
    upserts.run()
    assert [(held["id"], held["name"]) for held in upserts.rows()] == [
        (number, "bob" if number == 4 else "ada") for number in range(8) if number != 3
    ]


def test_only_files_with_a_changed_key_are_written_again(upserts: Upserts) -> None:
    for first in (0, 10, 20):
        for number in range(first, first + 10):
            upserts.send(b"", row(number, "ada"))
        upserts.run()
    before = {path.name for path in table_of(upserts.format, upserts.path).live_files()}
    upserts.send(b"", row(15, "bob"))
    result = upserts.run()
    after = {path.name for path in table_of(upserts.format, upserts.path).live_files()}
    assert (len(before), len(before - after), result.files) == (3, 1, 1)


def test_rows_of_a_merge_are_written_to_several_files(
    upserts: Upserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "_MERGED_FILE_BYTES", 1)
    for number in range(4):
        upserts.send(b"", row(number, "ada"), number % 2)
    assert upserts.run().files == 2
    for number in range(4):
        upserts.send(b"", row(number, "bob"), number % 2)
    assert upserts.run().files == 2
    assert [held["name"] for held in upserts.rows()] == ["bob"] * 4


# -- refusals


def test_bad_changes_are_dead_letters_with_reasons(upserts: Upserts) -> None:
    options = {**JSON, "badRecords": "dead_letters"}
    for key, value in (
        (b"", debezium("c", None, {"id": 1, "name": "ada"})),
        (b"", b"no json"),
        (b"", debezium("c", None, {"name": "no id"})),
        (b"", debezium("x", None, {"id": 2})),
        (b"", debezium("t", None, None)),
        (None, None),
        (b'{"other": 1}', None),
        (b"", debezium("c", None, {"id": "text"})),
    ):
        upserts.send(key, value)
    result = upserts.run(options, envelope="debezium")
    assert (result.rows, result.dead_letters) == (1, 7)
    assert upserts.rows() == [{"id": 1, "name": "ada"}]
    assert upserts.letters() == [
        (1, "no json is not a JSON object"),
        (2, "the key column id is null"),
        (3, "unknown op 'x' of a Debezium event"),
        (4, "a Debezium event truncates the source table: empty the table"),
        (5, "a record without key and value deletes nothing"),
        (6, "the key '{\"other\": 1}' of a tombstone has no field 'id'"),
        (7, 'value: id: "text" is not an integer'),
    ]
    upserts.send(b"", b"")
    with pytest.raises(BadRecord, match=r"t-0 offset 8 cannot be decoded:  is not a JSON object"):
        upserts.run(envelope="debezium")


def test_a_table_is_merged_by_one_key_or_appended_to(upserts: Upserts) -> None:
    upserts.send(b"", row(1, "ada"))
    upserts.run()
    upserts.send(b"", row(2, "ada"))
    with pytest.raises(ExportRefused, match=r"has one row for each key( \(`id`\))?: use mode='ups"):
        upserts.run(mode="append", key="binary")
    with pytest.raises(
        ExportRefused, match=r"is merged by (the key `id`|another key), not by `name`"
    ):
        upserts.run(key="name")
    upserts.path = upserts.path.with_name("other")
    upserts.run(mode="append", key="binary")
    upserts.send(b"", row(2, "ada"))
    with pytest.raises(ExportRefused, match=r"has a row for each record .*; it cannot be merged"):
        upserts.run()


def test_older_changes_are_refused_without_an_order(in_delta: Upserts) -> None:
    for _ in range(3):
        in_delta.send(b"", row(1, "ada"))
    in_delta.run({**JSON, "startingOffsets": '{"t": {"0": 1, "1": 0}}'})
    with pytest.raises(ExportRefused, match=r"t-0: offsets \[0, 1\) are older than the changes"):
        in_delta.run({**JSON, "startingOffsets": "earliest"})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"mode": "merge"}, "mode='merge' is none of append, upsert"),
        ({"envelope": "canal"}, "envelope='canal' is none of none, debezium, maxwell"),
        ({"mode": "append", "key": "binary", "order_by": "id"}, "order_by has no use without"),
        ({"mode": "append", "key": "binary", "envelope": "maxwell"}, "envelope has no use without"),
        ({"mode": "append", "key": "id"}, "key='id' is none of binary, string"),
        ({"key": "id,id"}, "key='id,id': want different columns"),
        ({"key": "nothing"}, "key: 'nothing' is no column of the table; want some of id, name"),
        ({"key": "binary"}, "key: 'key' is no column of the table; want some of id, name"),
        ({"order_by": "nothing"}, "order_by: 'nothing' is no column"),
        ({"options": {**JSON, "badRecords": "permissive"}}, "exclude each other"),
        ({"options": {"columns": "key"}, "key": "string", "envelope": "maxwell"}, "valueFormat"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_named(
    in_delta: Upserts, given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        in_delta.run(**given)


def test_a_foreign_reader_sees_one_row_for_each_key_in_every_version(in_delta: Upserts) -> None:
    for name in ("ada", "bob", "eve"):
        in_delta.send(b"", row(1, name))
        in_delta.run()
    uri = in_delta.path.as_uri()
    versions = [DeltaTable(uri, version=number).to_pyarrow_table() for number in range(3)]
    assert [table.to_pylist()[0]["name"] for table in versions] == ["ada", "bob", "eve"]


def test_the_last_change_in_partitions_of_two_topics_is_the_one_with_the_greatest_time(
    upserts: Upserts,
) -> None:
    upserts.send(b"2", row(2, "filler"))
    upserts.send(b"1", row(1, "old"))
    other = format_directory(upserts.root / "d2")
    upserts.writers.append(ReplicaWriter(other, TopicPartition("u", 0), b"u" * 16))
    (other / ".kafka_cleanshutdown").touch()
    upserts.send(b"1", row(1, "new"), partition=2)
    upserts.run({**JSON, "subscribe": "t,u"})
    assert [held["name"] for held in upserts.rows()] == ["new", "filler"]
