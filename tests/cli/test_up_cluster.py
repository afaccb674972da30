"""`spindle up`: its files, its refusals, and its nodes from start to stop."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from child_signals import default_signals

from spindle.cli.failure import CommandFailed
from spindle.cli.main import run
from spindle.cli.up import command
from spindle.cli.up.command import cluster_ports
from spindle.cli.up.foreground import ForegroundCluster
from spindle.cli.up.start_summary import greet, ready_event
from spindle.common.filesystem import OsFileSystem
from spindle.disks.identity import load_ensemble
from spindle.local.cluster_spec import ClusterSpec, node_properties
from spindle.local.errors import ClusterError
from spindle.local.node_folder import (
    NodeFolder,
    bootstrap_servers,
    check_can_start,
    find_cluster,
    make_cluster,
    nodes_in_use,
)
from spindle.local.tcp_ports import free_ports, obstacle
from spindle.log.formats.changed_log_dirs import ChangedLogDirs, write_changed_log_dirs
from tools import failure_code

SMALL = ClusterSpec(nodes=3, dirs=2)
PORTS = range(1, 100)


# -- what a cluster looks like


def roles(wishes: ClusterSpec) -> dict[str, str]:
    files = node_properties(wishes, Path("/f"), PORTS)
    return {path.parent.name: p["process.roles"] for path, p in files.items()}


@pytest.mark.parametrize(
    ("nodes", "controllers"), [(1, [1]), (2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])]
)
def test_some_brokers_are_controllers_too(nodes: int, controllers: list[int]) -> None:
    wishes = ClusterSpec(nodes=nodes)
    assert list(wishes.controller_ids) == controllers
    both = [role for role in roles(wishes).values() if role == "broker,controller"]
    assert len(both) == len(controllers)


def test_separate_controllers_take_the_role_from_the_brokers() -> None:
    assert roles(ClusterSpec(nodes=2, controllers=3)) == {
        "node-1": "broker",
        "node-2": "broker",
        "node-101": "controller",
        "node-102": "controller",
        "node-103": "controller",
    }


def test_every_port_is_used_once() -> None:
    for wishes in (SMALL, ClusterSpec(nodes=4, controllers=3, with_metrics=True), ClusterSpec()):
        ports = list(range(1000, 1000 + wishes.port_count))
        texts = [
            f"{p['listeners']},{p.get('spindle.metrics.listener', '')}"
            for p in node_properties(wishes, Path("/f"), ports).values()
        ]
        used = [int(word.rpartition(":")[2]) for t in texts for word in t.split(",") if word]
        assert sorted(used) == ports


def test_racks_replicas_and_overrides() -> None:
    wishes = ClusterSpec(nodes=4, racks=2, overrides={"num.partitions": "7", "log.dirs": "/x"})
    files = list(node_properties(wishes, Path("/f"), PORTS).values())
    assert [p["broker.rack"] for p in files] == ["rack-1", "rack-2", "rack-1", "rack-2"]
    assert {p["offsets.topic.replication.factor"] for p in files} == {"3"}
    assert {p["offsets.topic.num.partitions"] for p in files} == {"4"}
    assert {(p["num.partitions"], p["log.dirs"]) for p in files} == {("7", "/x")}
    one = next(iter(node_properties(ClusterSpec(), Path("/f"), PORTS).values()))
    assert one["transaction.state.log.min.isr"] == "1"


# -- the folder


def test_a_cluster_is_formatted_as_one_and_found_again(tmp_path: Path) -> None:
    assert find_cluster(tmp_path) == []
    made = make_cluster(SMALL, tmp_path, list(PORTS))
    cluster = find_cluster(tmp_path)
    assert [n.node_id for n in cluster] == [1, 2, 3]
    assert [dict(n.config.static) for n in cluster] == [dict(n.config.static) for n in made]
    identities = [
        identity
        for node in cluster
        for identity in load_ensemble(OsFileSystem(), node.config.log_dirs).formatted.values()
    ]
    assert len({identity.cluster_id for identity in identities}) == 1
    assert len({identity.directory_id for identity in identities}) == 6
    assert bootstrap_servers(cluster) == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"


def test_a_cluster_made_by_half_is_not_taken_for_new(tmp_path: Path) -> None:
    make_cluster(SMALL, tmp_path, list(PORTS))
    (tmp_path / "node-1" / "server.properties").unlink()
    assert find_cluster(tmp_path) == []
    with pytest.raises(ClusterError, match=r"node-1/disk-1 is formatted, but .* made to the end"):
        make_cluster(SMALL, tmp_path, list(PORTS))


def test_disks_of_two_clusters(tmp_path: Path) -> None:
    make_cluster(SMALL, tmp_path / "a", list(PORTS))
    make_cluster(SMALL, tmp_path / "b", list(PORTS))
    (tmp_path / "a" / "node-2" / "disk-2").rename(tmp_path / "old")
    (tmp_path / "b" / "node-2" / "disk-2").rename(tmp_path / "a" / "node-2" / "disk-2")
    with pytest.raises(ClusterError, match=r"different clusters: .*node-1/disk-1 to .*disk-2 to"):
        find_cluster(tmp_path / "a")


def test_a_damaged_meta_properties_is_no_directory_of_another_cluster(tmp_path: Path) -> None:
    make_cluster(SMALL, tmp_path, list(PORTS))
    (tmp_path / "node-2" / "disk-2" / "meta.properties").write_text("damaged\n")
    assert len(find_cluster(tmp_path)) == 3


def test_an_error_of_a_property_file_names_the_file(tmp_path: Path) -> None:
    make_cluster(SMALL, tmp_path, list(PORTS))
    file = tmp_path / "node-2" / "server.properties"
    file.write_text(f"{file.read_text()}num.io.threads=abc\n")
    with pytest.raises(ClusterError, match=f"^{file}: Invalid value abc .*num.io.threads"):
        find_cluster(tmp_path)


def test_a_port_that_somebody_took(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        nodes = make_cluster(ClusterSpec(), tmp_path, [port, *free_ports(1)])
        with pytest.raises(ClusterError, match=f"node 1 needs port {port}, which is in use"):
            check_can_start(nodes)


def test_the_user_reads_which_port_is_in_use_and_which_one_stands_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = {9092: "is in use"}
    monkeypatch.setattr(command, "obstacle", taken.get)
    first, second = cluster_ports(ClusterSpec(), 9092, is_wish=False)
    assert first not in (9092, 9093)
    assert second == 9093
    assert capsys.readouterr().err == f"port 9092 is in use: this cluster uses {first} instead\n"
    with pytest.raises(CommandFailed, match="--port 9092: the port is in use"):
        cluster_ports(ClusterSpec(), 9092, is_wish=True)


def test_a_port_for_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.bind", refuse)
    assert obstacle(80) == "may be used only by root"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "2"], r"--nodes 2: .* holds a cluster with 3"),
        (["--dirs", "3"], r"--dirs 3: .* holds a cluster with 2"),
        (["--controllers", "1"], r"--controllers 1: .* holds a cluster with 0"),
        (["--port", "7"], r"--port 7: .* holds a cluster with 1;"),
        (["--override", "num.partitions=2"], r"--override: .* edit its property files instead"),
    ],
)
def test_options_that_contradict_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    make_cluster(SMALL, tmp_path, list(PORTS))
    assert run(["up", "--data", str(tmp_path), *arguments]) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "0"], "0 is not in the range 1<=x<=64"),
        (["--racks", "2"], "--racks 2 is more than --nodes 1"),
        (["--nodes", "3", "--port", "65535"], "--port 65535: 6 ports are needed, up to 65540"),
        (["--override", "log.segment.bytes=x"], "log.segment.bytes"),
        (["--data", "/proc/nowhere"], "cannot make /proc/nowhere"),
        (["--data", ""], "'--data': the path is empty"),
    ],
)
def test_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, err = run(["up", *arguments]), capsys.readouterr().err
    assert code == failure_code(err)
    assert message in err


def test_the_greeting_names_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wishes = ClusterSpec(nodes=3, dirs=2, racks=3, with_metrics=True)
    nodes = make_cluster(wishes, tmp_path, list(range(20001, 20020)))
    greet(nodes, {1: 901, 2: 902, 3: 903}, str(tmp_path), "kept")
    out = capsys.readouterr().out
    for text in (
        *("901", "902", "kill -9 903", "rack-3", "127.0.0.1:20007"),
        *("127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003", "node-2/disk-2"),
        f"spindle server start {tmp_path}/node-3/server.properties",
    ):
        assert text in out, text


def test_the_start_summary_names_the_directories_that_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = make_cluster(ClusterSpec(nodes=1, dirs=2), tmp_path, list(range(20001, 20020)))
    first, second = nodes[0].config.log_dirs
    changed = ChangedLogDirs(added=("/elsewhere",), removed=(second,))
    write_changed_log_dirs(OsFileSystem(), nodes[0].config.metadata_log_dir, changed)
    greet(nodes, {1: 901}, str(tmp_path), "kept")
    out = capsys.readouterr().out
    assert "/elsewhere" in out
    assert Path(second).name not in out
    described = json.loads(ready_event(nodes, {1: 901}, str(tmp_path), is_kept=True))
    assert described["nodes"][0]["log_dirs"] == [first, "/elsewhere"]


_HOLD_LOCK = """
import sys
from spindle.runtime.disks.directory_lock import DirectoryLock
DirectoryLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_folder_in_which_a_node_runs_is_not_removed(tmp_path: Path) -> None:
    nodes = make_cluster(SMALL, tmp_path, list(PORTS))
    # The lock file of a killed node is left behind, but nobody holds its lock.
    (Path(nodes[0].config.log_dirs[0]) / ".lock").touch()
    assert nodes_in_use(nodes) == []
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, nodes[1].config.log_dirs[1]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert nodes_in_use(nodes) == [2]
        with pytest.raises(ClusterError, match=r"node-2: node 2 .* running already, at 127\.0"):
            check_can_start(nodes)
        ForegroundCluster(data=None, is_kept=False, as_json=True)._remove(tmp_path, nodes)
        assert tmp_path.exists()
        holder.communicate("")
    ForegroundCluster(data=None, is_kept=False, as_json=True)._remove(tmp_path, nodes)
    assert not tmp_path.exists()


