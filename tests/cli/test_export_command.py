"""`spindle export` up to the session: its places, sizes, errors and output."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException
from rich.progress import Progress
from wire_broker import WireBroker

from spindle.cli.export import command
from spindle.cli.export.command import place_options
from spindle.cli.export.errors import cause_text
from spindle.cli.export.screen import ProgressLine, result_document, result_lines
from spindle.cli.main import run
from spindle.cli.parameter_types import parse_size
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.pipeline.export import ExportedPartition, ExportProgress, ExportResult
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.spark import session
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.protocol.records.builder import SimpleRecord, build_batch
from tools import failure_code

ADDED = ExportedPartition(TopicPartition("flights", 1), b"a" * 16, 5, 36, 30)
RESULT = ExportResult("/t", 3, 30, 2, 2048, (ADDED,), 1)


def test_start_and_end_become_options_of_the_source() -> None:
    assert place_options("starting", "t", "earliest") == {"startingOffsets": "earliest"}
    assert place_options("ending", "t", '{"0": 7}') == {"endingOffsets": '{"t": {"0": 7}}'}
    utc = place_options("starting", "t", "2026-11-23T12:00")
    assert utc == {"startingTimestamp": "1795435200000"}
    assert place_options("starting", "t", "2026-11-23T13:00+01:00") == utc


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("soon", "--start 'soon': want earliest, latest, a time"),
        ("1969-01-01", "--start '1969-01-01' is before 1970"),
        ('{"0": 4, "0": 5}', "--start: key '0' is there twice"),
        ("{", "--start: want JSON like"),
    ],
)
def test_a_wrong_place_is_named(text: str, complaint: str) -> None:
    with pytest.raises(click.BadParameter, match=complaint):
        place_options("starting", "t", text)


def test_sizes_have_binary_units() -> None:
    context, option = click.Context(click.Command("x")), click.Option(["--size"])
    for text, size_bytes in (("17", 17), ("2k", 2048), ("512MiB", 2**29), ("1 GB", 2**30)):
        assert parse_size(context, option, text) == size_bytes
    assert parse_size(context, option, None) is None
    for text in ("0", "x", "-1", "1.5G"):
        with pytest.raises(click.BadParameter, match="not a size above 0"):
            parse_size(context, option, text)


def test_a_line_shows_the_progress_of_one_run_and_then_of_the_next() -> None:
    bar = Progress(disable=True)
    line = ProgressLine(bar)
    for _ in range(2):
        line(ExportProgress(1, 2, 10, 0, 5, 10))
        (task,) = bar.tasks
        assert (task.description, task.completed, task.total) == ("portion 1 of 1", 5, 10)
        line.wait_for_records()
        (task,) = bar.tasks
        assert (task.description, task.completed, task.total) == ("waiting for records", 0, None)


def test_the_result_is_a_table_and_a_sum() -> None:
    assert result_lines(RESULT, 2.0) == [
        "PARTITION  FROM  UNTIL  ROWS",
        "flights-1     5     36    30",
        "",
        "/t: 30 rows in 2 files and 1 commit, 2.0 KiB, 2.0 s (15 rows/s), version 3",
    ]
    document = result_document(RESULT, 2.0)
    assert (document["rows"], document["commits"]) == (30, 1)
    assert document["partitions"][0]["topic_id"] == "YWFhYWFhYWFhYWFhYWFhYQ"
    assert result_lines(ExportResult("/t", None, 0, 0, 0, ()), 1.0) == ["/t: there is nothing new"]


def test_the_cause_in_a_report_of_spark_is_one_line() -> None:
    report = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted
Caused by: PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
spindle.pipeline.errors.DataLoss: offsets 3 to 4 are gone

\tat org.apache.spark.api
"""
    assert cause_text(Exception(report)) == "offsets 3 to 4 are gone"
    assert cause_text(ValueError("short")) == "short"
    assert cause_text(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["export", "t", "/x"], "no source is given: give --bootstrap-server HOST:PORT"),
        (["export", "t", "/x", "-b", "h:1", "--start", "soon"], "--start 'soon': want earliest"),
        (["export", "t", "/x", "-b", "h:1", "-o", "valueFormat=xml"], "xml"),
        (["export", "t", "/x", "-b", "h:1", "--catalog", "uri"], "want NAME=VALUE"),
        (["export", "t", "/x", "-b", "h:1", "--columns", "a"], "'a' is not a column"),
        (["export", "t", "/x", "-b", "h:1", "--partition-by", "a"], "partitioned by 'a': want"),
        (["export", "t", "/x", "-b", "h:1", "--compression", "rar"], "'rar' is none of snappy"),
        (["export", "t", "/x", "-b", "h:1", "--commit-bytes", "no"], "not a size above 0"),
        (["export", "t", "s3://x", "-b", "h:1"], "local and shared file systems only"),
        (["export", "t", "/x", "-b", "h:1", "-o", "foo=bar"], "foo is not an option of spindle"),
        (["export", "t", "/x", "-b", "h:1", "-o", "valueFormt=json"], "is valueFormat meant?"),
        (["export", "t", "/x", "--log-dir", "/nowhere"], "'/nowhere' names no directory"),
        (
            ["export", "t", "/x", "-b", "127.0.0.1:1", "-o", "fetchOffset.numRetries=0"],
            "no broker could be reached",
        ),
    ],
)
def test_a_wrong_command_line_is_refused_before_spark_starts(
    words: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPINDLE_BOOTSTRAP", raising=False)
    code, err = run(words), capsys.readouterr().err
    assert code == failure_code(err)
    assert complaint in err


def test_topics_are_looked_up_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "get_spark", None)
    unknown = MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name="t"
            )
        ]
    )
    with WireBroker() as broker:
        broker.log("t", 0)
        words = ["export", "t", str(tmp_path / "table"), "-b", broker.address]
        assert run([*words, "-o", "kafka.securty.protocol=SSL"]) == 0
        shown = capsys.readouterr()
        assert "there is nothing new" in shown.out
        assert shown.err == (
            "spindle export: option kafka.securty.protocol has no effect; "
            "is kafka.security.protocol meant?\n"
        )
        broker.interrupt(MetadataRequest, lambda _: unknown)
        assert run([*words, "--follow"]) == 1
    assert "the user has no right to read topic 't'" in capsys.readouterr().err


