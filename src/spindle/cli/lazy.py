"""A group of commands whose modules are imported only when they run.

Starting a node must not pay for the imports of other tools.
"""

from collections.abc import Mapping
from importlib import import_module

import click

from spindle.cli.suggestions import SuggestingGroup


class LazyGroup(SuggestingGroup):
    """A click group with commands named by import path (`module:attribute`).

    The short help stands beside the path, so that listing the commands imports none of them.

    Args:
        sections: titles of the help, and under each the commands: name, path and short help.
        former: earlier names of commands, which no help shows, and the path of each.
    """

    def __init__(
        self,
        name: str,
        *,
        help: str,
        sections: Mapping[str, Mapping[str, tuple[str, str]]],
        params: list[click.Parameter],
        former: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, help=help, params=params)
        self._sections = sections
        self._lazy = {
            name: entry for commands in sections.values() for name, entry in commands.items()
        }
        self._former = former or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._lazy.get(cmd_name)
        path = self._former.get(cmd_name) if entry is None else entry[0]
        if path is None:
            return None
        module, _, attribute = path.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), path
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, help) for name, (_, help) in commands.items()])
