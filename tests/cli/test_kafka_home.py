"""The scripts of `spindle home` format, start, ask and stop a node, also after a move."""

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from waiting import wait_until

from spindle.cli.dialect import KAFKA_VERSION
from spindle.cli.java_main import main as run_class
from spindle.cli.kafka_home.command import write_home
from spindle.cli.kafka_home.stop import RunningNode, running_nodes, signal_number
from spindle.cli.main import run
from spindle.cli.tools.kafka_names import KAFKA_TOOLS, KafkaTool
from spindle.local.tcp_ports import free_ports

START_LIMIT_S = 30.0
SCRIPTS = {f"{tool.script}.sh" for tool in KAFKA_TOOLS} | {
    "kafka-run-class.sh",
    "kafka-server-start.sh",
    "kafka-server-stop.sh",
}


class KafkaHome:
    """A home in a folder with a space in its name, that was moved after it was written."""

    def __init__(self, folder: Path) -> None:
        written, self.folder = folder / "written", folder / "a kafka home"
        write_home(written, Path(sys.executable))
        shutil.move(written, self.folder)
        self.bootstrap = f"localhost:{free_ports(1)[0]}"
        self.properties = self.folder / "config" / "my server.properties"

    def configure(self, data: Path) -> None:
        """Write a property file from that of the home, as test suites do."""
        text = (self.folder / "config" / "server.properties").read_text()
        controller = f"localhost:{free_ports(1)[0]}"
        for old, new in [
            ("/tmp/kraft-combined-logs", f"{data / 'd1'},{data / 'd2'}"),
            ("localhost:9092", self.bootstrap),
            ("localhost:9093", controller),
            (":9092", f":{self.bootstrap.rpartition(':')[2]}"),
            (":9093", f":{controller.rpartition(':')[2]}"),
        ]:
            text = text.replace(old, new)
        self.properties.write_text(f"{text}group.initial.rebalance.delay.ms=0\n")

    def run(
        self, script: str, *words: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "bin" / f"{script}.sh"), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "KAFKA_HEAP_OPTS": "-Xmx1G", **variables},
        )

    def ask(self, script: str, *words: str, stdin: str = "") -> str:
        done = self.run(script, "--bootstrap-server", self.bootstrap, *words, stdin=stdin)
        assert done.returncode == 0, done
        return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaHome]:
    """Start the node of a home as a daemon."""
    folder = tmp_path_factory.mktemp("home")
    home = KafkaHome(folder)
    home.configure(folder)
    cluster_id = home.run("kafka-storage", "random-uuid").stdout.strip()
    words = ("-t", cluster_id, "-c", str(home.properties), "--standalone")
    assert home.run("kafka-storage", "format", *words).returncode == 0
    logs = folder / "log dir"
    started = home.run("kafka-server-start", "-daemon", str(home.properties), LOG_DIR=str(logs))
    assert started.returncode == 0
    try:
        wait_for(logs / "kafkaServer.out", "Kafka Server started")
        yield home
    finally:
        home.run("kafka-server-stop", SIGNAL="KILL")


def wait_for(file: Path, text: str) -> None:
    wait_until(
        lambda: file.exists() and text in file.read_text(),
        lambda: file.read_text() if file.exists() else "no output",
        limit_s=START_LIMIT_S,
    )


def test_the_folder_has_kafkas_scripts_and_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "home"
    assert run(["home", str(target)]) == 0
    assert {path.name for path in (target / "bin").iterdir()} == SCRIPTS
    assert all(os.access(path, os.X_OK) for path in (target / "bin").iterdir())
    assert (target / "VERSION").read_text() == f"{KAFKA_VERSION}\n"
    with zipfile.ZipFile(target / "libs" / f"kafka_2.13-{KAFKA_VERSION}.jar") as jar:
        assert jar.namelist() == []
    assert "kafka-topics.sh" in capsys.readouterr().out


