"""How far tables are behind: what is found below a folder, and offsets, times and dead letters."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from export_doubles import FORMATS, FakeSource, Piece, export, piece, table_of
from log_directory_files import TOPIC_ID

from spindle.cli.export import status_command
from spindle.cli.export.status_command import Limits, problems_of, status_document, status_lines
from spindle.cli.main import run
from spindle.client.cluster_metadata import ClusterView, TopicView
from spindle.client.errors import ConnectionLost
from spindle.common.ids import TopicPartition
from spindle.pipeline.export import table_status
from spindle.pipeline.export.jobs import TableFormat
from spindle.pipeline.export.model import PlannedRange
from spindle.pipeline.export.table_status import (
    PartitionLag,
    TablePlace,
    TableStatus,
    find_tables,
    table_statuses,
)

OTHER_ID = b"o" * 16


def view(*topic_ids: bytes) -> ClusterView:
    partitions: Any = {0: None, 1: None}
    topics = {
        name: TopicView(name, topic_id, False, partitions)
        for name, topic_id in zip(("topic", "other"), topic_ids, strict=False)
    }
    return ClusterView(topics=topics)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[Piece]:
    """The partitions of the cluster, which a test fills."""
    pieces: list[Piece] = []

    class Source(FakeSource):
        def __init__(self, options: Any) -> None:
            super().__init__(columns=("offset", "timestamp"))
            self.wanted = options["subscribe"].split(",")

        def ranges(self) -> Sequence[PlannedRange]:
            return [planned for planned in pieces if planned.partition.topic in self.wanted]

        def read(self, piece: PlannedRange) -> Iterator[Any]:
            return super().read(piece)

    monkeypatch.setattr(table_status, "BrokerExport", Source)
    return pieces


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_lacks_what_came_after_its_last_commit(
    table_format: TableFormat, tmp_path: Path, logs: list[Piece]
) -> None:
    export(table_of(table_format, tmp_path / "t"), piece(0, 5), piece(0, 7, partition=1))
    logs += [piece(0, 9), piece(2, 7, partition=1), piece(0, 3, OTHER_ID, topic="other")]
    (place,) = find_tables(tmp_path / "t")
    assert place == TablePlace(table_format, str(tmp_path / "t"))
    (status,) = table_statuses([place], {}, view(TOPIC_ID, OTHER_ID))
    assert status.partitions == (
        PartitionLag(TopicPartition("topic", 0), 5, 0, 9, 5),
        PartitionLag(TopicPartition("topic", 1), 7, 2, 7, None),
    )
    assert (status.topics, status.lag, status.behind_ms(1005)) == (["topic"], 4, 1000)
    assert status.committed_ms is not None
    assert not list(problems_of([status], Limits(4, 1.0, 0), 1005))
    texts = [problem.text for problem in problems_of([status], Limits(3, 0.5), 2000)]
    assert texts == [
        f"{place.table}: the table lacks 4 offsets; the limit is 3",
        f"{place.table}: the table is 2 s behind; the limit is 0 s",
    ]


def test_a_partition_that_is_new_is_lacking_as_a_whole(tmp_path: Path, logs: list[Piece]) -> None:
    export(table_of("delta", tmp_path / "t"), piece(0, 5))
    logs += [piece(0, 5), piece(3, 9, partition=1)]
    (status,) = table_statuses(find_tables(tmp_path), {}, view(TOPIC_ID))
    assert [(lag.table_end, lag.lag, lag.lost) for lag in status.partitions] == [
        (5, 0, 0), (3, 6, 0),
    ]  # fmt: skip


def test_offsets_that_retention_removed_and_topics_made_again_need_attention(
    tmp_path: Path, logs: list[Piece]
) -> None:
    export(table_of("delta", tmp_path / "t"), piece(0, 5))
    logs.append(piece(8, 9))
    (lost,) = table_statuses(find_tables(tmp_path), {}, view(TOPIC_ID))
    (again,) = table_statuses(find_tables(tmp_path), {}, view(OTHER_ID))
    (gone,) = table_statuses(find_tables(tmp_path), {}, view())
    texts = [problem.text for problem in problems_of([lost, again, gone], Limits(), 0)]
    path = tmp_path / "t"
    assert texts == [
        f"{path}: retention has removed 3 offsets of topic-0 that it lacks",
        f"{path}: topic topic was deleted and created again",
        f"{path}: the cluster has none of its topics",
    ]


def test_all_tables_of_a_folder_are_found_without_their_dead_letters(tmp_path: Path) -> None:
    for table_format in FORMATS:
        for name in (table_format, f"{table_format}_dead_letters"):
            export(table_of(table_format, tmp_path / name), piece(0, 1))
    (tmp_path / "nothing").mkdir()
    tables = [(place.table_format, Path(place.table).name) for place in find_tables(tmp_path)]
    assert tables == [("delta", "delta"), ("iceberg", "iceberg"), ("parquet", "parquet")]
    assert find_tables(tmp_path / "nowhere") == []


STATUS = TableStatus(
    TablePlace("delta", "/data/t"),
    4,
    1000,
    (PartitionLag(TopicPartition("t", 0), 5, 0, 9, 61_000),),
    2,
)


def test_the_screen_has_a_line_for_each_table_and_each_problem() -> None:
    missing = TableStatus(TablePlace("iceberg", "shop.t", {}), None)
    statuses = [STATUS, missing]
    problems = list(problems_of(statuses, Limits(dead_letters=1), 121_000))
    assert status_lines(statuses, problems, 121_000) == [
        "TABLE    FORMAT   VERSION  COMMITTED    TOPICS  LAG  BEHIND  DEAD LETTERS",
        "/data/t  delta          4  2.0 min ago  t         4  60 s               2",
        "shop.t   iceberg        -  -            -         0  0 s                0",
        "",
        "attention  /data/t: 2 dead letters; the limit is 1",
        "attention  shop.t: there is no such table",
    ]
    document = status_document([STATUS], problems[:1], 121_000)
    assert document["tables"][0]["partitions"] == [
        {
            "topic": "t", "partition": 0, "table_end_offset": 5, "log_start_offset": 0,
            "log_end_offset": 9, "lag": 4,
        }
    ]  # fmt: skip
    assert [problem["kind"] for problem in document["problems"]] == ["tables with dead letters"]


def test_the_exit_code_says_whether_a_table_needs_attention(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_command, "_statuses", lambda given: [STATUS])
    words = ["export", "status", "/data/t", "-b", "h:1", "--json"]
    assert run(words) == 0
    assert run([*words, "--max-lag", "3"]) == 3
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["tables"][0]["lag"] == 4
    assert run([*words, "--notify-command", "true"]) == 2


def test_a_watch_tells_what_comes_and_goes_and_keeps_it_in_an_outage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcomes: list[Any] = [STATUS, ConnectionLost("away"), STATUS._replace(partitions=())]

    def statuses(given: Any) -> list[TableStatus]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome]

    monkeypatch.setattr(status_command, "_statuses", statuses)
    words = ["export", "status", "/data/t", "-b", "h:1", "--watch", "--max-lag", "3"]
    words += ["--count", "3", "--interval", "0.1", "--json"]
    words += ["--notify-command", f"cat >> {tmp_path}/notes"]
    assert run(words) == 3
    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[problem["kind"] for problem in change["raised"]] for change in changes] == [
        ["tables with a lag"], ["unknown cluster"], ["tables without topics"],
    ]  # fmt: skip
    assert [problem["kind"] for problem in changes[2]["cleared"]] == [
        "tables with a lag", "unknown cluster",
    ]  # fmt: skip
    assert "tables with a lag" in (tmp_path / "notes").read_text()