class _FailingSupervisor:
    """Node 2 ends during the start; node 3 fails while the others are stopped."""

    def __init__(self, on_ready: Any, on_end: Callable[[NodeFolder, int], None]) -> None:
        self._on_end = on_end
        self.pids: dict[int, int] = {}
        self.nodes: Sequence[NodeFolder] = ()

    def start(self, nodes: Sequence[NodeFolder], _run_node: Any) -> None:
        self.nodes = nodes
        self.pids = {node.node_id: 1 for node in nodes}

    def wait_ready(self) -> None:
        self._fail(1)

    def stop(self) -> bool:
        self._fail(2)
        return True

    def close(self) -> None:
        pass

    def _fail(self, number: int) -> None:
        node = self.nodes[number]
        node.log_file.write_text(f"FATAL {node.node_id} is broken\n")
        self._on_end(node, 1)


def test_every_node_that_does_not_start_is_named_with_its_reason_and_no_way_to_start_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spindle.cli.up.foreground.TerminalSupervisor", _FailingSupervisor)
    cluster = ForegroundCluster(data=tmp_path, is_kept=True, as_json=False)
    with pytest.raises(CommandFailed) as failed:
        cluster.run(SMALL, (), lambda: list(PORTS), 0)
    assert str(failed.value).splitlines() == [
        "node 2 did not start:",
        "FATAL 2 is broken",
        "node 3 did not start:",
        "FATAL 3 is broken",
    ]
    assert capsys.readouterr().err.splitlines() == [
        "node 2 ended with code 1",
        "stopping the other nodes; Ctrl-C kills them",
        "node 3 ended with code 1",
        "stopped",
    ]