def test_a_second_time_keeps_the_configuration(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(["home", str(tmp_path / "home")]) == 0
        config = tmp_path / "home" / "config" / "server.properties"
        config.write_text("node.id=7\n")
    assert config.read_text() == "node.id=7\n"


def test_a_folder_of_somebody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("")
    assert run(["home", str(tmp_path)]) == 1
    assert "was not written by this command" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_topics_script_creates_and_describes_topics(home: KafkaHome) -> None:
    words = ("--create", "--topic", "t", "--partitions", "2")
    assert home.ask("kafka-topics", *words) == "Created topic t.\n"
    lines = home.ask("kafka-topics", "--describe", "--topic", "t").splitlines()
    assert "\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: min.insync.replicas=1" in lines[0]
    assert lines[2].startswith("\tTopic: t\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: ")
    again = home.run("kafka-topics", "--bootstrap-server", home.bootstrap, *words)
    assert again.returncode == 1
    assert again.stdout == "Error while executing topic command : Topic 't' already exists.\n"
    assert "TopicExistsException: Topic 't' already exists." in again.stderr


def test_records_through_a_group(home: KafkaHome) -> None:
    home.ask("kafka-topics", "--create", "--topic", "lines")
    words = ("--topic", "lines", "--property", "parse.key=true", "--compression-codec", "zstd")
    home.ask("kafka-console-producer", *words, stdin="a\t1\nb\t2\nc\t3\n")
    read = ("--topic", "lines", "--from-beginning", "--property", "print.key=true")
    group = ("--group", "readers", "--max-messages", "2")
    assert home.ask("kafka-console-consumer", *read, *group) == "a\t1\nb\t2\n"
    lines = home.ask("kafka-consumer-groups", "--describe", "--group", "readers").splitlines()
    assert lines[-1].split() == ["readers", "lines", "0", "2", "3", "1", "-", "-", "-"]
    rest = home.ask("kafka-console-consumer", *read, "--group", "readers", "--max-messages", "1")
    assert rest == "c\t3\n"
    last = ("--topic", "lines", "--partition", "0", "--offset", "2", "--max-messages", "1")
    assert home.ask("kafka-console-consumer", *last) == "3\n"
    assert home.ask("kafka-get-offsets", "--topic", "lines") == "lines:0:3\n"


def test_the_other_scripts_run(home: KafkaHome) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    listed = home.ask("kafka-configs", *broker, "--describe")
    assert listed == "Dynamic configs for broker 1 are:\n"
    assert home.ask("kafka-metadata-quorum", "describe", "--status").startswith("ClusterId: ")
    assert "Produce(0): 0 to 13 [usable: 13]" in home.ask("kafka-broker-api-versions")
    assert "metadata.version" in home.ask("kafka-features", "describe")
    document = home.ask("kafka-log-dirs", "--describe").splitlines()[-1]
    assert document.startswith('{"brokers":[{"broker":1,"logDirs":[')
    cluster = home.run("kafka-cluster", "cluster-id", "--bootstrap-server", home.bootstrap)
    assert cluster.stdout.startswith("Cluster ID: ")
    topics = f"{home.run('kafka-run-class', 'org.apache.kafka.tools.TopicCommand').stderr}"
    assert topics.startswith("Create, list, describe, change and delete topics.")


def test_a_refused_acl_is_printed_inside_an_execution_exception(home: KafkaHome) -> None:
    done = home.run("kafka-acls", "--bootstrap-server", home.bootstrap, "--list")
    refusal = (
        "org.apache.kafka.common.errors.SecurityDisabledException: "
        + "No Authorizer is configured on the broker"
    )
    assert (done.returncode, done.stdout.rstrip().splitlines()) == (
        1,
        [
            f"Error while executing ACL command: {refusal}",
            f"java.util.concurrent.ExecutionException: {refusal}",
        ],
    )


def test_the_stop_script_stops_only_nodes_of_its_home(home: KafkaHome, tmp_path: Path) -> None:
    assert home.run("kafka-server-stop", "--node-id", "4").stdout == "No kafka server to stop\n"
    other = KafkaHome(tmp_path)
    assert other.run("kafka-server-stop").returncode == 1
    assert home.ask("kafka-topics", "--list")


@pytest.mark.parametrize("script", ["kafka-server-start", "kafka-run-class"])
def test_scripts_without_arguments_print_their_usage(home: KafkaHome, script: str) -> None:
    done = home.run(script)
    assert done.returncode == 1
    assert done.stderr.startswith("USAGE: ")


def test_classes_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_class(["--home", "/h", "a.B"]) == 1
    assert capsys.readouterr().err == "Error: Could not find or load main class a.B\n"
    assert run_class(["--home", "/h", "kafka.Kafka"]) == 1
    assert run_class(["a.B"]) == 1


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        (["  7 python -m x --home /a b kafka.Kafka /f g --override k=v"], [RunningNode(7, "/f g")]),
        (["7 python -m x --home /a kafka.Kafka /f", "8 java kafka.Kafka /f"], []),
        (["7 python -m x --home /a b org.apache.kafka.tools.TopicCommand --list"], []),
    ],
)
def test_nodes_in_the_process_list(lines: Sequence[str], nodes: list[RunningNode]) -> None:
    assert running_nodes(lines, "/a b") == nodes


@pytest.mark.parametrize("tool", KAFKA_TOOLS, ids=lambda tool: tool.script)
def test_every_tool_is_a_command(tool: KafkaTool, capsys: pytest.CaptureFixture[str]) -> None:
    run(["kafka", tool.name, "--help"])
    captured = capsys.readouterr()
    assert "--help" in captured.out + captured.err
    assert "Usage: spindle [OPTIONS]" not in captured.err


def test_a_main_class_has_its_former_name_too(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("kafka.admin.ConfigCommand", "org.apache.kafka.tools.ConfigCommand"):
        assert run_class(["--home", "/h", name, "--version"]) == 0
        assert capsys.readouterr().out == f"{KAFKA_VERSION}\n"


def test_signals_are_accepted_by_name_and_by_number() -> None:
    assert signal_number("TERM") == signal_number("SIGTERM") == signal.SIGTERM
    assert signal_number("9") == signal.SIGKILL
    with pytest.raises(ValueError, match="SIGNAL is 'NOSUCH'"):
        signal_number("NOSUCH")
