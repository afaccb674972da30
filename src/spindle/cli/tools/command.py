"""The click commands behind Kafka's tools."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import click
from click.core import ParameterSource

from spindle.cli.dialect import KAFKA_VERSION, Dialect, dialect_of
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.suggestions import SuggestingGroup
from spindle.cli.tools.failures import (
    FAILURES,
    ExecutionFailed,
    UsageError,
    WrongOptions,
    failure,
)
from spindle.cli.tools.options import LOOSE_WORDS, Declaration, Option, Options, note_words

Body: TypeAlias = Callable[[Options], int | None]


class HelpAsked(Exception):
    """The words of one of Kafka's scripts contain `--help`.

    Attributes:
        context: the command.
    """

    def __init__(self, context: click.Context) -> None:
        self.context = context


class ToolCommand(click.Command):
    """A tool of Kafka, or a sub-command.

    Args:
        body: runs the tool and returns an exit code; None means success. It may raise one of
            `FAILURES`, `UsageError` or `ExecutionFailed`.
    """

    def __init__(
        self, name: str, declaration: Declaration, body: Body, *, is_part: bool = False
    ) -> None:
        params: list[click.Parameter] = list(declaration.options)
        if not is_part:
            params.append(_version_option())
        if declaration.words is not None:
            metavar = f"[{declaration.words}]..."
            params.append(click.Argument([LOOSE_WORDS], nargs=-1, metavar=metavar))
        epilog = examples(*declaration.examples)
        super().__init__(name, params=params, help=declaration.summary, epilog=epilog)
        self._body = body

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return _help_option(super().get_help_option(ctx), dialect_of(ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Kafka's tools ignore words that belong to no option.
        ctx.allow_extra_args = dialect_of(ctx) is Dialect.KAFKA
        words = _repeat_option_names(args, self.params)
        note_words(self, ctx, words)
        left = super().parse_args(ctx, words)
        prefer_given_servers(ctx)
        return left

    def invoke(self, ctx: click.Context) -> Any:
        options = Options(ctx)
        if dialect_of(ctx) is Dialect.KAFKA:
            # `spindle.cli.kafka_home.kafka_mode` prints the failures.
            return self._body(options) or 0
        try:
            return self._body(options) or 0
        except (WrongOptions, UsageError) as error:
            raise click.UsageError(error.plainly, ctx) from None
        except ExecutionFailed as error:
            if isinstance(error.cause, WrongOptions):
                raise click.UsageError(error.cause.plainly, ctx) from None
            raise CommandFailed(failure(error.cause).plainly) from None
        except FAILURES as error:
            raise CommandFailed(failure(error).plainly) from None


class ToolGroup(SuggestingGroup):
    """A tool with sub-commands; its own options may stand before or after the sub-command.

    Args:
        version_names: the names of the option that prints the version.
    """

    def __init__(
        self,
        name: str,
        declaration: Declaration,
        commands: Sequence[ToolCommand],
        *,
        version_names: Sequence[str] = ("--version",),
    ) -> None:
        super().__init__(
            name,
            epilog=examples(*declaration.examples),
            params=[*declaration.options, _version_option(version_names)],
            help=declaration.summary,
            commands={str(command.name): command for command in commands},
            no_args_is_help=True,
        )
        for command in commands:
            command.params[:0] = declaration.options

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return _help_option(super().get_help_option(ctx), dialect_of(ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        note_words(self, ctx, args)
        left = super().parse_args(ctx, args)
        prefer_given_servers(ctx)
        return left


def prefer_given_servers(context: click.Context) -> None:
    """Ignore a `--bootstrap-server` of the environment if the words name controllers."""
    if not context.params.get("bootstrap_controller"):
        return
    ancestor: click.Context | None = context
    while ancestor is not None:
        source = ancestor.get_parameter_source("bootstrap_server")
        if source is ParameterSource.ENVIRONMENT:
            ancestor.params["bootstrap_server"] = ()
        ancestor = ancestor.parent


def _repeat_option_names(words: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """Repeat an option that takes several words before each of them."""
    names = {
        name
        for parameter in params
        if isinstance(parameter, Option) and parameter.takes_several
        for name in parameter.opts
    }
    spread: list[str] = []
    current = ""
    for word in words:
        if word.startswith("-"):
            current = word if word in names else ""
        elif current and spread[-1] != current:
            spread.append(current)
        spread.append(word)
    return spread


def _help_option(option: click.Option | None, dialect: Dialect) -> click.Option | None:
    if option is None:
        return None
    shown = option.callback
    names = [*option.opts, "-h"] if dialect is Dialect.KAFKA else option.opts

    def show(context: click.Context, parameter: click.Parameter, is_asked: bool) -> Any:
        if is_asked and dialect is Dialect.KAFKA:
            raise HelpAsked(context)
        return shown(context, parameter, is_asked) if shown is not None else None

    return click.Option(
        names,
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help=option.help,
    )


def _version_option(names: Sequence[str] = ("--version",)) -> click.Option:
    def show(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
        if is_asked and not context.resilient_parsing:
            click.echo(KAFKA_VERSION)
            context.exit()

    return click.Option(
        list(names),
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version of Kafka that the tool follows.",
    )
