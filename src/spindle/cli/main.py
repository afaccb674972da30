"""The command `spindle`: run a command, and turn a failure into a line and an exit code."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from spindle import __version__
from spindle.cli.command_list import FORMER, SECTIONS
from spindle.cli.dialect import Dialect
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.lazy import LazyGroup
from spindle.cli.shared_options import RenamedOption
from spindle.cli.signals import interrupted_exit_code
from spindle.cli.standard_output import (
    CLOSED,
    StandardOutput,
    drop_standard_output,
    watch_standard_output,
)
from spindle.common.errors import ConfigError
from spindle.common.native import native_text
from spindle.common.text import error_text, printable
from spindle.local.errors import LocalError

FAILED = 1
MISUSED = 2
_WIDTH = 100


def _print_version(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        click.echo(f"spindle {__version__}\n{native_text()}")
        context.exit()


spindle = LazyGroup(
    "spindle",
    help="A Kafka-compatible cluster whose brokers own several disks.",
    sections=SECTIONS,
    former=FORMER,
    epilog=examples(
        "spindle up --nodes 3",
        "spindle topic create numbers -p 3 -b 127.0.0.1:9092",
        "spindle status -b 127.0.0.1:9092",
    ),
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version and exit.",
        )
    ],
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line of this process and exit with its code.

    If the reader of standard output has gone, it ends with 141 and prints nothing.
    """
    output = watch_standard_output()
    try:
        code = run(arguments, output=output)
    except SystemExit:
        # click raises this after a broken pipe.
        if output is None or not output.is_closed:
            raise
        code = CLOSED
    if output is not None:
        try:
            sys.stdout.flush()
        except OSError as error:
            code = code or _failed(error_text(error), output)
        if output.is_closed:
            code = CLOSED
        drop_standard_output()
    sys.exit(code)


def run(
    arguments: Sequence[str] | None = None,
    dialect: Dialect = Dialect.SPINDLE,
    output: StandardOutput | None = None,
) -> int:
    """Run one command and return the exit code.

    A failed command or an unusable configuration returns 1, with one line on standard error. A
    wrong command line returns 2, as in most programs, but 1 for Kafka's scripts. Ctrl-C is 130,
    SIGTERM 143, SIGHUP 129.
    """
    try:
        exit_code = spindle.main(
            arguments,
            prog_name="spindle",
            standalone_mode=False,
            max_content_width=_WIDTH,
            obj=dialect,
        )
    except click.UsageError as error:
        if isinstance(error, click.NoSuchOption):
            error = _without_former_names(error)
        text = error.format_message()
        if isinstance(error, click.MissingParameter):
            text = " ".join(text.split())  # click lists the choices in lines of their own
        _failed(text)
        if error.ctx is not None and not isinstance(error, NoArgsIsHelpError):
            click.echo(f"Try: {error.ctx.command_path} --help", err=True)
        return FAILED if dialect is Dialect.KAFKA else MISUSED
    except click.ClickException as error:
        return _failed(error.format_message(), output)
    except (click.Abort, KeyboardInterrupt):
        return interrupted_exit_code()
    except (CommandFailed, ConfigError, LocalError) as error:
        return _failed(str(error), output)
    except OSError as error:
        return _failed(error_text(error), output)
    return exit_code if isinstance(exit_code, int) else 0


def _without_former_names(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error without former option names as suggestions."""
    params = error.ctx.command.params if error.ctx is not None else []
    options = [param for param in params if isinstance(param, RenamedOption)]
    former = {name for option in options for name in option.former}
    current = [name for name in error.possibilities or () if name not in former]
    return click.NoSuchOption(error.option_name, error.message, current, error.ctx)


def _failed(message: str, output: StandardOutput | None = None) -> int:
    if output is not None and output.is_closed:
        return CLOSED
    # Names from brokers must not control the terminal.
    click.echo("\n".join(map(printable, message.split("\n"))), err=True)
    return FAILED
