"""The times after a plan as text: fills at the horizon, and when directories are full."""

from spindle.cli.durations import span_text
from spindle.cli.history.forecasts import short_time_to_full_text
from spindle.cli.history.looking_ahead import PlanOutlook
from spindle.cli.table import table_lines
from spindle.cli.terminal import QUIET, Line, shortened
from spindle.planner.plan import PlacementPlan

_MS = 1000
_SHORTEST_NAME = 9
_FEWEST_COLUMNS = (0, 1, 2, 4)
"""The columns of the narrowest table: all but the time without the plan."""


def outlook_lines(plan: PlacementPlan, outlook: PlanOutlook, width: int | None) -> list[Line]:
    """Return a table of all directories.

    Args:
        width: columns of the terminal; None sets no limit.
    """
    horizon = span_text(outlook.horizon_ms / _MS)
    rows = []
    for each, used, before, after in zip(
        plan.cluster.directories,
        outlook.used_bytes,
        outlook.full_before,
        outlook.full_after,
        strict=True,
    ):
        fill = f"{100 * used / each.capacity_bytes:.1f} %" if each.capacity_bytes else "-"
        times = (short_time_to_full_text(before), short_time_to_full_text(after))
        rows.append((str(each.broker_id), each.path, fill, *times))
    names = ("BROKER", "DIRECTORY", f"AFTER {horizon}", "FULL BEFORE", "FULL AFTER")
    head, *lines = _fitting([names, *rows], width)
    return [Line(head, QUIET), *map(Line, lines)]


def _fitting(rows: list[tuple[str, ...]], width: int | None) -> list[str]:
    lines = table_lines(rows[0], rows[1:])
    if width is None or max(map(len, lines)) <= width:
        return lines
    if max(map(len, _shortened(rows, _SHORTEST_NAME))) > width:
        rows = [tuple(row[column] for column in _FEWEST_COLUMNS) for row in rows]
    room = width - max(map(len, _shortened(rows, _SHORTEST_NAME)))
    return _shortened(rows, _SHORTEST_NAME + max(0, room))


def _shortened(rows: list[tuple[str, ...]], name_width: int) -> list[str]:
    short = [(row[0], shortened(row[1], name_width), *row[2:]) for row in rows]
    return table_lines(short[0], short[1:])
