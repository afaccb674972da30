"""Options of those of Kafka's tools that read them as Python's argparse does, with sub-commands."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import FAILED, Main
from spindle.cli.tools.failures import FAILURES, Failure, failure
from spindle.client.wire.cluster import WireClient

_REQUIRED = "the following arguments are required: "


class BadArguments(Exception):
    """The words cannot be read. `usage` is that of the command they belong to."""

    def __init__(self, message: str, usage: str, program: str) -> None:
        super().__init__(message)
        self.message = message
        self.usage = usage
        self.program = program


class ArgumentParser(argparse.ArgumentParser):
    """An argparse parser that raises instead of ending the process, with Kafka's texts."""

    def __init__(self, **settings: Any) -> None:
        settings["allow_abbrev"] = False
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        if message.startswith(_REQUIRED):
            missing = message.removeprefix(_REQUIRED).split(", ")[0]
            message = f"argument {missing} is required"
            if not missing.startswith("-"):
                message = "too few arguments"
        raise BadArguments(message, self.format_usage(), self.prog)


def add_servers(parser: argparse.ArgumentParser, *, short: bool = False) -> None:
    """The two ways to say where the cluster is, of which one is required."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        *(["--bootstrap-server", "-b"] if short else ["--bootstrap-server"]),
        metavar="host:port,...",
        help="Addresses of brokers.",
    )
    group.add_argument(
        *(["--bootstrap-controller", "-C"] if short else ["--bootstrap-controller"]),
        metavar="host:port,...",
        help="Addresses of controllers.",
    )


def connect_by(given: argparse.Namespace, config_file: str | None) -> WireClient:
    """The client that the options of `add_servers` and a property file ask for.

    Raises:
        ToolFailed: the file cannot be read.
        ConfigError: an address or a property has no usable value.
    """
    return connect(
        given.bootstrap_server,
        properties_of(config_file),
        controllers=given.bootstrap_controller,
    )


def argument_main(
    parser: ArgumentParser,
    body: Callable[[argparse.Namespace], int | None],
    on_failure: Callable[[Failure], int],
    on_bad_words: Callable[[BadArguments], int] | None = None,
) -> Main:
    """The main function of a tool; None of the body means success."""

    def main(words: Sequence[str]) -> int:
        try:
            given = parser.parse_args(list(words))
        except BadArguments as error:
            return (on_bad_words or _report_usage)(error)
        except SystemExit as ended:
            # argparse has shown the help.
            sys.stdout.flush()
            return int(ended.code or 0)
        try:
            return body(given) or 0
        except FAILURES as error:
            return on_failure(failure(error))

    return main


def _report_usage(error: BadArguments) -> int:
    click.echo(f"{error.usage}{error.program.split()[0]}: error: {error.message}", err=True)
    return FAILED