# -- processes


_STAND_IN = '''
"""`spindle up` with nodes that only wait for their signals, and say so in files."""
import asyncio, os, signal, sys, time
from types import ModuleType

def run_node(config, on_ready):
    class Node:
        before_quorum_stop = None
        is_active_controller = config.node_id == 2
        def when_active(self, broker_ids, then):
            assert list(broker_ids) == sorted(set(broker_ids)) != []
            then()
    node = Node()
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(tell)
    print("node", config.node_id, "in session", os.getsid(0) == os.getpid(), flush=True)
    if config.rack == "broken":
        print("FATAL no good")
        return 1
    on_ready(node)
    os.read(told, 1)
    if config.rack == "failing":
        return 1
    signal.set_wakeup_fd(-1)
    print("broker stopped", time.monotonic_ns(), flush=True)
    asyncio.run(node.before_quorum_stop())
    print("quorum left", time.monotonic_ns(), flush=True)
    return 143

module = ModuleType("spindle.runtime.process")
module.run_node = run_node
sys.modules["spindle.runtime.process"] = module
from spindle.cli.main import main
main()
'''


_REAL = "from spindle.cli.main import main; main()"


class Up:
    """A running `spindle up --json`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        program: str = _STAND_IN,
        is_under_nohup: bool = False,
    ) -> None:
        def set_signals() -> None:
            default_signals()
            if is_under_nohup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

        # Every descendant of the command holds this pipe open.
        self.alive, life = os.pipe()
        is_there = any((folder / name).exists() for name in ("node-1", "server.properties"))
        words = ["up", "--json"] if is_there else ["up", "--json", "--port=0"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *words, "--data", str(folder), *arguments],
            pass_fds=[life],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=set_signals,
        )
        os.close(life)
        self.timer = threading.Timer(60, self.process.kill)
        self.timer.start()

    def event(self, name: str) -> dict[str, Any]:
        """Return the next event of that name."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == name:
                return event
        raise AssertionError(f"no {name}: {self.process.stderr and self.process.stderr.read()}")

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        self.process.communicate()
        return self.process.returncode

    def close(self) -> None:
        self.timer.cancel()
        self.process.kill()
        self.process.communicate()
        os.close(self.alive)


