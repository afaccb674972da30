"""The command `spindle`: find the tool, run it, and turn a failure into a line and an exit code."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from spindle import __version__
from spindle.cli.command_list import FORMER, SECTIONS
from spindle.cli.failure import CommandFailed
from spindle.cli.lazy import LazyGroup
from spindle.cli.output_mode import Dialect
from spindle.cli.signals import interrupted_exit_code
from spindle.common.errors import ConfigError
from spindle.common.printable import printable
from spindle.local.errors import LocalError

FAILED = 1
MISUSED = 2
_WIDTH = 100


def _print_version(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        click.echo(f"spindle {__version__}")
        context.exit()


spindle = LazyGroup(
    "spindle",
    help="A Kafka-compatible cluster whose brokers own several disks.",
    sections=SECTIONS,
    former=FORMER,
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
    """Run the command line of this process and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None, dialect: Dialect = Dialect.SPINDLE) -> int:
    """Run one command and return the exit code.

    A failed command and a configuration that cannot be used are 1, with one line on standard
    error. A wrong command line is 2, as in most programs, but 1 in Kafka's dialect. Ctrl-C is 130,
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
        _failed(error.format_message())
        if error.ctx is not None and not isinstance(error, NoArgsIsHelpError):
            click.echo(f"Try: {error.ctx.command_path} --help", err=True)
        return FAILED if dialect is Dialect.KAFKA else MISUSED
    except click.ClickException as error:
        return _failed(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return interrupted_exit_code()
    except (CommandFailed, ConfigError, LocalError) as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return exit_code if isinstance(exit_code, int) else 0


def _failed(message: str) -> int:
    # Names that brokers tell must not steer the terminal.
    click.echo("\n".join(map(printable, message.split("\n"))), err=True)
    return FAILED
