"""`spindle server start` and refusals of `spindle up`, with a stand-in for the node itself."""

import gc
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from spindle import __version__
from spindle.cli.main import run
from spindle.common.native import native_text
from spindle.config.node_config import NodeConfig
from tools import failure_code

Ready = Callable[[object], None] | None


class Nodes:
    """Records the nodes that would have been started."""

    def __init__(self) -> None:
        self.started: list[NodeConfig] = []

    def run_node(self, config: NodeConfig, on_ready: Ready = None) -> int:
        self.started.append(config)
        return 143


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes()
    module = ModuleType("spindle.runtime.process")
    vars(module)["run_node"] = nodes.run_node
    monkeypatch.setitem(sys.modules, "spindle.runtime.process", module)
    return nodes


@pytest.fixture
def property_file(tmp_path: Path) -> Path:
    directory = tmp_path / "d1"
    directory.mkdir()
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://h:1,CONTROLLER://h:2\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@h:2\n"
        f"log.dirs={directory}\nlgo.dirs=x\n"
    )
    return path


def test_start_uses_overrides_and_warns_of_unknown_keys(
    nodes: Nodes, property_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["server", "start", str(property_file), "--override", "num.partitions = 3"]
    assert run([*arguments, "--override", "broker.rack=a=b"]) == 143
    (config,) = nodes.started
    assert config.integer("num.partitions") == 3
    assert config.rack == "a=b"
    assert capsys.readouterr().err == (
        "WARN configuration key lgo.dirs is unknown and has no effect (did you mean log.dirs?)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such/file"], "cannot read /no/such/file: No such file or directory\n"),
        (["FILE", "--override", "x"], "--override x: a setting has the form NAME=VALUE\n"),
        (
            ["FILE", "--override", "node.id=-1"],
            "Invalid value -1 for configuration node.id: Value must be at least 0\n",
        ),
    ],
)
def test_a_start_that_is_refused(
    nodes: Nodes,
    property_file: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    given = [str(property_file) if a == "FILE" else a for a in arguments]
    code, err = run(["server", "start", *given]), capsys.readouterr().err
    assert code == failure_code(err)
    assert err.startswith(message)
    assert nodes.started == []


@pytest.mark.parametrize("is_right", [True, False])
def test_a_start_leaves_the_garbage_collector_on(
    nodes: Nodes, property_file: Path, is_right: bool
) -> None:
    run(["server", "start", str(property_file) if is_right else "/no/such/file"])
    assert gc.isenabled()


def test_up_on_a_port_in_use(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["up", "--port", str(port)]) == 1
    assert capsys.readouterr().err == f"--port {port}: the port is in use\n"


def test_up_below_a_file(nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain").write_text("")
    assert run(["up", "--port", "0", "--data", str(tmp_path / "plain" / "x")]) == 1
    assert "plain/x: Not a directory" in capsys.readouterr().err


def test_help_lists_the_tools_without_importing_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("spindle.cli.up", "spindle.cli.server", "spindle.cli.storage.commands"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("up", "server", "storage"))
    assert "spindle.cli.up" not in sys.modules


def test_the_version_and_the_use_of_native_code_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--version"]) == 0
    version, native_code = capsys.readouterr().out.splitlines()
    assert version == f"spindle {__version__}"
    assert native_code == native_text()


def test_a_property_file_without_the_command_is_answered_with_the_whole_line(
    property_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["server", str(property_file)]) == 2
    told = f"The command is missing: spindle server start {property_file}\n"
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize("arguments", [["nosuch"], ["storage", "nosuch"], ["up", "--dirs", "0"]])
def test_a_wrong_command_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("Try: spindle ")
