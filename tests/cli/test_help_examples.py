"""The examples in the helps of commands are command lines that can be read."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from spindle.cli.main import spindle


def examples(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the examples of a command and of those below it."""
    yield from re.findall(r"\bspindle [^|<>\n]+", command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from examples(below, click.Context(below, parent=context, info_name=name))


@pytest.mark.parametrize(
    "line", sorted(set(examples(spindle, click.Context(spindle, info_name="spindle"))))
)
def test_an_example_can_be_read(line: str) -> None:
    command: click.Command = spindle
    context = click.Context(spindle, info_name="spindle")
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        name, *words = words
        below = command.get_command(context, name)
        assert below is not None, name
        command = below
    # Raises UsageError for an option that does not exist or a value that cannot be read.
    command.make_context(str(command.name), words, parent=context)
