"""Exports without Spark: where they continue, their files, and commits to a Delta table."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from export_doubles import SCHEMA, FakeSource, Piece, piece
from log_directory_files import OTHER_ID, TOPIC_ID, ReplicaWriter, format_directory, simple_records
from wire_broker import WireBroker

from spindle.columnar.columns import KAFKA_COLUMNS, arrow_schema
from spindle.common.ids import TopicPartition
from spindle.common.uuids import uuid_text
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.export.continuation import remaining_ranges
from spindle.pipeline.export.delta_table import DeltaExportTable
from spindle.pipeline.export.model import (
    Coverage,
    CoverageChange,
    ExportConflict,
    ExportRefused,
    PartitionIdentity,
    WrittenFile,
)
from spindle.pipeline.export.parquet_files import (
    FileSettings,
    file_name,
    parse_file_name,
    write_range,
)
from spindle.pipeline.export.portions import PortionSize, cut_portions
from spindle.pipeline.export.row_format import row_format
from spindle.pipeline.export.sources import export_source
from spindle.pipeline.export.table import CommitBatch, TableLayout
from spindle.pipeline.schemas.options import row_decoding

T0 = TopicPartition("topic", 0)
KEY = PartitionIdentity(TOPIC_ID, 0)
LAYOUT = TableLayout(SCHEMA)
FIRST = {KEY: CoverageChange(None, Coverage(0, 5))}


def remaining(
    pieces: list[Piece], held: Coverage | None, source: FakeSource | None = None
) -> list[tuple[int, int]]:
    covered = {} if held is None else {KEY: held}
    planned = remaining_ranges(source or FakeSource(), pieces, covered)
    return [(planned.start_offset, planned.end_offset) for planned in planned]


def test_a_new_partition_is_read_whole() -> None:
    assert remaining([piece(0, 9)], None) == [(0, 9)]


@pytest.mark.parametrize(("end", "expected"), [(0, [(0, 9)]), (3, [(3, 9)]), (9, []), (20, [])])
def test_the_next_run_continues_where_the_table_ends(
    end: int, expected: list[tuple[int, int]]
) -> None:
    assert remaining([piece(0, 9)], Coverage(0, end)) == expected


def test_another_topic_id_is_another_partition() -> None:
    assert remaining([piece(0, 5, OTHER_ID)], Coverage(0, 100)) == [(0, 5)]


def test_a_gap_is_data_loss_or_refused() -> None:
    with pytest.raises(DataLoss, match=r"offsets \[3, 5\) would be missing"):
        remaining([piece(5, 9)], Coverage(0, 3))
    lenient = FakeSource(fail_on_data_loss=False)
    assert remaining([piece(5, 9)], Coverage(0, 3), lenient) == [(5, 9)]
    explicit = FakeSource(start_is_explicit=True, fail_on_data_loss=False)
    with pytest.raises(ExportRefused, match="Leave out the starting offset"):
        remaining([piece(5, 9)], Coverage(0, 3), explicit)


def test_a_log_that_was_truncated_below_the_end_of_the_table_is_data_loss() -> None:
    source = FakeSource(ends_at_log_end=True)
    for truncated in (piece(0, 7), piece(0, 0)):
        with pytest.raises(DataLoss, match=r"the log ends at \d, and the table holds .* up to 8"):
            remaining([truncated], Coverage(0, 8), source)
    assert remaining([piece(0, 8)], Coverage(0, 8), source) == []
    source.fail_on_data_loss = False
    assert remaining([piece(0, 7)], Coverage(0, 8), source) == []


def test_older_offsets_are_filled_in_only_when_asked_for() -> None:
    explicit = FakeSource(start_is_explicit=True)
    assert remaining([piece(0, 9)], Coverage(4, 6), explicit) == [(0, 4), (6, 9)]
    assert remaining([piece(1, 4)], Coverage(4, 6), explicit) == [(1, 4)]
    assert remaining([piece(0, 9)], Coverage(4, 6)) == [(6, 9)]
    with pytest.raises(ExportRefused, match=r"offsets \[3, 4\) would be missing.*End at 4"):
        remaining([piece(0, 3)], Coverage(4, 6), explicit)


def portions(
    pieces: list[Piece], held: Coverage | None, size: PortionSize
) -> list[list[tuple[int, int]]]:
    covered = {} if held is None else {KEY: held}
    size_bytes = FakeSource().log_bytes(pieces)
    cut = cut_portions(pieces, size_bytes, covered, size)
    return [[(planned.start_offset, planned.end_offset) for planned in portion] for portion in cut]


def test_portions_have_a_slice_of_every_partition() -> None:
    other = replace(piece(0, 2), partition=TopicPartition("topic", 1))
    small = PortionSize(log_bytes=5)
    assert portions([piece(0, 10), other], None, small) == [
        [(0, 3), (0, 1)],
        [(3, 6), (1, 2)],
        [(6, 10)],
    ]
    assert portions([piece(0, 10)], None, PortionSize()) == [[(0, 10)]]
    by_rows = PortionSize(offsets=4)
    assert portions([piece(3, 13)], None, by_rows) == [[(3, 6)], [(6, 9)], [(9, 13)]]
    with pytest.raises(ValueError, match="a portion of 0 rows: want 1 or more"):
        PortionSize(offsets=0)


def test_the_table_is_contiguous_after_every_portion() -> None:
    two = PortionSize(offsets=4)
    assert portions([piece(0, 4), piece(6, 10)], Coverage(4, 6), two) == [
        [(2, 4), (6, 8)],
        [(0, 2), (8, 10)],
    ]


def test_file_names_say_what_is_inside() -> None:
    name = file_name(piece(3, 9), "abc123", 7)
    assert parse_file_name(name) == (KEY, Coverage(3, 9))
    long = replace(piece(3, 9), partition=TopicPartition("t" * 249, 123456))
    name = file_name(long, "f" * 12, 2**40)
    assert len(name) < 255
    assert parse_file_name(name) == (PartitionIdentity(TOPIC_ID, 123456), Coverage(3, 9))
    assert parse_file_name("part-00001-0000.zstd.parquet") is None


def settings(path: Path, run_id: str = "aa", key: str = "binary") -> FileSettings:
    return FileSettings(str(path), run_id, "snappy", row_format(KAFKA_COLUMNS, key, "binary"))


def test_a_file_holds_its_range(tmp_path: Path) -> None:
    (written,) = write_range(FakeSource(), piece(3, 9), settings(tmp_path), 0)
    assert (written.rows, written.min_timestamp_ms, written.max_timestamp_ms) == (6, 3, 8)
    table = pq.read_table(tmp_path / written.name)
    assert table.column("offset").to_pylist() == [3, 4, 5, 6, 7, 8]
    assert written.size_bytes == (tmp_path / written.name).stat().st_size


def test_nothing_is_left_of_a_range_without_rows_or_with_an_error(tmp_path: Path) -> None:
    assert write_range(FakeSource(), piece(3, 3), settings(tmp_path), 0) == []
    with pytest.raises(DataLoss, match="gone"):
        write_range(FakeSource(fails_at=5), piece(3, 9), settings(tmp_path), 0)
    assert list(tmp_path.iterdir()) == []


def test_keys_are_stored_as_text_where_that_is_asked_for(tmp_path: Path) -> None:
    for key in (None, b"", "Zürich".encode()):
        as_text = settings(tmp_path, key="string")
        (written,) = write_range(FakeSource(key=key), piece(3, 5), as_text, 0)
        column = pq.read_table(tmp_path / written.name).column("key")
        assert column.type == pa.string()
        assert column.to_pylist() == [None if key is None else key.decode()] * 2


def test_a_key_that_is_no_text_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    as_text = settings(tmp_path, key="string")
    with pytest.raises(
        ValueError,
        match=r"topic-0 offset 3 cannot be decoded: key: not UTF-8 \(byte 0xff at position 1\), "
        "which key='binary' takes",
    ):
        write_range(FakeSource(key=b"a\xff"), piece(3, 5), as_text, 0)
    assert list(tmp_path.iterdir()) == []


def test_encodings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="value='json' is none of binary, string"):
        row_format(KAFKA_COLUMNS, "binary", "json")
    with pytest.raises(ValueError, match="the columns key, offset do not include value"):
        row_format(("key", "offset"), "binary", "string")


def test_a_key_is_text_beside_a_value_that_is_decoded() -> None:
    decoding = row_decoding({"valueFormat": "json", "valueSchema": "id BIGINT"})
    form = row_format(("key", "value"), "string", "binary", decoding)
    raw = pa.record_batch([[b"k"], [b'{"id": 7}']], schema=arrow_schema(("key", "value")))
    rows, reasons = form.split(raw)
    assert (rows.to_pylist(), reasons) == ([{"key": "k", "id": 7}], None)
    assert rows.schema == form.schema()


def test_a_table_keeps_the_encoding_of_its_first_run(tmp_path: Path) -> None:
    files = write(tmp_path, 0, 5, "aa")
    DeltaExportTable(str(tmp_path)).commit(CommitBatch(LAYOUT, files, FIRST, {"topic": TOPIC_ID}))
    wanted = row_format(KAFKA_COLUMNS, "string", "binary").schema()
    with pytest.raises(ExportRefused, match="key is binary in the table, string in the export"):
        DeltaExportTable(str(tmp_path)).check_layout(TableLayout(wanted))


def write(path: Path, start: int, end: int, run_id: str) -> list[WrittenFile]:
    return write_range(FakeSource(), piece(start, end), settings(path, run_id), 0)


def offsets(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table().column("offset").to_pylist())


def test_commits_carry_what_the_table_covers(tmp_path: Path) -> None:
    path = str(tmp_path)
    assert DeltaExportTable(path).coverage(KEY) is None
    assert DeltaExportTable(path).version is None
    files = write(tmp_path, 2, 5, "aa")
    assert not DeltaTable.is_deltatable(path)
    DeltaExportTable(path).commit(
        CommitBatch(LAYOUT, files, {KEY: CoverageChange(None, Coverage(2, 5))}, {"topic": TOPIC_ID})
    )
    assert offsets(tmp_path) == [2, 3, 4]
    assert DeltaExportTable(path).coverage(KEY) == Coverage(2, 5)
    write(tmp_path, 5, 8, "orphan")
    files = write(tmp_path, 5, 8, "bb")
    version = DeltaExportTable(path).commit(
        CommitBatch(
            LAYOUT,
            files,
            {KEY: CoverageChange(Coverage(2, 5), Coverage(2, 8))},
            {"topic": TOPIC_ID},
        )
    )
    assert version == 1
    assert offsets(tmp_path) == [2, 3, 4, 5, 6, 7]
    assert DeltaExportTable(path).coverage(KEY) == Coverage(2, 8)


def test_coverage_survives_compaction(tmp_path: Path) -> None:
    path = str(tmp_path)
    for start in (0, 5):
        files = write(tmp_path, start, start + 5, "aa")
        before = Coverage(0, start) if start else None
        coverage = {KEY: CoverageChange(before, Coverage(0, start + 5))}
        DeltaExportTable(path).commit(CommitBatch(LAYOUT, files, coverage, {"topic": TOPIC_ID}))
    DeltaTable(path).optimize.compact()
    names = [uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris()]
    assert [parse_file_name(name) for name in names] == [None]
    assert DeltaExportTable(path).coverage(KEY) == Coverage(0, 10)
    assert offsets(tmp_path) == list(range(10))


def test_the_second_of_two_runs_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path)
    first, second = DeltaExportTable(path), DeltaExportTable(path)
    coverage = FIRST
    first.commit(CommitBatch(LAYOUT, write(tmp_path, 0, 5, "aa"), coverage, {"topic": TOPIC_ID}))
    with pytest.raises(ExportConflict, match="run again"):
        second.commit(
            CommitBatch(LAYOUT, write(tmp_path, 0, 5, "bb"), coverage, {"topic": TOPIC_ID})
        )
    third, fourth = DeltaExportTable(path), DeltaExportTable(path)
    coverage = {KEY: CoverageChange(Coverage(0, 5), Coverage(0, 9))}
    third.commit(CommitBatch(LAYOUT, write(tmp_path, 5, 9, "cc"), coverage, {"topic": TOPIC_ID}))
    with pytest.raises(ExportConflict, match="run again"):
        fourth.commit(
            CommitBatch(LAYOUT, write(tmp_path, 5, 9, "dd"), coverage, {"topic": TOPIC_ID})
        )
    assert offsets(tmp_path) == list(range(9))


def test_old_offsets_are_filled_in_while_new_ones_are_appended(tmp_path: Path) -> None:
    path = str(tmp_path)
    held, topics = Coverage(5, 8), {"topic": TOPIC_ID}
    files = write(tmp_path, 5, 8, "aa")
    DeltaExportTable(path).commit(
        CommitBatch(LAYOUT, files, {KEY: CoverageChange(None, held)}, topics)
    )
    behind, ahead, late = (DeltaExportTable(path) for _ in range(3))
    for table, before, start, end in (
        (ahead, held, 8, 9),
        (behind, held, 3, 5),
        (behind, Coverage(3, 8), 0, 3),
        (ahead, Coverage(5, 9), 9, 11),
    ):
        after = Coverage(min(start, before.start), max(end, before.end))
        files = write(tmp_path, start, end, "bb")
        table.commit(CommitBatch(LAYOUT, files, {KEY: CoverageChange(before, after)}, topics))
    assert DeltaExportTable(path).coverage(KEY) == Coverage(0, 11)
    assert offsets(tmp_path) == list(range(11))
    for after in (Coverage(3, 8), Coverage(5, 9)):
        with pytest.raises(ExportConflict):
            late.commit(CommitBatch(LAYOUT, [], {KEY: CoverageChange(held, after)}, topics))


def test_a_table_knows_topics_of_another_id_and_other_columns(tmp_path: Path) -> None:
    path = str(tmp_path)
    files = write(tmp_path, 0, 5, "aa")
    DeltaExportTable(path).commit(CommitBatch(LAYOUT, files, FIRST, {"topic": TOPIC_ID}))
    table = DeltaExportTable(path)
    assert not table.is_other_topic("topic", TOPIC_ID)
    assert table.is_other_topic("topic", OTHER_ID)
    assert not table.is_other_topic("other", OTHER_ID)
    assert table.coverage(PartitionIdentity(OTHER_ID, 0)) is None
    table.check_layout(LAYOUT)
    with pytest.raises(ExportRefused, match="cannot change: only the table has value binary"):
        table.check_layout(TableLayout(arrow_schema(("key",))))


def test_statistics_let_readers_skip_files(tmp_path: Path) -> None:
    files = write(tmp_path, 0, 5, "aa")
    DeltaExportTable(str(tmp_path)).commit(CommitBatch(LAYOUT, files, FIRST, {"topic": TOPIC_ID}))
    actions = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert actions[0]["num_records"] == 5
    assert (actions[0]["min.offset"], actions[0]["max.offset"]) == (0, 4)
    assert actions[0]["max.timestamp"].microsecond == 4000


def test_the_segments_source_of_an_export(tmp_path: Path) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), T0)
    writer.append_records(simple_records(100))
    source = export_source(
        "spindle-segments",
        {"logDirs": str(tmp_path / "d1"), "subscribe": "topic", "taskBytes": "1000"},
    )
    (whole,) = source.ranges()
    assert (whole.start_offset, whole.end_offset, whole.topic_id) == (0, 100, TOPIC_ID)
    rest = remaining_ranges(source, [whole], {KEY: Coverage(0, 95)})
    tasks = source.tasks(rest)
    rows = [batch.num_rows for task in tasks for part in task for batch in source.read(part)]
    assert sum(rows) == 5
    with pytest.raises(ValueError, match="'csv' cannot be exported"):
        export_source("csv", {})


def test_ids_in_messages_are_in_their_text_form() -> None:
    with pytest.raises(DataLoss, match=uuid_text(TOPIC_ID)):
        remaining([piece(5, 9)], Coverage(0, 3))


def test_empty_partitions_are_planned_so_that_a_table_can_begin_there(tmp_path: Path) -> None:
    directory = format_directory(tmp_path / "d1")
    ReplicaWriter(directory, T0)
    options = {"logDirs": str(directory), "subscribe": "topic"}
    with WireBroker() as broker:
        broker.topic_ids["topic"] = TOPIC_ID
        broker.log("topic", 0)
        through_brokers = {"kafka.bootstrap.servers": broker.address, "subscribe": "topic"}
        sources = [
            export_source("spindle-segments", options),
            export_source("spindle", through_brokers),
        ]
        assert [source.ends_at_log_end for source in sources] == [False, True]
        asked = export_source("spindle-segments", options | through_brokers)
        assert asked.ends_at_log_end
        to_five = {"endingOffsets": '{"topic": {"0": 5}}'}
        assert not export_source("spindle", through_brokers | to_five).ends_at_log_end
        for source in sources:
            (planned,) = source.ranges()
            assert (planned.topic_id, planned.start_offset, planned.end_offset) == (TOPIC_ID, 0, 0)
            assert remaining_ranges(source, [planned], {}) == []
