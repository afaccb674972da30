"""Exports into Delta, Iceberg and Parquet tables: killed anywhere, two at a time, continued."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from export_doubles import FORMATS, SCHEMA, data_files, export, offsets_of, piece, rows_of, table_of
from log_directory_files import OTHER_ID, TOPIC_ID

from spindle.common.uuids import ZERO_UUID
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.export import manifest_log, parquet_table
from spindle.pipeline.export.iceberg_catalog import iceberg_place
from spindle.pipeline.export.jobs import TableFormat, open_table
from spindle.pipeline.export.maintenance import compact_table, vacuum_table
from spindle.pipeline.export.model import (
    Coverage,
    CoverageChange,
    ExportConflict,
    ExportRefused,
    PartitionIdentity,
)
from spindle.pipeline.export.orphans import remove_orphans
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.table import CommitBatch, TableLayout, check_columns

KEY = PartitionIdentity(TOPIC_ID, 0)
ORDER = [("partition", "ascending"), ("offset", "ascending")]
every_format = pytest.mark.parametrize("table_format", FORMATS)


class Killed(BaseException):
    """The process ends here: nothing is cleaned up."""


@every_format
def test_a_file_in_place_of_the_table_is_refused(tmp_path: Path, table_format: TableFormat) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(ValueError, match="file' is a file: a table is a directory"):
        open_table(table_format, path, None)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:/a/b", "/a/b"),
        ("file:///a/b/", "/a/b"),
        ("FILE://localhost/a%41", "/a%41"),
        ("/a/%41 #?,", "/a/%41 #?,"),
        ("/a:/b", "/a:/b"),
        ("file://host/a", None),
        ("hdfs:/a", None),
        ("s3://bucket/a", None),
        ("", None),
        ("a\0b", None),
    ],
)
def test_a_path_is_taken_as_it_is(text: str, path: str | None) -> None:
    if path is not None:
        assert local_directory(text) == Path(path)
        return
    with pytest.raises(ValueError, match=r"^path "):
        local_directory(text)


@every_format
@pytest.mark.parametrize(
    "name", ["%41", "%", "a b", "ä,ö;", "#", "?", "a:b", "'q\"", "[x]{y,z}*", "$x"]
)
def test_a_table_lies_where_its_path_says(
    tmp_path: Path, table_format: TableFormat, name: str
) -> None:
    path = tmp_path / name / "t"
    unusable = {"iceberg": ("%41", "%", "#", "?"), "delta": ("%41",), "parquet": ()}
    if name in unusable[table_format]:
        with pytest.raises(ValueError, match=r"the path cannot have the character|takes %41 in it"):
            table_of(table_format, path)
        assert not list(tmp_path.iterdir())
        return
    for end in (3, 5):
        export(table_of(table_format, path), piece(0, end), partition_by="topic")
    assert offsets_of(table_format, path) == [0, 1, 2, 3, 4]
    assert compact_table(table_format, path) == (2, 1)
    vacuum_table(table_format, path, hours=0)
    assert offsets_of(table_format, path) == [0, 1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@every_format
def test_a_run_has_one_commit_for_each_portion(tmp_path: Path, table_format: TableFormat) -> None:
    path = tmp_path / ("a table" if table_format == "iceberg" else "a table #1")
    seen: list[int] = []
    exported = export(
        table_of(table_format, path),
        piece(2, 8),
        piece(0, 4, partition=1),
        offsets=4,
        meanwhile=lambda: seen.append(len(data_files(path))),
    )
    assert (exported.portions, exported.rows, exported.files, seen) == (3, 10, 6, [2, 4, 6])
    assert [
        (partition.start_offset, partition.end_offset, partition.rows)
        for partition in exported.partitions
    ] == [
        (2, 8, 6),
        (0, 4, 4),
    ]
    assert offsets_of(table_format, path) == [2, 3, 4, 5, 6, 7]
    assert offsets_of(table_format, path, 1) == [0, 1, 2, 3]
    assert table_of(table_format, path).coverage(KEY) == Coverage(2, 8)
    again = export(table_of(table_format, path), piece(2, 8), piece(0, 4, partition=1))
    assert (again.is_empty, again.version) == (True, exported.version)
    more = export(table_of(table_format, path), piece(0, 9))
    assert [(partition.start_offset, partition.end_offset) for partition in more.partitions] == [
        (8, 9)
    ]


@every_format
@pytest.mark.parametrize("point", ["written", "committed"])
@pytest.mark.parametrize("portion", [0, 1])
def test_a_killed_run_is_continued_and_its_files_are_removed(
    tmp_path: Path,
    table_format: TableFormat,
    point: str,
    portion: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "table"
    table = table_of(table_format, path)
    commits = 0
    commit = table.commit

    def killed_at_commit(files: CommitBatch) -> int:
        nonlocal commits
        if commits == portion and point == "written":
            raise Killed
        commit(files)
        commits += 1
        if commits > portion:
            raise Killed
        return 0

    monkeypatch.setattr(table, "commit", killed_at_commit)
    with pytest.raises(Killed):
        export(table, piece(0, 9), offsets=3)
    done = 3 * commits
    assert (table_of(table_format, path).coverage(KEY) or Coverage(0, 0)) == Coverage(0, done)
    if point == "written":
        assert len(data_files(path)) == commits + 1
    exported = export(table_of(table_format, path), piece(0, 9), offsets=4)
    assert [
        (partition.start_offset, partition.end_offset) for partition in exported.partitions
    ] == [(done, 9)]
    assert offsets_of(table_format, path) == list(range(9))
    assert len(data_files(path)) == commits + exported.files


def test_a_parquet_run_killed_before_files_are_visible_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(parquet_table, "_move", killed)
        with pytest.raises(Killed):
            export(table_of("parquet", path), piece(0, 5))
    assert not list(path.glob("*.parquet"))
    state = manifest_log.read_state(path)
    assert state is not None
    assert [file.exists() for file in parquet_table.live_paths(path, state)] == [True]
    assert export(table_of("parquet", path), piece(0, 5)).is_empty
    assert offsets_of("parquet", path) == list(range(5))


def test_a_parquet_run_killed_while_it_writes_the_manifest_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    export(table_of("parquet", path), piece(0, 5))

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        with pytest.raises(Killed):
            export(table_of("parquet", path), piece(0, 9))
    assert table_of("parquet", path).coverage(KEY) == Coverage(0, 5)
    export(table_of("parquet", path), piece(0, 9))
    assert offsets_of("parquet", path) == list(range(9))


def is_exported(table_format: TableFormat, path: Path, before_commit: Callable[[], Any]) -> bool:
    try:
        export(table_of(table_format, path), piece(0, 5), meanwhile=before_commit)
    except ExportConflict:
        return False
    return True


@every_format
def test_only_one_of_two_runs_that_create_a_table_is_in_it(
    tmp_path: Path, table_format: TableFormat
) -> None:
    for number in range(5):
        path = tmp_path / str(number) / "table"
        together = Barrier(2, timeout=20)
        with ThreadPoolExecutor(2) as threads:
            runs = [
                threads.submit(is_exported, table_format, path, together.wait) for _ in range(2)
            ]
        assert sorted(run.result() for run in runs) == [False, True]
        assert offsets_of(table_format, path) == list(range(5))


@every_format
def test_the_second_of_two_runs_at_the_same_time_is_refused(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"

    for end, end_of_other in ((5, 9), (12, 10)):

        def other(end: int = end_of_other) -> None:
            export(table_of(table_format, path), piece(0, end))

        with pytest.raises(ExportConflict, match="run again"):
            export(table_of(table_format, path), piece(0, end), meanwhile=other)
    assert offsets_of(table_format, path) == list(range(10))
    assert len(data_files(path)) == 2


@every_format
def test_runs_of_other_topics_and_of_older_offsets_continue_at_the_same_time(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"
    export(table_of(table_format, path), piece(4, 6))
    others = iter([piece(0, 3, OTHER_ID, topic="other"), piece(4, 9)])
    exported = export(
        table_of(table_format, path),
        piece(0, 6),
        offsets=2,
        start_is_explicit=True,
        meanwhile=lambda: export(table_of(table_format, path), next(others)),
    )
    assert [
        (partition.start_offset, partition.end_offset) for partition in exported.partitions
    ] == [(0, 4)]
    table = table_of(table_format, path)
    assert table.coverage(KEY) == Coverage(0, 9)
    assert table.coverage(PartitionIdentity(OTHER_ID, 0)) == Coverage(0, 3)
    assert offsets_of(table_format, path) == sorted([*range(9), *range(3)])


@every_format
def test_a_topic_that_was_created_again_is_refused(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"
    export(table_of(table_format, path), piece(0, 3))
    with pytest.raises(ExportRefused, match="earlier topic 'topic'"):
        export(table_of(table_format, path), piece(0, 3, OTHER_ID))
    with pytest.raises(ExportRefused, match="partitioned by nothing; the export by offset"):
        export(table_of(table_format, path), piece(0, 3), partition_by="offset")


@every_format
def test_files_that_a_live_run_may_still_commit_are_kept(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"

    def vacuum() -> None:
        assert remove_orphans(table_of(table_format, path)) == []

    export(table_of(table_format, path), piece(0, 4), offsets=2, meanwhile=vacuum)
    assert offsets_of(table_format, path) == list(range(4))


@every_format
def test_a_vacuum_removes_files_that_are_old_and_those_that_are_held(
    tmp_path: Path, table_format: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    table = table_of(table_format, path)

    def killed(_: CommitBatch) -> int:
        raise Killed

    monkeypatch.setattr(table, "commit", killed)
    with pytest.raises(Killed):
        export(table, piece(0, 4))
    assert remove_orphans(table_of(table_format, path), unheld_hours=1) == []
    assert len(remove_orphans(table_of(table_format, path), unheld_hours=0)) == 1
    assert data_files(path) == set()


@every_format
@pytest.mark.parametrize("columns", ["partition", "hour", "topic,date"])
def test_tables_are_partitioned_by_columns(
    tmp_path: Path, table_format: TableFormat, columns: str
) -> None:
    path = tmp_path / "table"
    for end in (30, 60):
        export(
            table_of(table_format, path),
            piece(0, end, topic="a:b%c é"),
            hourly=True,
            partition_by=columns,
        )
    rows = rows_of(table_format, path)
    assert sorted(rows.column("offset").to_pylist()) == list(range(60))
    if "hour" in columns:
        assert sorted(rows.column("hour").to_pylist()) == sorted(
            [*range(24), *range(24), *range(12)]
        )
        assert {str(day) for day in rows.column("date").to_pylist()} == {
            "1970-01-01",
            "1970-01-02",
            "1970-01-03",
        }
    if table_format == "delta":
        assert set(rows.column("topic").to_pylist()) == {"a:b%c é"}
    assert export(
        table_of(table_format, path), piece(0, 60, topic="a:b%c é"), partition_by=columns
    ).is_empty


def test_iceberg_cannot_name_every_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot have the character '#'"):
        table_of("iceberg", tmp_path / "table #1")
    with pytest.raises(ValueError, match=r"table 'flights': want NAMESPACE\.NAME"):
        iceberg_place("flights", {"type": "sql"})


@every_format
def test_a_failed_task_leaves_no_file(tmp_path: Path, table_format: TableFormat) -> None:
    path = tmp_path / "table"
    with pytest.raises(Exception, match="gone"):
        export(table_of(table_format, path), piece(0, 9), offsets=3, fails_at=7)
    assert offsets_of(table_format, path) == list(range(6))
    assert len(data_files(path)) == 2


@every_format
def test_a_first_run_that_fails_leaves_no_table(tmp_path: Path, table_format: TableFormat) -> None:
    path = tmp_path / "table"
    with pytest.raises(DataLoss, match="gone"):
        export(table_of(table_format, path), piece(0, 9), fails_at=7)
    assert table_of(table_format, path).columns() is None
    table = table_of(table_format, path)
    table.check_layout(TableLayout(SCHEMA.remove(0), ("partition",)))
    export(table, piece(0, 9))
    assert offsets_of(table_format, path) == list(range(9))


def test_an_iceberg_table_that_is_dropped_during_a_run_is_not_made_again_with_a_part(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table"
    place = iceberg_place(path, None)

    def drop_after_the_first_portion() -> None:
        if place.load() is not None:
            place.catalog.drop_table(place.identifier)

    with pytest.raises(ExportConflict, match="has other offsets now"):
        export(
            table_of("iceberg", path),
            piece(0, 9),
            offsets=3,
            meanwhile=drop_after_the_first_portion,
        )
    assert place.load() is None


def test_a_change_of_columns_is_refused_with_those_that_differ() -> None:
    known = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.int32())])
    for wanted, complaint in (
        ([("id", pa.int64()), ("name", pa.binary()), ("at", pa.int32())], "name is string in the "),
        ([("id", pa.int64()), ("at", pa.int32())], "only the table has name string"),
        ([*known, pa.field("b", pa.int8(), False)], "only the export has b int8 not null"),
        ([known.field(1), known.field(0), known.field(2)], "column 1 is id in the table, name in "),
    ):
        with pytest.raises(ExportRefused, match=f"of the table /t cannot change: {complaint}"):
            check_columns("/t", known, TableLayout(pa.schema(wanted)))
    check_columns("/t", known, TableLayout(known))


@every_format
def test_a_table_that_begins_at_the_end_is_continued_and_filled_in(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"
    first = export(table_of(table_format, path), piece(0, 5), begin="latest")
    assert first.is_empty
    assert table_of(table_format, path).coverage(KEY) == Coverage(5, 5)
    # A partition that comes later is exported from its first record.
    more = export(
        table_of(table_format, path), piece(0, 7), piece(0, 2, partition=1), begin="latest"
    )
    assert [(partition.start_offset, partition.end_offset) for partition in more.partitions] == [
        (5, 7),
        (0, 2),
    ]
    export(table_of(table_format, path), piece(0, 7), offsets=2, start_is_explicit=True)
    assert offsets_of(table_format, path) == list(range(7))
    assert table_of(table_format, path).coverage(KEY) == Coverage(0, 7)


@every_format
@pytest.mark.parametrize("partition_by", [None, "hour"])
def test_compaction_joins_small_files_and_keeps_the_offsets(
    tmp_path: Path, table_format: TableFormat, partition_by: str | None
) -> None:
    path = tmp_path / "table"
    pieces = piece(0, 12), piece(0, 12, partition=1)
    settings: dict[str, Any] = {"partition_by": partition_by, "hourly": True}
    export(table_of(table_format, path), *pieces, offsets=6, **settings)
    before = rows_of(table_format, path).sort_by(ORDER)
    version = table_of(table_format, path).version
    replaced, written = compact_table(table_format, path)
    assert (replaced > written) == (partition_by is None or table_format == "delta")
    after = rows_of(table_format, path).sort_by(ORDER)
    assert after.select(before.schema.names) == before
    assert (table_of(table_format, path).version == version) == (replaced == 0)
    assert table_of(table_format, path).coverage(KEY) == Coverage(0, 12)
    assert export(table_of(table_format, path), *pieces, **settings).is_empty
    more = export(table_of(table_format, path), piece(0, 20), **settings)
    assert more.rows == 8
    count = len(data_files(path))
    assert vacuum_table(table_format, path) == 0
    assert vacuum_table(table_format, path, hours=0) == replaced
    assert vacuum_table(table_format, path, hours=0) == 0
    assert len(data_files(path)) == count - replaced
    assert offsets_of(table_format, path) == list(range(20))
    assert export(table_of(table_format, path), piece(0, 20), **settings).is_empty


@every_format
def test_an_export_and_a_compaction_at_the_same_time_both_succeed(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"
    export(table_of(table_format, path), piece(0, 8), offsets=2)
    export(
        table_of(table_format, path),
        piece(0, 12),
        meanwhile=lambda: compact_table(table_format, path),
    )
    assert offsets_of(table_format, path) == list(range(12))


@pytest.mark.parametrize("table_format", ["iceberg", "parquet"])
def test_the_second_of_two_compactions_is_refused(
    tmp_path: Path, table_format: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    export(table_of(table_format, path), piece(0, 8), offsets=2)
    table = table_of(table_format, path)
    commit = table.commit

    def other_first(portion: Any) -> int:
        compact_table(table_format, path)
        return commit(portion)

    monkeypatch.setattr(table, "commit", other_first)
    with pytest.raises(ExportConflict, match="another compaction"):
        table.compact(2**30)
    assert offsets_of(table_format, path) == list(range(8))
    assert len(data_files(path)) == 5


def test_a_delta_table_that_forgets_its_offsets_is_not_compacted(tmp_path: Path) -> None:
    path = tmp_path / "table"
    export(table_of("delta", path), piece(0, 8), offsets=2)
    DeltaTable(path).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 day"}
    )
    with pytest.raises(ExportRefused, match="would forget which offsets it holds"):
        compact_table("delta", path)


def test_columns_can_be_added(tmp_path: Path) -> None:
    for table_format in FORMATS:
        path = tmp_path / table_format
        export(table_of(table_format, path), piece(0, 3))
        table = table_of(table_format, path)
        wider = TableLayout(SCHEMA.append(pa.field("more", pa.string())), may_add_columns=True)
        with pytest.raises(ExportRefused, match=r"only the export has more string\. Use"):
            table.check_layout(replace(wider, may_add_columns=False))
        table.check_layout(wider)
        table.prepare(wider)
        table.commit(CommitBatch(wider, (), {KEY: CoverageChange(Coverage(0, 3), Coverage(0, 4))}))
        table_of(table_format, path).check_layout(replace(wider, may_add_columns=False))
        assert offsets_of(table_format, path) == [0, 1, 2]


@every_format
def test_two_exports_that_add_a_column_at_the_same_moment(
    tmp_path: Path, table_format: TableFormat
) -> None:
    """The second one goes on with the column of the first, or is told that it came second."""
    path = tmp_path / "table"
    export(table_of(table_format, path), piece(0, 3))
    numbers, texts = (
        TableLayout(SCHEMA.append(pa.field("more", kind)), may_add_columns=True)
        for kind in (pa.int64(), pa.string())
    )
    others = TableLayout(SCHEMA.append(pa.field("other", pa.int64())), may_add_columns=True)
    first, second, third, fourth = (table_of(table_format, path) for _ in range(4))
    first.prepare(numbers)
    first.commit(CommitBatch(numbers, (), {KEY: CoverageChange(Coverage(0, 3), Coverage(0, 4))}))
    second.prepare(numbers)
    third.prepare(others)
    third.refresh()
    third.commit(CommitBatch(others, (), {KEY: CoverageChange(Coverage(0, 4), Coverage(0, 5))}))
    columns = table_of(table_format, path).columns()
    assert columns is not None
    assert columns.names == [*SCHEMA.names, "more", "other"]
    if table_format != "parquet":
        with pytest.raises(ExportConflict, match="more is int64 in the table, string in the"):
            fourth.prepare(texts)


@every_format
def test_a_table_may_begin_at_the_end_of_an_empty_topic(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"
    empty = piece(4, 4)
    assert export(table_of(table_format, path), empty, begin="latest").is_empty
    assert export(table_of(table_format, path), empty).is_empty
    export(table_of(table_format, path), piece(4, 9), begin="latest")
    assert offsets_of(table_format, path) == [4, 5, 6, 7, 8]


@every_format
def test_only_one_of_two_topics_of_one_name_is_in_the_table(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"
    export(table_of(table_format, path), piece(0, 3, topic="other"))

    def recreated() -> None:
        export(table_of(table_format, path), piece(0, 5, OTHER_ID))

    with pytest.raises(ExportConflict):
        export(table_of(table_format, path), piece(0, 9, TOPIC_ID, 1), meanwhile=recreated)
    assert rows_of(table_format, path).num_rows == 8


def test_topics_without_ids_are_refused(tmp_path: Path) -> None:
    """Partitions of two such topics could not be told apart."""
    pieces = piece(0, 9, ZERO_UUID, topic="a"), piece(0, 5, ZERO_UUID, topic="b")
    with pytest.raises(ExportRefused, match="'a' has no topic id"):
        export(table_of("parquet", tmp_path / "table"), *pieces)
    assert not list(tmp_path.iterdir())


@every_format
def test_files_that_the_driver_cannot_see_are_not_committed(
    tmp_path: Path, table_format: TableFormat
) -> None:
    path = tmp_path / "table"
    export(table_of(table_format, path), piece(0, 3))

    def elsewhere() -> None:
        for name in data_files(path):
            if "000003-" in name:
                (path / name).unlink()

    with pytest.raises(ExportRefused, match="not visible to the driver"):
        export(table_of(table_format, path), piece(0, 9), meanwhile=elsewhere)
    assert offsets_of(table_format, path) == [0, 1, 2]
    export(table_of(table_format, path), piece(0, 9))
    assert offsets_of(table_format, path) == list(range(9))
