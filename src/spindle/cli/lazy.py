"""A group of commands whose modules are imported only when they run.

Starting a node must not pay for the imports of other tools.
"""

from collections.abc import Mapping
from importlib import import_module

import click

from spindle.cli.suggestions import SuggestingGroup


class LazyGroup(SuggestingGroup):
    """A click group with commands named by import path (`module:attribute`).

    The short help stands here as well, so that listing the commands imports none of them.
    """

    def __init__(
        self,
        name: str,
        *,
        help: str,
        commands: Mapping[str, tuple[str, str]],
        params: list[click.Parameter],
    ) -> None:
        super().__init__(name, help=help, params=params)
        self._lazy = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._lazy.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), entry[0]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in self._lazy.items()])
