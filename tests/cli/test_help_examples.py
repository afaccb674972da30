"""The examples in the helps of commands can be read, and texts name commands that exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from spindle.cli.lazy import LazyGroup
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
        name, *words = command.with_default(words) if isinstance(command, LazyGroup) else words
        below = command.get_command(context, name)
        assert below is not None, name
        command = below
    # Raises UsageError for an option that does not exist or a value that cannot be read.
    command.make_context(str(command.name), words, parent=context)


ROOT = Path(__file__).parents[2]
_COMMAND = re.compile(r"(?:`|\$ |\n {4,}|: )spindle ([a-z][a-z-]*(?: [a-z][a-z-]*)?)(?![a-z-]*=)")


def texts() -> Iterator[Path]:
    """Yield the documents and the modules, whose texts and comments name commands."""
    for folder, ending in (("docs", ".md"), ("deploy", ".md"), ("src/spindle", ".py")):
        yield from (path for path in (ROOT / folder).rglob(f"*{ending}"))
    yield from ROOT.glob("*.md")


def test_texts_name_commands_at_their_present_places() -> None:
    unknown = [
        f"{path.relative_to(ROOT)}: spindle {words}"
        for path in texts()
        if path.name != "CHANGELOG.md"
        for words in _COMMAND.findall(path.read_text())
        if not is_current(words.split())
    ]
    assert unknown == []


def is_current(words: list[str]) -> bool:
    """Return whether words begin a command line that needs no earlier name of a command."""
    command: click.Command = spindle
    context = click.Context(spindle)
    while words:
        if not isinstance(command, click.Group):
            return True
        word, *words = command.with_default(words) if isinstance(command, LazyGroup) else words
        if word not in command.list_commands(context):
            return False
        below = command.get_command(context, word)
        assert below is not None, word
        command = below
    return True
