"""A group of commands whose modules are imported only when they run.

Starting a node must not pay for the imports of other tools.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from spindle.cli.suggestions import SuggestingGroup


class LazyGroup(SuggestingGroup):
    """A click group with commands named by import path (`module:attribute`).

    The short help stands beside the path, so that listing the commands imports none of them.

    Args:
        sections: titles of the help, and under each the commands: name, path and short help.
        former: former names of commands, which no help shows, with the present command line and
            import path. If another command has the name now, that one runs unless only the former
            command has the options.
        default: the command of a line whose first word names none of the commands.
    """

    def __init__(
        self,
        name: str,
        *,
        help: str,
        sections: Mapping[str, Mapping[str, tuple[str, str]]],
        params: Sequence[click.Parameter] = (),
        epilog: str | None = None,
        former: Mapping[str, tuple[str, str]] | None = None,
        default: str | None = None,
    ) -> None:
        super().__init__(name, help=help, params=list(params), epilog=epilog)
        self._sections = sections
        self._lazy = {
            name: entry for commands in sections.values() for name, entry in commands.items()
        }
        self._former = former or {}
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if is_help else self.with_default(args))

    def with_default(self, words: list[str]) -> list[str]:
        """Return the words of a command line with the default command if they name none."""
        if self._default is None or not words or words[0] in self._lazy:
            return words
        return [self._default, *words]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._lazy.get(cmd_name)
        if entry is None:
            return self._former_command(cmd_name)
        return imported(entry[0])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *words = args
        if name in self._former and not ctx.resilient_parsing:
            is_former = name not in self._lazy
            if not is_former and not _can_read(imported(self._lazy[name][0]), words):
                is_former = _can_read(imported(self._former[name][1]), words)
            if is_former:
                click.echo(f"{ctx.command_path} {name} is now {self._former[name][0]}", err=True)
                return name, self._former_command(name), words
        return super().resolve_command(ctx, args)

    def _former_command(self, name: str) -> click.Command | None:
        entry = self._former.get(name)
        return None if entry is None else imported(entry[1])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, help) for name, (_, help) in commands.items()])


def imported(path: str) -> click.Command:
    """Return the command at an import path, `module:attribute`."""
    module, _, attribute = path.partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command), path
    return command


def _can_read(command: click.Command, words: Sequence[str]) -> bool:
    """Return whether a command has the sub-command, the options and the arguments of the words."""
    context = click.Context(command)
    params = command.get_params(context)
    by_name = {name: p for p in params if isinstance(p, click.Option) for name in p.opts}
    takes_arguments = any(isinstance(parameter, click.Argument) for parameter in params)
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return takes_arguments or not left
        if word.startswith("-") and len(word) > 1:
            is_long = word.startswith("--")
            name = word.partition("=")[0] if is_long else word[:2]
            option = by_name.get(name)
            if option is None:
                return False
            if not option.is_flag and "=" not in word and (is_long or len(word) == 2):
                del left[:1]
        elif isinstance(command, click.Group):
            inner = command.get_command(context, word)
            return inner is not None and _can_read(inner, left)
        elif not takes_arguments:
            return False
    return True
