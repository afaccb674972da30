"""Numbers on a command line."""

from math import isfinite
from typing import cast

import click


class WholeRange(click.IntRange):
    """A whole number in a range; `N` in helps, unless an option gives another metavar."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"


class FiniteRange(click.FloatRange):
    """A number in a range, but neither `nan`, which is in no range, nor an infinity."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(cast("float", value), param, ctx))
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number
