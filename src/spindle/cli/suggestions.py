"""Commands with similar names, for a command that does not exist."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import click

_WHOLE_SENTENCE: Final = 1000


class UnknownCommand(click.UsageError):
    """A group has no command of this name.

    Attributes:
        name: the word that was given.
        choices: the commands of the group.
    """

    def __init__(self, name: str, choices: Sequence[str], context: click.Context) -> None:
        begun = [choice for choice in choices if name and choice.startswith(name)]
        similar = dict.fromkeys((*begun, *get_close_matches(name, choices)))
        hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
        super().__init__(f"There is no command {name!r}.{hint}", context)
        self.name = name
        self.choices = choices


class SuggestingGroup(click.Group):
    """A click group that suggests similar commands for an unknown one.

    Its help shows the whole first sentence of each command.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(_WHOLE_SENTENCE)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            raise UnknownCommand(name, self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)
