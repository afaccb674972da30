"""The history of a cluster: what is written, survives a torn write, and is read again."""

import json
import os
from errno import ENOSPC
from pathlib import Path

import click
import pytest

from spindle.cli.command_groups import plan
from spindle.cli.history.forecast_command import forecast_command, forecast_lines
from spindle.cli.history.record_command import record_command
from spindle.cli.main import run
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.operations.errors import OperationFailed
from spindle.operations.forecasts import history_remarks
from spindle.operations.history import DirectoryForecast
from spindle.operations.history_folder import HistoryWriter, only_writer, read_history
from spindle.operations.sample_lines import broker_sample, sample_document
from spindle.planner.forecast.samples import LedSample
from spindle.planner.forecast.time_to_full import Filling, TimeToFull
from spindle.planner.forecast.trend import Trend
from spindle.planner.model import DirectoryModel

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2


def documents(time_ms: int, size: int = 5, cluster_id: str = "c") -> list[dict[str, object]]:
    replicas = {
        TopicPartition("t", 0): ReplicaOnDisk(size, 0, False),
        TopicPartition("t", 1): ReplicaOnDisk(3, 0, True),
    }
    view = LogDirView("/a", ErrorCode.NONE, 100, 60, False, replicas)
    led = {TopicPartition("t", 0): LedSample("id", 2, 9)}
    return [
        sample_document(time_ms, cluster_id, 1, [view], led),
        sample_document(time_ms, cluster_id, 2, None, {}, "timed out"),
    ]


def write(folder: Path, *times_ms: int, retention_ms: int = 30 * DAY_MS) -> None:
    writer = HistoryWriter(folder, retention_ms)
    with only_writer(folder):
        for time_ms in times_ms:
            writer.append(time_ms, documents(time_ms))


def test_the_former_names_of_history_commands_work_and_no_help_shows_them() -> None:
    context = click.Context(plan)
    assert plan.get_command(context, "record") is record_command
    assert plan.get_command(context, "forecast") is forecast_command
    assert not {"record", "forecast"}.intersection(plan.list_commands(context))


def test_a_sample_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, NOON_MS)
    history = read_history(tmp_path, "c")
    (sample,) = history.samples
    broker = sample.brokers[1]
    assert broker is not None
    directory = broker.directories["/a"]
    assert (directory.total_bytes, directory.usable_bytes, directory.moving_bytes) == (100, 60, 3)
    assert directory.sizes == {TopicPartition("t", 0): 5}
    assert broker.led == {TopicPartition("t", 0): LedSample("id", 2, 9)}
    assert sample.brokers[2] is None
    assert not sample.is_complete


def test_a_torn_line_is_passed_over_and_the_next_sample_is_whole(tmp_path: Path) -> None:
    write(tmp_path, NOON_MS, NOON_MS + HOUR_MS)
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    for cut in range(1, len(whole) // 2, 37):
        path.write_bytes(whole[:-cut])
        write(tmp_path, NOON_MS + 2 * HOUR_MS)
        history = read_history(tmp_path, "c")
        assert history.samples[0].time_ms == NOON_MS
        assert history.samples[-1].time_ms == NOON_MS + 2 * HOUR_MS
        assert len(history.samples[-1].brokers) == 2
        assert history.bad_lines <= 1


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write(tmp_path, NOON_MS)
    assert str(caught.value.filename).startswith(str(tmp_path))


def test_old_days_are_deleted_and_long_histories_are_thinned(tmp_path: Path) -> None:
    times = [NOON_MS + number * 6 * HOUR_MS for number in range(40)]
    write(tmp_path, *times, retention_ms=3 * DAY_MS)
    assert len(list(tmp_path.glob("*.jsonl"))) == 4
    history = read_history(tmp_path, "c", max_samples=5)
    assert len(history.samples) == 5
    assert history.samples[-1].time_ms == times[-1]


def test_the_clock_may_jump(tmp_path: Path) -> None:
    write(tmp_path, NOON_MS + HOUR_MS, NOON_MS, NOON_MS + 2 * HOUR_MS)
    times_ms = [sample.time_ms - NOON_MS for sample in read_history(tmp_path, "c").samples]
    assert times_ms == [0, HOUR_MS, 2 * HOUR_MS]


def test_one_wrong_clock_deletes_and_hides_nothing(tmp_path: Path) -> None:
    days = [NOON_MS + number * DAY_MS for number in range(20)]
    write(tmp_path, *days, NOON_MS + 9000 * DAY_MS, days[-1] + HOUR_MS)
    assert len(list(tmp_path.glob("*.jsonl"))) == 21
    history = read_history(tmp_path, "c")
    assert [sample.time_ms for sample in history.samples] == [*days[6:], days[-1] + HOUR_MS]
    assert history.future_samples == 1
    assert "passed over 1 sample of the history from the future" in history_remarks(history)[-1]


def test_long_histories_keep_their_first_and_last_sample(tmp_path: Path) -> None:
    times = [NOON_MS + number * HOUR_MS for number in range(30)]
    write(tmp_path, *times)
    samples = read_history(tmp_path, "c", max_samples=5).samples
    assert (samples[0].time_ms, samples[-1].time_ms) == (times[0], times[-1])


def test_histories_that_say_nothing_about_the_cluster_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="has no history; spindle history record writes one"):
        read_history(tmp_path, "c")
    write(tmp_path, NOON_MS)
    with pytest.raises(OperationFailed, match="no sample of cluster other but of c"):
        read_history(tmp_path, "other")
    (path,) = tmp_path.glob("*.jsonl")
    path.write_text(f'{{"timeMs": {NOON_MS}, "clusterId": "c", }}\n')
    with pytest.raises(OperationFailed, match="has no sample of cluster c that is whole"):
        read_history(tmp_path, "c")
    with (
        pytest.raises(OperationFailed, match="another process records"),
        only_writer(tmp_path),
    ):
        write(tmp_path, NOON_MS)


