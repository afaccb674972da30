"""The options of commands that read a history: `--history` and `--horizon`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from spindle.cli.parameter_types import DurationMs, option_text
from spindle.operations.plan_settings import DEFAULT_HORIZON_MS

HISTORY: Final = click.option(
    "--history",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    is_eager=True,  # --horizon needs it
    help="Folder written by spindle history record; it shows how fast directories and partitions "
    "grow.",
)


def _with_history(ctx: click.Context, parameter: click.Parameter, horizon_ms: int) -> int:
    """Return the horizon.

    Raises:
        click.UsageError: it was given without a history.
    """
    is_given = ctx.get_parameter_source("horizon_ms") is ParameterSource.COMMANDLINE
    if is_given and ctx.params.get("history") is None:
        raise click.UsageError("--horizon needs a history: give --history")
    return horizon_ms


_HORIZON: Final = click.option(
    "--horizon",
    "horizon_ms",
    type=DurationMs(),
    default=option_text(DEFAULT_HORIZON_MS),
    show_default=True,
    metavar="DURATION",
    callback=_with_history,
    help="With --history: the time for which the limits must hold, from now or from the end of a "
    "plan.",
)


def forecast_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--history` and `--horizon` to a command: `history` and `horizon_ms`."""
    return HISTORY(_HORIZON(body))
