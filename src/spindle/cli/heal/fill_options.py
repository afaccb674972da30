"""The options of `heal` for the fill of directories."""

from collections.abc import Callable
from typing import Any, Final

import click

from spindle.cli.parameter_types import FiniteRange
from spindle.cli.shared_options import RenamedOption
from spindle.planner.healing import HealingLimits

_DEFAULTS: Final = HealingLimits()
_PERCENT: Final = FiniteRange(1, 100)
_TRIGGER_FILL: Final = click.option(
    "--trigger-fill",
    "trigger_fill",
    cls=RenamedOption,
    former=["--above"],
    type=_PERCENT,
    default=100 * _DEFAULTS.trigger_fill,
    show_default=True,
    metavar="PERCENT",
    help="Move replicas out of directories that are fuller than this.",
)
_TARGET_FILL: Final = click.option(
    "--target-fill",
    "target_fill",
    cls=RenamedOption,
    former=["--down-to"],
    type=_PERCENT,
    default=100 * _DEFAULTS.target_fill,
    show_default=True,
    metavar="PERCENT",
    help="Move replicas until the fill is at most this; no target gets fuller than this.",
)


def fill_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    return _TRIGGER_FILL(_TARGET_FILL(body))


def healing_limits(trigger_fill: float, target_fill: float) -> HealingLimits:
    """Return the limits of these options, which are in percent.

    Raises:
        click.UsageError: they contradict each other.
    """
    if target_fill > trigger_fill:
        raise click.UsageError(
            f"--target-fill {target_fill:g} is higher than --trigger-fill {trigger_fill:g}: "
            "directories above the trigger give replicas until they are at the target"
        )
    return HealingLimits(trigger_fill / 100, target_fill / 100)