@pytest.mark.parametrize(
    "wrong", ["[]", "{}", '{"broker": 1, "directories": 7}', '"x"', '{"broker": 1e999}']
)
def test_a_line_of_another_form_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="not a sample of a broker"):
        broker_sample(json.loads(wrong))


def age(folder: Path, gap_ms: int) -> None:
    """Make the time between two samples of one broker longer."""
    (path,) = folder.glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    first_ms = lines[-1]["timeMs"] - gap_ms * len(lines)
    texts = [
        json.dumps(line | {"timeMs": first_ms + number * gap_ms})
        for number, line in enumerate(lines)
    ]
    path.write_text("\n".join([*texts, ""]))


@pytest.mark.parametrize(("width", "columns"), [(None, 6), (100, 6), (80, 5), (79, 5)])
def test_a_forecast_fits_into_a_terminal(width: int | None, columns: int) -> None:
    growth = Trend(1e6, -1e5, 2e6)
    fulls = (
        TimeToFull(Filling.FILLING, growth=growth, expected_s=4e5, earliest_s=2e5),
        TimeToFull(Filling.NOT_FILLING, growth=growth, earliest_s=9e5),
        TimeToFull(Filling.UNKNOWN, "too few samples (2 of 6)"),
    )
    forecasts = [
        DirectoryForecast(
            DirectoryModel(item, f"/var/lib/kafka/disk-{item}", 4 * 2**40, 2**40), full
        )
        for item, full in enumerate(fulls)
    ]
    lines = [
        line.text for line in forecast_lines(forecasts, ["forecasts are " + "long " * 20], width)
    ]
    assert max(map(len, lines)) <= (width or 200)
    assert len(lines[-4].split()) == columns
    assert all(f"disk-{item}" in line for item, line in enumerate(lines[-3:]))
    assert lines[-3].endswith("+80.5 GiB/d  in 4.6 d (2.3 d to never)")
    assert lines[-2].endswith("not filling (at the earliest in 10.4 d)")
    assert lines[-1].endswith("unknown: too few samples (2 of 6)")


def test_a_node_is_recorded_and_its_directories_are_forecast(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "history"
    assert run(("topic", "create", "recorded", "-p", "3", "-r", "1")) == 0
    for _ in range(6):
        assert run(("history", "record", str(folder), "--once")) == 0
    assert run(("history", "forecast", str(folder), "--json")) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all("the history spans" in directory["reason"] for directory in document["directories"])
    age(folder, HOUR_MS)
    assert run(("history", "forecast", str(folder), "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    directories = document["directories"]
    assert {"topic", "partition", "producedBytesPerSecond"} <= set(document["partitions"][0])
    assert len(directories) == 3
    assert {directory["filling"] for directory in directories} <= {"filling", "far", "not filling"}
    page = tmp_path / "page.html"
    assert run(("history", "forecast", str(folder), "--html", str(page))) == 0
    assert "6 samples" in capsys.readouterr().out
    assert all(directory["path"] in page.read_text() for directory in directories)
    assert run(("disks", "list", "--history", str(folder), "--json")) == 0
    (broker,) = json.loads(capsys.readouterr().out)["brokers"]
    assert all("fullInSeconds" in directory["forecast"] for directory in broker["directories"])
    assert run(("disks", "list", "--history", str(folder))) == 0
    assert "FULL" in capsys.readouterr().out
    looks = ("--history", str(folder), "--horizon", "2h", "--capacity", "1GiB")
    place = f"1:{directories[0]['path']}"
    assert run(("plan", "drain", place, *looks, "--json", "--html", str(page))) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["horizonMs"] == 2 * HOUR_MS
    for directory in plan["directories"]:
        assert directory["fullBefore"]["filling"] in ("far", "not filling")
        assert directory["fullAfter"]["growthBytesPerSecond"] is not None
        assert directory["usedBytesAtHorizon"] >= directory["usedBytesAfter"]
    assert "Full after the plan" in page.read_text()
    assert run(("plan", "balance", *looks)) == 0
    shown = capsys.readouterr().out
    assert "FULL BEFORE" in shown
    assert "the limits must hold until 2.0 h after the end of the plan" in shown
    state = ("--state", str(tmp_path / "drain.json"))
    assert run(("drain", place, *looks, *state)) == 0
    assert "has no replicas and is cordoned" in capsys.readouterr().out
    assert run(("disks", "uncordon", *place.split(":", 1))) == 0
