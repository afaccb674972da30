"""Exports of values that cannot all be decoded: every offset is a row or a dead letter, once."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from export_doubles import FORMATS, NO_SPARK, rows_of, table_of
from log_directory_files import ReplicaWriter, format_directory

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.pipeline.export import ExportConflict, ExportRefused, exporter
from spindle.pipeline.export.dead_letters import dead_letters_of
from spindle.pipeline.export.model import ExportResult, WrittenFile
from spindle.pipeline.export.parquet_files import _TimeRange, write_range
from spindle.pipeline.export.portions import PortionSize
from spindle.pipeline.export.row_format import Encoding
from spindle.pipeline.export.settings import ExportOptions, source_and_settings
from spindle.pipeline.schemas.rows import BadRecord
from spindle.protocol.records.builder import SimpleRecord

BAD = (3, 4, 17, 39)
SCHEMA = "id BIGINT"


class Killed(BaseException):
    """The process of the export ends here."""


class Exports:
    """Exports of a topic of two partitions, each with 20 records, into one table."""

    def __init__(self, root: Path, table_format: str) -> None:
        self.root = root
        self.format = table_format
        self.path = root / "tables" / "t"
        self.writers: list[ReplicaWriter] = []
        for partition in (0, 1):
            directory = format_directory(root / f"d{partition}")
            writer = ReplicaWriter(directory, TopicPartition("t", partition))
            writer.append_records([self.record(partition * 20 + n) for n in range(20)])
            self.writers.append(writer)
            (directory / ".kafka_cleanshutdown").touch()

    def record(self, number: int) -> SimpleRecord:
        value = b'{"id": "bad %d"}' if number in BAD else b'{"id": %d}'
        return SimpleRecord(b"k%d" % number, value % number, 1_700_000_000_000 + number)

    def append(self, *values: bytes) -> None:
        """Append records to partition 0, at its offsets from 20 on."""
        records = [SimpleRecord(b"k", value, 1_700_000_000_100) for value in values]
        self.writers[0].append_records(records)

    def run(
        self,
        schema: str = SCHEMA,
        offsets: int = 5,
        bad_records: str = "dead_letters",
        partition_by: str | None = None,
        key: Encoding = "binary",
        before_commit: Callable[[str, int], object] = lambda table, number: None,
        **more: str | None,
    ) -> ExportResult:
        """Run an export in this process.

        Args:
            before_commit: Called with the kind of the table and the number of its commit.
        """
        given_options = {
            "logDirs": f"{self.root}/d*", "subscribe": "t", "columns": "partition,offset,value",
            "valueFormat": "json", "valueSchema": schema, "badRecords": bad_records,
            **more,
        }  # fmt: skip
        options = {name: text for name, text in given_options.items() if text is not None}
        table = table_of(self.format, self.path)
        given: ExportOptions = {"portion": PortionSize(offsets=offsets), "key": key}
        if partition_by is not None:
            given["partition_by"] = partition_by
        source, settings = source_and_settings(options, given, table)
        letters = table_of(self.format, Path(dead_letters_of(str(self.path))))
        for kind, export_table in (("letters", letters), ("table", table)):
            self._watch(kind, export_table, before_commit)
        dead_letters = letters if settings.has_dead_letters else None
        return exporter.run_export(NO_SPARK, source, table, settings, None, dead_letters)

    def _watch(self, kind: str, table: Any, before: Callable[[str, int], object]) -> None:
        commit, number = table.commit, iter(range(1000))

        def watched(portion: Any) -> int:
            before(kind, next(number))
            version: int = commit(portion)
            return version

        table.commit = watched

    def schema(self) -> pa.Schema:
        columns = table_of(self.format, self.path).columns()
        assert columns is not None
        return columns

    def columns(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.schema()}

    def offsets(self, path: Path) -> list[int]:
        rows = rows_of(self.format, path).to_pylist()
        return sorted(row["partition"] * 20 + row["offset"] for row in rows)

    def letters(self) -> list[dict[str, Any]]:
        """Return the dead letters, in the order of their offsets."""
        path = Path(dead_letters_of(str(self.path)))
        if not table_of(self.format, path).live_files():
            return []
        # Without the times, of which Python has not all.
        rows: list[dict[str, Any]] = (
            rows_of(self.format, path).drop_columns(["timestamp"]).to_pylist()
        )
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))

    def check(self, dead: Sequence[int] = BAD) -> None:
        """Check that each offset is in one table, once, and that no file is left over."""
        letters = Path(dead_letters_of(str(self.path)))
        assert self.offsets(letters) == list(dead)
        assert self.offsets(self.path) == [n for n in range(40) if n not in dead]
        for path in (self.path, letters):
            table = table_of(self.format, path)
            root = table.data_directory if self.format == "iceberg" else path
            assert set(root.rglob("*.parquet")) == set(table.live_files())


@pytest.fixture(autouse=True)
def tasks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_files(
        spark: Any, source: Any, portion: Any, settings: Any, report: Any
    ) -> list[WrittenFile]:
        tasks = source.tasks(portion)
        return [
            file
            for task in tasks
            for part in task
            for file in write_range(source, part, settings, 0)
        ]

    monkeypatch.setattr(exporter, "write_files", write_files)


@pytest.fixture(params=FORMATS)
def exports(request: pytest.FixtureRequest, tmp_path: Path) -> Exports:
    return Exports(tmp_path, request.param)


@pytest.fixture
def delta_exports(tmp_path: Path) -> Exports:
    return Exports(tmp_path, "delta")


def test_bad_records_go_into_the_table_beside(exports: Exports) -> None:
    exported = exports.run()
    assert (exported.rows, exported.dead_letters) == (36, 4)
    exports.check()
    (row,) = [row for row in rows_of(exports.format, exports.path).to_pylist() if row["id"] == 38]
    assert (row["partition"], row["offset"]) == (1, 18)
    letters = rows_of(exports.format, Path(dead_letters_of(str(exports.path)))).to_pylist()
    (letter,) = [letter for letter in letters if letter["offset"] == 17]
    assert letter.pop("timestamp").timestamp() == 1_700_000_000.017
    assert letter == {
        "topic": "t", "partition": 0, "offset": 17, "key": b"k17", "value": b'{"id": "bad 17"}',
        "reason": 'value: id: "bad 17" is not an integer',
    }  # fmt: skip
    assert exports.run().is_empty


def test_a_run_that_is_killed_at_any_commit_is_continued(exports: Exports) -> None:
    for kind, number in (("letters", 1), ("table", 0), ("table", 1), ("letters", 1), ("table", 0)):

        def kill(table: str, commit: int, kind: str = kind, number: int = number) -> None:
            if (table, commit) == (kind, number):
                raise Killed

        with pytest.raises(Killed):
            exports.run(before_commit=kill)
    exports.run(offsets=7)
    exports.check()


def test_a_killed_run_has_decided_for_the_next_schema(delta_exports: Exports) -> None:
    def kill(table: str, commit: int) -> None:
        if table == "table":
            raise Killed

    with pytest.raises(Killed):
        delta_exports.run(offsets=1000, before_commit=kill)
    text = delta_exports.run(schema="id STRING", offsets=1000)
    assert (text.rows, text.dead_letters) == (36, 0)
    delta_exports.check()


def test_a_schema_that_cannot_read_what_was_decided_is_refused(delta_exports: Exports) -> None:
    def kill(table: str, commit: int) -> None:
        if table == "table":
            raise Killed

    with pytest.raises(Killed):
        delta_exports.run(schema="id STRING", offsets=1000, before_commit=kill)
    with pytest.raises(ExportRefused, match=r"t-0 offset 3 cannot be decoded .* which was killed"):
        delta_exports.run(offsets=1000)
    delta_exports.run(schema="id STRING", offsets=1000)
    delta_exports.check(dead=())


@pytest.mark.parametrize(("kind", "number"), [("letters", 0), ("table", 0), ("letters", 2)])
def test_one_of_two_simultaneous_runs_is_refused(
    delta_exports: Exports, kind: str, number: int
) -> None:
    schema = "id STRING" if kind == "table" else SCHEMA

    def other(table: str, commit: int) -> None:
        if (table, commit) == (kind, number):
            delta_exports.run(schema, offsets=9)

    with pytest.raises(ExportConflict):
        delta_exports.run(before_commit=other)
    delta_exports.run(schema)
    offsets = delta_exports.offsets(delta_exports.path)
    dead = delta_exports.offsets(Path(dead_letters_of(str(delta_exports.path))))
    assert sorted(offsets + dead) == list(range(40))


def test_without_dead_letters_a_bad_record_fails_or_is_kept(delta_exports: Exports) -> None:
    with pytest.raises(BadRecord, match=r"t-0 offset 3 cannot be .*badRecords=dead_letters"):
        delta_exports.run(bad_records="fail", offsets=1000)
    assert not delta_exports.path.exists() or not list(delta_exports.path.rglob("*.parquet"))
    delta_exports.run(bad_records="permissive")
    rows = rows_of("delta", delta_exports.path).to_pylist()
    kept = [row for row in rows if row["value_error"] is not None]
    assert sorted(row["partition"] * 20 + row["offset"] for row in kept) == list(BAD)
    assert len(rows) == 40
    assert kept[0]["id"] is None
    assert b"bad" in kept[0]["value_raw"]


def test_an_inferred_schema_grows_by_new_columns(exports: Exports) -> None:
    """The first values contradict each other, so the column is text; the second run adds two."""
    exports.run(schema="infer")
    assert exports.columns() == {"partition": "int32", "offset": "int64", "id": "string"}
    exports.append(b'{"id": 7, "place": {"x": 1}, "ok": true}', b"[]", b'{"id": [1.50]}')
    exported = exports.run(schema="infer")
    assert (exported.rows, exported.dead_letters) == (2, 1)
    assert list(exports.columns()) == ["partition", "offset", "id", "place", "ok"]
    if exports.format == "parquet":
        read = ds.dataset(exports.path, schema=exports.schema()).to_table()
    else:
        read = rows_of(exports.format, exports.path)
    rows = {row["offset"]: row for row in read.to_pylist() if row["partition"] == 0}
    assert rows[20] == {"partition": 0, "offset": 20, "id": "7", "place": {"x": 1}, "ok": True}
    assert (rows[22]["id"], rows[22]["ok"]) == ("[1.50]", None)
    assert (rows[3]["id"], rows[3]["place"]) == ("bad 3", None)
    exports.append(b'{"place": {"x": 1, "y": 2}}', b'{"ok": 1}')
    third = exports.run(schema="infer")
    assert (third.rows, third.dead_letters) == (0, 2)


@pytest.mark.parametrize(
    "poison",
    [
        b'{"id": 1, "offset": 1}',
        b'{"id": 1, "x": ' + b"[" * 60 + b"]" * 60 + b"}",
        b'{"Id": 1}',
        b'{"id": 1, "": 2}',
        rb'{"id": 1, "\ud800": 2}',
        rb'{"id": 1, "a\u0000b": 2}',
        rb'{"id": 1, "in": {"\u0000": 2}}',
        json.dumps({"id": 1, "x" * 1001: 2}).encode(),
        json.dumps({f"f{n}": 1 for n in range(20_000)}).encode(),
    ],
)
def test_a_record_whose_fields_cannot_be_columns_is_a_dead_letter(
    delta_exports: Exports, poison: bytes
) -> None:
    """It does not stop the export, and records behind it still bring new columns."""
    delta_exports.append(poison, b'{"id": "x", "new": 1}', poison)
    exported = delta_exports.run(schema="infer")
    assert (exported.rows, exported.dead_letters) == (41, 2)
    delta_exports.append(b'{"id": "x", "newer": 1}', poison)
    exported = delta_exports.run(schema="infer")
    assert (exported.rows, exported.dead_letters) == (1, 1)
    assert list(delta_exports.columns()) == ["partition", "offset", "id", "new", "newer"]


def test_the_schema_is_inferred_from_what_the_table_lacks(delta_exports: Exports) -> None:
    delta_exports.append(b'{"id": "x"}', b'{"late": 1}')
    delta_exports.run(schema="id STRING", valueUnknownFields="refuse")
    delta_exports.append(b'{"id": "y"}')
    delta_exports.run(schema="infer")
    assert list(delta_exports.columns()) == ["partition", "offset", "id"]


def test_fields_named_date_and_hour_are_columns_unless_the_partitioning_made_these(
    delta_exports: Exports,
) -> None:
    columns = "partition,offset,timestamp,value"
    delta_exports.append(b'{"id": "x", "date": "2020-01-01", "hour": 1.5}')
    assert delta_exports.run(schema="infer", columns=columns).dead_letters == 0
    delta_exports.append(b'{"id": "x"}', b'{"id": "x", "date": "2021", "hour": 1}')
    assert delta_exports.run(schema="infer", columns=columns).dead_letters == 0
    delta_exports.path = delta_exports.root / "tables" / "partitioned"
    id_only: dict[str, Any] = {"schema": "infer", "columns": columns, "partition_by": "hour"}
    delta_exports.run(**{**id_only, "endingOffsets": '{"t": {"0": 20, "1": 20}}'})
    assert delta_exports.run(**id_only).dead_letters == 2


def test_a_table_that_begins_at_latest_has_no_other_start(delta_exports: Exports) -> None:
    options = {"logDirs": f"{delta_exports.root}/d*", "subscribe": "t"}
    start = {"startingOffsets": '{"t": {"0": 1, "1": 1}}'}
    table = table_of("delta", delta_exports.path)
    source_and_settings(options, {"begin": "latest"}, table)
    with pytest.raises(ValueError, match="contradicts the starting offsets"):
        source_and_settings(options | start, {"begin": "latest"}, table)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"valueFormat": "avro"}, "want valueFormat=json"),
        ({"valueLayout": "struct"}, "want valueLayout=columns"),
        ({"columns": "offset"}, "do not include value"),
    ],
)
def test_inference_that_is_not_possible_is_refused(
    delta_exports: Exports, options: dict[str, str], complaint: str
) -> None:
    given = {
        "logDirs": f"{delta_exports.root}/d*", "subscribe": "t", "valueFormat": "json",
        "valueSchema": "infer", **options,
    }  # fmt: skip
    with pytest.raises(ValueError, match=complaint):
        source_and_settings(given, {}, table_of("delta", delta_exports.path))


def test_a_corrupt_batch_is_a_dead_letter(delta_exports: Exports) -> None:
    delta_exports.append(b'{"id": 20}')
    (segment,) = delta_exports.writers[0].path.glob("*.log")
    delta_exports.writers[0].roll()
    delta_exports.append(b'{"id": 21}')
    whole = segment.read_bytes()
    place = whole.index(b'{"id": 20}')
    segment.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
    with pytest.raises(CorruptLog):
        delta_exports.run(offsets=1000)
    delta_exports.run(offsets=1000, corruptBatches="dead_letters")
    letters = DeltaTable(dead_letters_of(str(delta_exports.path))).to_pyarrow_table().to_pylist()
    (letter,) = [letter for letter in letters if letter["offset"] == 20]
    assert letter["reason"].startswith("corrupt batch: ")
    assert b'?"id": 20}' in letter["value"]
    rows = rows_of("delta", delta_exports.path).to_pylist()
    assert sorted(row["offset"] for row in rows if row["partition"] == 0)[-2:] == [19, 21]
    assert list(delta_exports.columns()) == ["partition", "offset", "id"]


DOTTED = (b'{"a.b": 1, "a": {"b": 2}}', b'{"id": "x", "l": [1], "l.element": 2}')


def test_names_with_dots_are_columns_of_their_own_unless_the_format_joins_names(
    exports: Exports,
) -> None:
    """Iceberg has one path for a field with a dot in its name and for the field of a struct."""
    names = ["a.b", "a", "l", "l.element"]
    exports.append(*DOTTED)
    exported = exports.run(schema="infer")
    joins = exports.format == "iceberg"
    assert (exported.rows, exported.dead_letters) == ((40, 2) if joins else (42, 0))
    assert list(exports.columns()) == ["partition", "offset", "id", *([] if joins else names)]
    exports.append(b'{"id": "x", "a.b": 1}', b'{"id": "x", "a": {"b": 2}}')
    exported = exports.run(schema="infer")
    assert (exported.rows, exported.dead_letters) == ((1, 1) if joins else (2, 0))
    (row,) = [row for row in read_rows(exports) if row["offset"] == 22 and row["partition"] == 0]
    assert row["a.b"] == 1
    letters = exports.letters()
    assert all("two fields have the path 'a.b'" in letter["reason"] or joins for letter in letters)


def test_a_schema_whose_names_clash_in_the_format_is_refused(tmp_path: Path) -> None:
    schema = "`a.b` INT, a STRUCT<b: INT>"
    with pytest.raises(ExportRefused, match=r"two fields have the path 'a\.b': Iceberg joins"):
        Exports(tmp_path / "iceberg", "iceberg").run(schema=schema)
    assert Exports(tmp_path / "delta", "delta").run(schema=schema).rows == 40
    with pytest.raises(ExportRefused, match="differ in case only: 'B'"):
        Exports(tmp_path / "case", "delta").run(
            schema=json.dumps({"properties": {"a": {"properties": {"b": {}, "B": {}}}}})
        )


STRANGE_NAMES = (
    "a.b", "a`b", "a b", "a,b;c", "a'b\"c", "{}()[]<>", "ä", "\N{GRINNING FACE}", "select", "1",
    "%41", "a/b", "a\\b", "tab\there", "line\nbreak", "#", "*", "$x", "_", "x" * 1000,
    ".", "..", " a ",
)  # fmt: skip


def test_every_name_is_in_the_table_as_it_was(exports: Exports) -> None:
    within = dict.fromkeys(STRANGE_NAMES, 1)
    value = {**within, "in": within, "list": [within]}
    exports.append(json.dumps(value).encode())
    assert exports.run(schema="infer").dead_letters == 0
    (row,) = [row for row in read_rows(exports) if row["1"] == 1]
    assert {name: row[name] for name in value} == value


@pytest.mark.parametrize("column", ["p", "p.q `r`/%=ä"])
def test_texts_that_name_no_directory_are_dead_letters(exports: Exports, column: str) -> None:
    good = [
        "a",
        "..",
        ".",
        "a=b",
        "a/b",
        "%41",
        " a",
        "a ",
        "ä",
        "1",
        "null",
        "x" * 200,
        "a\0b",
        None,
    ]
    bad = ["", "__HIVE_DEFAULT_PARTITION__", "y" * 300, "ä" * 127]
    exports.append(*(json.dumps({"id": 1, column: text}).encode() for text in good + bad))
    given: dict[str, Any] = {
        "schema": f"id BIGINT, `{column.replace('`', '``')}` STRING",
        "partition_by": column,
        "startingOffsets": START,
    }
    with pytest.raises(BadRecord, match=r"t-0 offset 34 cannot be stored: .*text is empty"):
        exports.run(bad_records="fail", offsets=1000, **given)
    exports.run(offsets=1000, **given)
    rows = rows_of(exports.format, exports.path).to_pylist()
    if exports.format != "parquet":
        assert sorted(str(row[column]) for row in rows) == sorted(map(str, good))
    assert len(rows) == len(good)
    reasons = [letter["reason"] for letter in exports.letters()]
    for reason, words in zip(
        reasons, ("is empty", "is __HIVE_DEFAULT_PARTITION__", "bytes", "bytes"), strict=True
    ):
        assert words in reason
    assert all(reason.endswith("the limit is 255") for reason in reasons[2:])
    assert exports.run(**given).is_empty


START = '{"t": {"0": 20, "1": 20}}'
MICROSECONDS = 1_795_745_037_802_000


@pytest.mark.parametrize("partition_by", [None, "date", "hour"])
def test_times_beyond_the_year_9999_are_stored_or_dead_letters(
    exports: Exports, partition_by: str | None
) -> None:
    """A producer has given microseconds as milliseconds."""
    late = SimpleRecord(b"k", b'{"id": 1}', MICROSECONDS)
    exports.writers[0].append_records([late, SimpleRecord(b"k", b'{"id": 1}', 1)])
    given: dict[str, Any] = {
        "partition_by": partition_by,
        "columns": "offset,partition,timestamp,value",
        "startingOffsets": START,
    }
    cannot = exports.format == "iceberg" or partition_by is not None
    if cannot:
        with pytest.raises(BadRecord, match=r"t-0 offset 20 cannot be stored: .*year 58874.* 9999"):
            exports.run(bad_records="fail", **given)
    exports.run(**given)
    assert [letter["offset"] for letter in exports.letters()] == ([20] if cannot else [])


def test_dead_letters_need_no_format(exports: Exports) -> None:
    """Bytes that have to be text, and times that cannot be stored, are bad records, too."""
    exports.writers[0].append_records(
        [
            SimpleRecord(b"\xff", b"1", 1),
            SimpleRecord(b"k", b"2", MICROSECONDS),
            SimpleRecord(b"k", None, 3),
        ]
    )
    exports.run(
        key="string",
        partition_by="date",
        valueFormat=None,
        valueSchema=None,
        columns="offset,key,value,timestamp",
        startingOffsets=START,
    )
    assert [letter["offset"] for letter in exports.letters()] == [20, 21]
    assert [row["offset"] for row in rows_of(exports.format, exports.path).to_pylist()] == [22]


def test_fields_with_the_names_of_record_columns_are_fields(exports: Exports) -> None:
    """Their types and values are their own, in the files, the statistics and the partitions."""
    value = {
        "offset": "x", "timestamp": True, "partition": 1.5, "topic": {"a": 1}, "timestampType": [1],
        "key": "k", "headers": 7,
    }  # fmt: skip
    exports.append(json.dumps(value).encode())
    given: dict[str, Any] = {"columns": "value", "startingOffsets": START, "offsets": 1000}
    with pytest.raises(ValueError, match="the type of timestamp is bool; want the timestamp of"):
        exports.run(schema="infer", partition_by="date", **given)
    assert exports.run(schema="infer", **given).dead_letters == 0
    (row,) = read_rows(exports)
    assert row == value
    if exports.format == "delta":
        (action,) = pa.table(DeltaTable(exports.path).get_add_actions(flatten=True)).to_pylist()
        assert not [name for name, value in action.items() if "." in name and value is not None]


def test_statistics_of_times_are_left_out_where_a_time_is_null(tmp_path: Path) -> None:
    times = pa.array([1000, None], pa.timestamp("us", tz="UTC"))
    seen = _TimeRange()
    seen.add(pa.RecordBatch.from_arrays([times], ["timestamp"]))
    assert seen.range_ms() == (None, None)


def read_rows(exports: Exports) -> list[dict[str, Any]]:
    if exports.format == "parquet":
        rows = ds.dataset(exports.path, schema=exports.schema()).to_table()
    else:
        rows = rows_of(exports.format, exports.path)
    as_dicts: list[dict[str, Any]] = rows.to_pylist()
    return as_dicts


def test_an_export_takes_the_fields_that_are_named(exports: Exports) -> None:
    given: dict[str, Any] = {
        "schema": "id BIGINT, x STRING",
        "columns": "x, partition, offset, id",
    }
    exports.append(b'{"id": 7, "x": "y"}')
    assert exports.run(**given).dead_letters == 4
    assert list(exports.columns()) == ["x", "partition", "offset", "id"]
    (row,) = [row for row in read_rows(exports) if row["x"] is not None]
    assert row == {"x": "y", "partition": 0, "offset": 20, "id": 7}


def test_an_inferred_export_takes_the_fields_that_are_named_and_no_others(exports: Exports) -> None:
    exports.append(b'{"id": 7, "x": "y", "z": 1}')
    named = "x, partition, offset, id"
    assert exports.run(schema="infer", columns=named).dead_letters == 0
    assert list(exports.columns()) == ["x", "partition", "offset", "id"]
    (row,) = [row for row in read_rows(exports) if row["x"] is not None]
    assert row == {"x": "y", "partition": 0, "offset": 20, "id": "7"}
    exports.append(b'{"id": 8, "new": 1}')
    assert exports.run(schema="infer", columns=named).dead_letters == 0
    assert list(exports.columns()) == ["x", "partition", "offset", "id"]
    with pytest.raises(ValueError, match="'w' is neither a column of records nor a field"):
        exports.run(schema="infer", columns="w, partition, offset")
