"""`kafka-server-stop.sh`: end the nodes that were started from the same folder.

Kafka's script ends every Kafka server on the machine. Here the folder is part of a server's command
line, so that two folders do not end each other's nodes.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import click

from spindle.cli.kafka_home.kafka_mode import run_tool
from spindle.cli.tools.bootstrap import properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import FAILURES
from spindle.cli.tools.options import Declaration, Option, Options

_FAILED: Final = 1
_OVERRIDE: Final = " --override "

DECLARATION: Final = Declaration(
    "This script ends the nodes that were started from this folder.",
    [
        Option("process-role", "Only nodes with this role.", "role"),
        Option("node-id", "Only the node with this number.", "id"),
    ],
)


class RunningNode(NamedTuple):
    """A server process and its property file."""

    pid: int
    file: str


def stop_nodes(home: str, words: Sequence[str]) -> int:
    """End all nodes of a folder, or those that the words select; return the exit code.

    The variable SIGNAL names the signal; SIGTERM by default.
    """
    if not words:
        return _stop(home, None)
    command = ToolCommand("server-stop", DECLARATION, lambda options: _stop(home, options))
    return run_tool(command, "kafka-server-stop", words)


def _stop(home: str, options: Options | None) -> int:
    processes = subprocess.run(
        ["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    nodes = running_nodes(processes.stdout.splitlines(), home)
    chosen = [node for node in nodes if options is None or _is_meant(node, options)]
    if not chosen:
        click.echo("No kafka server to stop")
        return _FAILED
    number = signal_number(os.environ.get("SIGNAL", "TERM"))
    for node in chosen:
        os.kill(node.pid, number)
    return 0


def running_nodes(lines: Iterable[str], home: str) -> list[RunningNode]:
    """Return the nodes of a folder, from lines of `ps`: process ids and command lines."""
    mark = f" --home {home} kafka.Kafka "
    nodes = []
    for line in lines:
        pid, _, command = line.strip().partition(" ")
        _, separator, words = command.partition(mark)
        if separator:
            nodes.append(RunningNode(int(pid), words.partition(_OVERRIDE)[0].strip()))
    return nodes


def signal_number(name: str) -> int:
    """Return the number of a signal, from its name or number.

    Raises:
        ValueError: there is no such signal.
    """
    if name.isdecimal():
        return signal.Signals(int(name))
    try:
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
    except KeyError:
        raise ValueError(f"SIGNAL is {name!r}, which is not a signal") from None


def _is_meant(node: RunningNode, options: Options) -> bool:
    """Return whether the property file of a node agrees with the options; False if it cannot be
    read.
    """
    try:
        properties = properties_of(node.file)
    except FAILURES:
        return False
    role, node_id = options.one("process-role"), options.one("node-id")
    roles = [name.strip() for name in properties.get("process.roles", "").split(",")]
    if node_id is not None and properties.get("node.id", "").strip() != node_id:
        return False
    return role is None or role in roles