@pytest.fixture
def start_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*arguments: str, **options: Any) -> Up:
        started.append(Up(tmp_path, *arguments, **options))
        return started[-1]

    yield start
    for up in started:
        up.close()


def logged(folder: Path, node_id: int) -> str:
    return (folder / f"node-{node_id}" / "server.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_quorum_leaves_after_the_last_broker(
    tmp_path: Path, start_up: Callable[..., Up], number: int
) -> None:
    up = start_up("--nodes", "3")
    ready = up.event("ready")
    assert [node["node_id"] for node in ready["nodes"]] == [1, 2, 3]
    assert len({node["pid"] for node in ready["nodes"]} | {up.process.pid}) == 4
    assert up.end(number) == 0
    stopped, left = [], []
    for node_id in (1, 2, 3):
        log = logged(tmp_path, node_id)
        assert f"node {node_id} in session True" in log
        words = log.split()
        stopped.append(int(words[words.index("stopped") + 1]))
        left.append(int(words[words.index("left") + 1]))
    assert max(stopped) < min(left)
    assert max(left) == left[1], "the leader would wait for another to lead"


def test_one_node_is_a_child_that_logs_to_a_file(
    tmp_path: Path, start_up: Callable[..., Up]
) -> None:
    for _ in range(2):
        up = start_up("--dirs", "2")
        ready = up.event("ready")
        (node,) = ready["nodes"]
        assert node["pid"] != up.process.pid
        assert node["log_file"] == str(tmp_path / "server.log")
        assert node["log_dirs"] == [str(tmp_path / name) for name in ("disk-1", "disk-2")]
        assert up.end() == 0
    assert (tmp_path / "server.log").read_text().count("node 1 in session True") == 2
    assert (tmp_path / "disk-2" / "meta.properties").exists()


def test_nohup_is_respected(start_up: Callable[..., Up]) -> None:
    up = start_up("--nodes", "2", is_under_nohup=True)
    node = up.event("ready")["nodes"][1]
    up.process.send_signal(signal.SIGHUP)
    os.kill(node["pid"], signal.SIGKILL)
    assert up.event("node-ended")["node_id"] == 2
    assert up.end() == 0


