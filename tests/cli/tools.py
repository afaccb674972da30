"""Options of a tool, read as its command reads them."""

from collections.abc import Sequence

from spindle.cli.dialect import Dialect
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.options import Declaration, Options


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
