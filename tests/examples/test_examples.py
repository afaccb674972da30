"""The programs in examples/ and deploy/ do what their descriptions say."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
from child_signals import default_signals

from spindle.config.node_config import NodeConfig
from spindle.config.properties import read_properties
from spindle.local.tcp_ports import free_ports

pytestmark = pytest.mark.timeout(600)

TOP = Path(__file__).parents[2]
EXAMPLES = TOP / "examples"
DEPLOY = TOP / "deploy"
UP = (sys.executable, "-c", "from spindle.cli.main import main; main()", "up")
# The orders of ann are 1, 4, 7, ..., 298 coins; those of the others one and two more each.
TOTALS = ["ann         14950 coins", "bob         15050 coins", "cleo        15150 coins"]


@pytest.fixture(scope="module")
def node() -> Iterator[dict[str, Any]]:
    """Start a node with three directories, and return its `ready` event."""
    with subprocess.Popen(
        [*UP, "--json", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        events = map(json.loads, process.stdout)
        try:
            yield next(event for event in events if event["event"] == "ready")
        finally:
            process.terminate()
            process.stdout.read()


def run_example(name: str, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_tests(name: str) -> None:
    """Run tests as in a project that has no configuration of its own."""
    # A test that hangs says where.
    no_configuration = ("-c", os.devnull, "--rootdir", str(EXAMPLES), "-p", "no:cacheprovider")
    words = (
        "-q",
        *no_configuration,
        "-o",
        "faulthandler_timeout=240",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_an_application_without_arguments_says_how_to_use_it() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "orders.py")], capture_output=True, text=True, check=False
    )
    assert done.stderr == "usage: python examples/orders.py BOOTSTRAP [COUNT]\n"
    assert done.returncode == 1


@pytest.fixture(scope="module")
def totals_of_the_application(node: dict[str, Any]) -> list[str]:
    return run_example("orders.py", node["bootstrap_servers"], "300")


def test_the_application_counts_every_order_once(totals_of_the_application: list[str]) -> None:
    assert totals_of_the_application == TOTALS


def test_the_pool_of_workers_answers_every_job(node: dict[str, Any]) -> None:
    lines = run_example("worker_pool.py", node["bootstrap_servers"], "100")
    assert [line.split() for line in lines[:3]] == [
        ["ACCEPT", "90"],
        ["RELEASE", "20"],
        ["REJECT", "10"],
    ]
    assert lines[3] == "10 dead letters, the first: Offset rejected by client."


@pytest.mark.full
@pytest.mark.spark
def test_the_spark_job_finds_the_same_totals(
    node: dict[str, Any], totals_of_the_application: list[str]
) -> None:
    where = f"{node['folder']}/disk-*"
    assert run_example("spark_totals.py", node["bootstrap_servers"], where) == TOTALS


@pytest.mark.spark
@pytest.mark.full
def test_the_delta_table_keeps_up_and_has_the_same_totals(
    node: dict[str, Any], totals_of_the_application: list[str], tmp_path: Path
) -> None:
    words = (str(EXAMPLES / "json_to_delta.py"), node["bootstrap_servers"], str(tmp_path / "t"))
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = next(line for line in process.stderr if "version" in line)
        assert line.endswith(f"{words[2]}: 300 rows, version 0\n")
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().splitlines() == totals_of_the_application
    assert process.returncode == 0


def test_the_rehearsal_moves_leaders_and_loses_nothing() -> None:
    lines = run_example("disk_rehearsal.py")
    begun = re.fullmatch(r"broker (\d) leads partition \d+ from (\S+), which fails", lines[0])
    assert begun is not None
    assert lines[1].startswith("offline: EIO on ")
    assert lines[2].startswith("leader now: ")
    assert lines[2][-1] != begun[1]
    assert lines[3] == "500 of 500 records are there, 1 time each"
    assert lines[4] == "the disk is mended, and all replicas are in sync"


@pytest.mark.full
def test_the_tests_of_the_application_pass_with_the_fixtures() -> None:
    run_tests("test_orders.py")


@pytest.mark.full
def test_the_test_of_the_exactly_once_application_passes() -> None:
    run_tests("test_invoices.py")


def test_every_example_is_described() -> None:
    described = set(re.findall(r"\]\((\w+\.\w+)\)", (EXAMPLES / "README.md").read_text()))
    assert described == {path.name for path in EXAMPLES.glob("*.*")} - {"README.md"}


# -- deploy


@pytest.mark.parametrize("has_cluster_id", [False, True])
def test_start_node_formats_once_and_runs_the_node(tmp_path: Path, has_cluster_id: bool) -> None:
    ports = dict(zip(("9092", "9093", "9100"), free_ports(3), strict=True))
    text = (DEPLOY / "server.properties").read_text().replace("/disks/", f"{tmp_path}/")
    for port, own in ports.items():
        text = text.replace(f":{port}", f":{own}")
    file = tmp_path / "server.properties"
    file.write_text(text)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("CLUSTER_ID", None)
    if has_cluster_id:
        environment["CLUSTER_ID"] = "4L6g3nShT-eMCtK--X86sw"
    ids = []
    for _ in range(2):
        with subprocess.Popen(
            [str(DEPLOY / "start-node"), str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=default_signals,
        ) as process:
            assert process.stdout is not None
            assert any("Kafka Server started" in line for line in process.stdout)
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
        assert process.returncode == 143
        ids.append((tmp_path / "3" / "log" / "meta.properties").read_text())
    assert ids[0] == ids[1]
    assert not has_cluster_id or environment["CLUSTER_ID"] in ids[0]


def test_the_property_file_has_no_unknown_key() -> None:
    properties = read_properties(str(DEPLOY / "server.properties"))
    assert NodeConfig.from_properties(properties).warnings == ()


def test_the_image_copies_files_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    sources = re.findall(r"^COPY (\S+) ", text, re.MULTILINE)
    assert sources.pop(0) == "dist/spindle_log-*.whl"
    assert sources
    assert all((TOP / source).is_file() for source in sources)


class UnitParser(RawConfigParser):
    """Reads a unit of systemd, whose keys have upper and lower case."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def test_the_unit_starts_the_script_and_takes_an_orderly_stop_for_success() -> None:
    unit = UnitParser(strict=False)
    unit.read(DEPLOY / "spindle.service")
    service = unit["Service"]
    assert service["ExecStart"].split()[0].endswith("/start-node")
    assert service["SuccessExitStatus"].split() == ["143", "130"]
