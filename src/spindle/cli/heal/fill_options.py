"""The options of a healing that say when a directory is too full."""

from collections.abc import Callable
from typing import Any, Final

import click

from spindle.cli.numbers import FiniteRange
from spindle.cli.renamed_option import RenamedOption
from spindle.planner.healing import HealingLimits

_PERCENT: Final = FiniteRange(1, 100)
_ABOVE: Final = click.option(
    "--trigger-fill",
    "above",
    cls=RenamedOption,
    former=["--above"],
    type=_PERCENT,
    default=85.0,
    show_default=True,
    metavar="PERCENT",
    help="Move replicas out of directories that are fuller than this.",
)
_DOWN_TO: Final = click.option(
    "--target-fill",
    "down_to",
    cls=RenamedOption,
    former=["--down-to"],
    type=_PERCENT,
    default=80.0,
    show_default=True,
    metavar="PERCENT",
    help="Move replicas until the fill is at most this; no target gets fuller than this.",
)


def fill_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    return _ABOVE(_DOWN_TO(body))


def healing_limits(above: float, down_to: float) -> HealingLimits:
    """Return the limits that these options give, in percent.

    Raises:
        click.UsageError: they contradict each other.
    """
    if down_to > above:
        raise click.UsageError(
            f"--target-fill {down_to:g} is higher than --trigger-fill {above:g}: directories above "
            "the trigger give replicas until they are at the target"
        )
    return HealingLimits(above / 100, down_to / 100)