def test_one_that_dies_is_reported_and_the_others_continue(
    tmp_path: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up("--nodes", "3")
    pids = {node["node_id"]: node["pid"] for node in up.event("ready")["nodes"]}
    os.kill(pids[2], signal.SIGKILL)
    assert up.event("node-ended") == {"event": "node-ended", "node_id": 2, "code": -9}
    # A node that is stopped alone does not wait for the others.
    os.kill(pids[3], signal.SIGTERM)
    assert up.event("node-ended") == {"event": "node-ended", "node_id": 3, "code": 143}
    os.kill(pids[1], 0)
    assert up.end() == 0


def test_when_all_have_died_the_command_ends(start_up: Callable[..., Up]) -> None:
    up = start_up("--nodes", "2")
    for node in up.event("ready")["nodes"]:
        os.kill(node["pid"], signal.SIGKILL)
    up.event("stopped")
    assert up.process.wait() == 1


def test_the_log_of_a_node_that_failed_is_named(
    tmp_path: Path, start_up: Callable[..., Up]
) -> None:
    up = start_up("--override", "broker.rack=failing")
    (node,) = up.event("ready")["nodes"]
    os.kill(node["pid"], signal.SIGTERM)
    _, err = up.process.communicate()
    assert err == f"the reason is in {tmp_path / 'server.log'}\n"
    assert up.process.returncode == 1


def test_a_node_that_does_not_start_ends_all(tmp_path: Path, start_up: Callable[..., Up]) -> None:
    for run_number in range(2):
        up = start_up("--nodes", "3", *([] if run_number else ["--override", "broker.rack=broken"]))
        _, err = up.process.communicate()
        assert up.process.returncode == 1
        assert "did not start:" in err
        count = err.count("did not start:")
        assert err.count("FATAL no good") == count, "the log of an earlier run is left out"


def test_nodes_do_not_outlive_the_command(tmp_path: Path, start_up: Callable[..., Up]) -> None:
    up = start_up("--nodes", "3")
    up.event("ready")
    up.process.kill()
    assert os.read(up.alive, 1) == b""
    assert all("quorum left" in logged(tmp_path, node_id) for node_id in (1, 2, 3))


def test_the_second_run_has_the_same_ports_and_ids(start_up: Callable[..., Up]) -> None:
    first = start_up("--nodes", "3")
    before = first.event("ready")
    assert first.end() == 0
    second = start_up()
    after = second.event("ready")
    for node in (*before["nodes"], *after["nodes"]):
        node.pop("pid")
    assert after == before
    assert second.end() == 0


# -- the real thing


def test_three_nodes_replicate_and_come_back(
    start_up: Callable[..., Up], capsys: pytest.CaptureFixture[str]
) -> None:
    def said(bootstrap: str, tool: str, *words: str) -> list[str]:
        assert run([tool, *words, "--bootstrap-server", bootstrap]) == 0
        return capsys.readouterr().out.splitlines()

    up = start_up("--nodes", "3", "--dirs", "2", "--racks", "3", program=_REAL)
    ready = up.event("ready")
    bootstrap = ready["bootstrap_servers"]
    for node in ready["nodes"]:
        known = said(node["clients"], "kafka", "cluster", "list-endpoints")
        assert [line.split()[0] for line in known[1:]] == ["1", "2", "3"]
    said(bootstrap, "kafka", "topics", "--create", "--topic", "t", "--partitions", "1")
    for node in ready["nodes"]:
        # A broker learns of a topic a moment after the controller has created it.
        while "t" not in said(node["clients"], "kafka", "topics", "--list"):
            pass
    described = said(bootstrap, "kafka", "topics", "--describe", "--topic", "t")
    assert "ReplicationFactor: 3" in described[0]
    load = ("--topic", "t", "--num-records", "50", "--record-size", "10", "--throughput", "-1")
    said(bootstrap, "kafka", "producer-perf-test", *load, "--producer-props", "acks=all")
    assert up.end() == 0
    again = start_up(program=_REAL)
    assert again.event("ready")["bootstrap_servers"] == bootstrap
    assert said(bootstrap, "kafka", "get-offsets", "--topic", "t") == ["t:0:50"]
    assert again.end() == 0
    assert not list(Path(ready["folder"]).rglob(".lock"))


def test_a_cluster_whose_output_nobody_reads_any_more_is_removed(tmp_path: Path) -> None:
    command = (sys.executable, "-c", _REAL, "up")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        preexec_fn=default_signals,
    ) as process:
        assert process.stdout is not None
        assert any(b"Ctrl-C" in line for line in process.stdout)
        assert any(tmp_path.iterdir())
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert not any(tmp_path.iterdir())
