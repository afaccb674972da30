"""The forecast after a plan as text: fills at the horizon, and when directories are full."""

from spindle.cli.history.forecast_text import short_time_to_full_text
from spindle.cli.table import narrowed_table_lines
from spindle.cli.terminal import QUIET, Line
from spindle.common.text import span_text
from spindle.operations.directories import directory_names
from spindle.operations.forecasts import PlanForecast
from spindle.planner.plan import PlacementPlan

_MS = 1000
_MIN_COLUMNS = (0, 1, 2, 4)
"""The columns of the narrowest table: all but the time without the plan."""


def forecast_lines(plan: PlacementPlan, forecast: PlanForecast, width: int | None) -> list[Line]:
    """Return a table of all directories.

    Args:
        width: columns of the terminal; None sets no limit.
    """
    horizon = span_text(forecast.horizon_ms / _MS)
    rows = []
    for number, name in directory_names(plan.cluster).items():
        directory, used = plan.cluster.directories[number], forecast.used_bytes[number]
        before, after = forecast.full_before[number], forecast.full_after[number]
        fill = f"{100 * used / directory.capacity_bytes:.1f} %" if directory.capacity_bytes else "-"
        times = (short_time_to_full_text(before), short_time_to_full_text(after))
        rows.append((str(directory.broker_id), name, fill, *times))
    names = ("BROKER", "DIRECTORY", f"AFTER {horizon}", "FULL BEFORE", "FULL AFTER")
    for columns in (range(len(names)), _MIN_COLUMNS):
        head, *lines = narrowed_table_lines(
            [names[column] for column in columns],
            [[row[column] for column in columns] for row in rows],
            "DIRECTORY",
            width,
        )
        if width is None or max(map(len, (head, *lines))) <= width:
            break
    return [Line(head, QUIET), *map(Line, lines)]
