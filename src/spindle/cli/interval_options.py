"""The options of commands that check at intervals."""

from collections.abc import Callable
from typing import Any, Final

import click

from spindle.cli.parameter_types import FiniteRange, WholeRange

_DAY_S: Final = 86_400

COUNT: Final = click.option(
    "--count", type=WholeRange(min=1), metavar="N", help="Exit after N checks."
)


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