def test_a_folder_that_is_not_writable_is_named_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "get_spark", None)
    (tmp_path / "file").touch()
    with WireBroker() as broker:
        broker.log("t", 0).append(build_batch([SimpleRecord(None, b"v", 0)]))
        words = ["export", "t", str(tmp_path / "file" / "table"), "-b", broker.address]
        assert run(words) == 1
        assert f"{tmp_path / 'file'} is not a directory" in capsys.readouterr().err
        monkeypatch.setattr(os, "access", lambda *_: False)
        words[2] = str(tmp_path / "new" / "table")
        assert run(words) == 1
    assert f"table {words[2]}: {tmp_path} is not writable" in capsys.readouterr().err


def test_ctrl_c_ends_an_export_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            logging.exception("KeyboardInterrupt while sending command.")
            raise

    monkeypatch.setattr(command, "_run", interrupted)
    assert run(["export", "t", str(tmp_path / "table"), "-b", "127.0.0.1:1"]) == 130
    assert capsys.readouterr().err == (
        "spindle export: stopped; committed data is kept; the next run continues after it\n"
    )


def test_errors_of_the_table_formats_are_printed_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (CommitFailedError("other columns\nand more"), CommitFailedException("a race")):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(ExportJob, "idle_result", fail)
        assert run(["export", "t", str(tmp_path / "table"), "-b", "127.0.0.1:1"]) == 1
        assert capsys.readouterr().err.splitlines()[-1].endswith(str(error).splitlines()[0])


def test_the_missing_extra_is_named() -> None:
    program = (
        "import importlib.util, sys\n"
        "find_spec = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n: None if n == 'deltalake' else find_spec(n)\n"
        "from spindle.cli.main import run\n"
        "sys.exit(run(['export', 't', '/x', '-b', 'h:1']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "not installed: deltalake. It belongs to the extra spindle-log[spark]" in ended.stderr
