"""Every line that `spindle up` prints to be tried works when it is pasted."""

import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from up_command import UP

from spindle.cli.up import start_summary
from spindle.cli.up.start_summary import suggested_commands
from spindle.local.cluster_spec import ClusterSpec
from spindle.local.node_folder import make_cluster

PYTHON = f"# Read the records straight from the disks, in {sys.executable}:"


class Banner:
    """The lines of a banner."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)

    def block(self, first: str) -> list[str]:
        """Return the lines from this one up to the next empty one."""
        start = self.lines.index(first)
        return self.lines[start : self.lines.index("", start)]


@pytest.fixture(scope="module")
def banner() -> Iterator[Banner]:
    """Return the banner of a running node."""
    with subprocess.Popen([*UP, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("# Ctrl-C"):
                break
        try:
            yield Banner(lines)
        finally:
            process.terminate()
            process.stdout.read()


def test_one_node_writes_its_log_to_a_file_that_the_banner_names(banner: Banner) -> None:
    (folder,) = (line for line in banner.lines if line.startswith("folder "))
    (places,) = (line for line in banner.lines if line.endswith(" log server.log"))
    assert places.split() == ["disk-1", "disk-2", "disk-3", "log", "server.log"]
    log = Path(folder.split()[1]) / "server.log"
    assert "Kafka Server started" in log.read_text()
    assert not any("INFO" in line for line in banner.lines)


@pytest.fixture(scope="module")
def shell_output(banner: Banner) -> str:
    """Run the lines for the shell up to the first failure, and return their output."""
    lines = banner.block("# To try in another terminal:")
    done = subprocess.run(
        ["bash", "-e"], input="\n".join(lines), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_shell_lines_work_when_they_are_pasted(shell_output: str) -> None:
    assert "created demo" in shell_output
    numbers = [line for line in shell_output.splitlines() if line.isdecimal()]
    assert sorted(numbers) == [str(number) for number in range(1, 10)]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_python_lines_work_when_they_are_pasted(banner: Banner, shell_output: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(banner.block(PYTHON))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "|demo|" in done.stdout.replace(" ", "")


def test_a_killed_node_of_several_comes_back_by_the_lines(tmp_path: Path) -> None:
    nodes = make_cluster(ClusterSpec(nodes=3, dirs=2), tmp_path, list(range(20001, 20007)))
    first, second, *_ = suggested_commands(
        nodes, {1: 901, 2: 902, 3: 903}, str(tmp_path), "spindle"
    )
    assert "spindle topic create demo -p 3 -r 3" in first
    assert second == [
        "# Node 3 dies and comes back:",
        f"kill -9 903; spindle server start {tmp_path}/node-3/server.properties",
    ]


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_small_terminal_shows_all_addresses(
    tmp_path: Path, is_secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spindle-12345678"
    wishes = ClusterSpec(nodes=3, dirs=3, is_secure=is_secure)
    nodes = make_cluster(wishes, folder, list(range(20001, 20007)))
    screen = io.StringIO()
    monkeypatch.setattr(
        start_summary,
        "Console",
        partial(Console, file=screen, force_terminal=True, width=80, height=24),
    )
    start_summary.greet(nodes, {1: 901, 2: 902, 3: 903}, str(folder), "removed at the end")
    lines = Text.from_ansi(screen.getvalue()).plain.splitlines()
    assert sum(max(1, -(-len(line) // 80)) for line in lines) <= 23
    assert lines[1] == "bootstrap.servers  127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003"
    rest = folder / "to-try.txt"
    assert str(rest) in lines[-2]
    assert "kill -9 903" in rest.read_text()
