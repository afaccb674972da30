"""Run a tool or a node by the name of Kafka's main class: `python -m spindle.cli.java_main`.

The scripts of `spindle home` call this module. The folder comes first (`--home DIR`):
`kafka-server-stop.sh` recognizes its nodes by it.
"""

import sys
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.dialect import Dialect
from spindle.cli.kafka_home.kafka_mode import run_tool
from spindle.cli.lazy import imported
from spindle.cli.main import run
from spindle.cli.tools.command import ToolCommand, ToolGroup
from spindle.cli.tools.kafka_names import FORMER_CLASSES, KAFKA_TOOLS

_SERVER: Final = "kafka.Kafka"
_STOP: Final = "spindle.ServerStop"
_FAILED: Final = 1


def run_class(home: str, java_class: str, words: Sequence[str]) -> int:
    """Run the counterpart of one of Kafka's main classes and return the exit code."""
    if java_class == _SERVER:
        if not words:
            click.echo(f"USAGE: {_SERVER} server.properties [--override property=value]*", err=True)
            return _FAILED
        return run(["server", "start", *words], Dialect.KAFKA)
    if java_class == _STOP:
        from spindle.cli.kafka_home.stop import stop_nodes

        return stop_nodes(home, words)
    name = FORMER_CLASSES.get(java_class, java_class)
    for tool in KAFKA_TOOLS:
        if tool.java_class == name:
            command = imported(tool.path)
            if isinstance(command, ToolCommand | ToolGroup):
                return run_tool(command, tool.script, words)
            return run(["kafka", tool.name, *words], Dialect.KAFKA)
    click.echo(f"Error: Could not find or load main class {java_class}", err=True)
    return _FAILED


def main(words: Sequence[str]) -> int:
    """Run a command line, `--home DIR CLASS ...`, and return the exit code."""
    match words:
        case ["--home", home, java_class, *rest]:
            return run_class(home, java_class, rest)
        case _:
            click.echo("USAGE: --home DIR classname [opts]", err=True)
            return _FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
