"""Options of a tool, read as its command reads them; exit codes."""

from collections.abc import Sequence

from spindle.cli.dialect import Dialect
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.options import Declaration, Options


def failure_code(err: str) -> int:
    """Return the exit code that belongs to an error on the screen: 2 for a wrong command line."""
    return 2 if "\nTry: spindle " in err else 1


def parsed(
    declaration: Declaration, words: Sequence[str], dialect: Dialect = Dialect.SPINDLE
) -> Options:
    """Return what the body of a tool with this declaration is given.

    Raises:
        click.UsageError: the words cannot be read.
    """
    seen: list[Options] = []
    command = ToolCommand("tool", declaration, seen.append)
    with command.make_context("tool", list(words), obj=dialect) as context:
        command.invoke(context)
    return seen[0]
