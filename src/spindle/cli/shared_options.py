"""Options that several commands have."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from spindle.cli.parameter_types import FiniteRange, WholeRange
from spindle.cli.tools.options import BOOTSTRAP_VARIABLE

SERVERS: Final = click.option(
    "-b",
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT,...",
    envvar=BOOTSTRAP_VARIABLE,
    show_envvar=True,
    callback=lambda context, parameter, value: (value or "").strip() or None,
    help="Addresses of brokers.",
)
COMMAND_CONFIG: Final = click.option(
    "--command-config", "file", metavar="FILE", help="Property file of the client."
)
_DAY_S: Final = 86_400

COUNT: Final = click.option(
    "--count", type=WholeRange(min=1), metavar="N", help="Exit after N checks."
)


class RenamedOption(click.Option):
    """An option with former names, which no help, error or completion shows.

    Attributes:
        former: the former names, such as `--above`.
    """

    def __init__(self, param_decls: Sequence[str], *, former: Sequence[str], **attrs: Any) -> None:
        super().__init__(param_decls, **attrs)
        self.former = tuple(former)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        names = self.opts
        self.opts = [*names, *self.former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = names


def interval_option(default_s: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--interval`, which gives `interval_s`."""
    return click.option(
        "--interval",
        "interval_s",
        type=FiniteRange(min=0.1, max=_DAY_S),
        default=default_s,
        show_default=True,
        metavar="S",
        help="Seconds between checks.",
    )
