"""The hours of the day in which `heal` begins moves: `01:00-05:00`."""

import re
from datetime import time
from typing import Final

import click

from spindle.operations.heal_run import HoursOfDay

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class HoursParameter(click.ParamType[HoursOfDay]):
    """An option such as `01:00-05:00`, or `22:00-04:30` over midnight."""

    name = "hours"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> HoursOfDay:
        if isinstance(value, HoursOfDay):
            return value
        match = _HOURS.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not HH:MM-HH:MM, such as 01:00-05:00", param, ctx)
        first, second, third, fourth = map(int, match.groups())
        begin, end = time(first, second), time(third, fourth)
        if begin == end:
            self.fail(f"{value!r} begins and ends at the same time", param, ctx)
        return HoursOfDay(begin, end)
