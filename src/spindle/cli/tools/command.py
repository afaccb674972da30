"""How a tool becomes a command of `spindle`: it reads its own words and answers an exit code."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import click

from spindle.cli.tools.failures import (
    FAILURES,
    Failure,
    HelpAsked,
    ToolFailed,
    UsageError,
    VersionAsked,
    failure,
)
from spindle.cli.tools.options import OptionParser, Options

KAFKA_VERSION: Final = "4.3.1"
"""The release whose tools these follow, and what they answer to `--version`."""

FAILED: Final = 1
Main: TypeAlias = Callable[[Sequence[str]], int]


class ToolCommand(click.Command):
    """A command that gets its words as they are, because Kafka's tools have rules of their own."""

    def __init__(self, name: str, main: Main) -> None:
        super().__init__(name)
        self.main_of_tool = main

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = args
        return []

    def invoke(self, ctx: click.Context) -> Any:
        return self.main_of_tool(ctx.args)


def tool_main(
    parser: OptionParser,
    body: Callable[[Options], int | None],
    on_failure: Callable[[Failure], int] | None = None,
    *,
    on_bad_words: Callable[[Failure], int] | None = None,
) -> Main:
    """The main function of a tool.

    Args:
        body: does the work; None means success.
        on_failure: reports a failure of the body and returns the exit code.
        on_bad_words: reports words that cannot be read; as `on_failure` by default.
    """

    def main(words: Sequence[str]) -> int:
        report = on_failure or report_plainly
        try:
            try:
                options = parser.parse(words)
            except ToolFailed as error:
                return (on_bad_words or report)(failure(error))
            try:
                return body(options) or 0
            except FAILURES as error:
                return report(failure(error))
        except VersionAsked:
            click.echo(KAFKA_VERSION)
            return 0
        except (HelpAsked, UsageError) as error:
            click.echo(str(error), err=True)
            click.echo(parser.usage(), err=True)
            return FAILED

    return main


def report_plainly(found: Failure) -> int:
    """The text alone on standard error."""
    click.echo(found.text, err=True)
    return FAILED


def report_uncaught(found: Failure) -> int:
    """The text, and the exception as Java prints one that nobody caught."""
    click.echo(found.text, err=True)
    click.echo(f"{found}\n", err=True)
    return FAILED


def log_line(level: str, text: str, logger: str) -> None:
    """One line on standard error in the layout of Kafka's tools."""
    now = time.time()
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    sys.stdout.flush()
    click.echo(f"[{clock},{int(now * 1000) % 1000:03d}] {level} {text} ({logger})", err=True)
