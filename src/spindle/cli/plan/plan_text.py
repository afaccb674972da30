"""A plan as text for people: a summary, the fill of each directory, and the rounds."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from spindle.cli.table import table_lines
from spindle.cli.terminal import BAD, QUIET, UNUSUAL, Line, blocks_text, shortened, wrapped
from spindle.common.text import count_noun, duration_text, size_text
from spindle.operations.directories import directory_names
from spindle.planner.leaders import leaders_of_plan
from spindle.planner.limits import PlanLimits
from spindle.planner.plan import PlacementPlan

_BARS: Final = (20, 10, 5, 0)
"""Possible lengths of a bar; the longest that fits the terminal is used."""
_SHORT_NAMES: Final = (12, 9)
"""Characters of a path that the table keeps: with bars, and at least."""
_MIN_COLUMNS: Final = (0, 1, 3, 4, 6)
"""The columns of the narrowest table: broker, directory, fill before and after, state."""
_NOTE: Final = "note        "
_MAX_ROUNDS: Final = 20
_MAX_DIRECTORIES: Final = 40
_MS: Final = 1000


def plan_lines(
    goal: str,
    plan: PlacementPlan,
    limits: PlanLimits,
    remarks: Sequence[str] = (),
    width: int | None = None,
) -> list[Line]:
    """Return the lines about a plan.

    Args:
        goal: a few words for the first line.
        remarks: about the cluster; remarks about the plan follow.
        width: columns of the terminal: a table that is too wide has shorter bars, then shorter
            paths. None sets no limit.
    """
    summary = [
        part for line in _summary(goal, plan, limits) for part in wrapped(line, width, len(_NOTE))
    ]
    notes = [line for name in (*remarks, *plan.remarks) for line in note_lines(name, width)]
    return [
        *map(Line, summary),
        *(Line(text, UNUSUAL) for text in notes),
        Line(""),
        *_fill_lines(plan, limits, width),
        *([Line(""), *_round_lines(plan, width)] if plan.rounds else []),
    ]


def _summary(goal: str, plan: PlacementPlan, limits: PlanLimits) -> Iterator[str]:
    yield f"goal        {goal}"
    if not plan.rounds:
        yield "moves       none"
    else:
        count = sum(len(planned_round.moves) for planned_round in plan.rounds)
        moves, rounds = count_noun(count, "move"), count_noun(len(plan.rounds), "round")
        yield f"moves       {moves} in {rounds}, {size_text(plan.moved_bytes)}"
        throttle = f"{size_text(limits.throttle_bytes_per_second)}/s for each broker"
        least = f"at least {duration_text(plan.duration_ms / _MS)}"
        yield f"duration    {least if plan.duration_ms >= _MS else 'under 0:01'} at {throttle}"
    yield f"lower bound {size_text(plan.lower_bound_bytes)}{_above_bound(plan)}"
    where = ", among the directories that stay" if plan.leaving else ""
    before, after = 100 * plan.spread_before, 100 * plan.spread
    yield f"spread      {before:.1f} points before, {after:.1f} after{where}"
    yield f"leaders     {_leaders_text(plan)}"


def _leaders_text(plan: PlacementPlan) -> str:
    """Return a line with the fewest and most leaders of a broker, before and after the plan."""
    directories = plan.cluster.directories
    stay = {
        directory.broker_id for n, directory in enumerate(directories) if n not in set(plan.leaving)
    }
    counts = [
        [count for broker, count in entry.items() if broker in stay]
        for entry in leaders_of_plan(plan)
    ]
    texts = [_range_text(min(count, default=0), max(count, default=0)) for count in counts]
    changed = count_noun(len(plan.preferred), "partition")
    more = f"; another replica of {changed} comes first" if plan.preferred else ""
    where = " that stays" if plan.leaving else ""
    return f"{texts[0]} for each broker{where} before, {texts[1]} after{more}"


def _range_text(low: int, high: int) -> str:
    """Return a range of counts, such as `1 to 3`, or the count if both are equal."""
    return str(low) if low == high else f"{low} to {high}"


def _above_bound(plan: PlacementPlan) -> str:
    if not plan.lower_bound_bytes:
        return ""
    if plan.moved_bytes < plan.lower_bound_bytes:
        return " (no plan that reaches the goal moves less; this one does not)"
    above = plan.moved_bytes / plan.lower_bound_bytes - 1
    return f" (no plan moves less; this one moves {100 * above:.1f} % more)"


def note_lines(remark: str, width: int | None = None) -> list[str]:
    """Return a remark as a note, wrapped to the terminal."""
    return wrapped(_NOTE + remark, width, len(_NOTE))


def _fill_lines(plan: PlacementPlan, limits: PlanLimits, width: int | None) -> list[Line]:
    """Return the table of directories: all of them, or those that change most."""
    changes = [
        abs(after - directory.kept_bytes)
        for directory, after in zip(plan.cluster.directories, plan.used_bytes, strict=True)
    ]
    names = directory_names(plan.cluster)
    ranked = sorted(names, key=lambda number: (-changes[number], number))
    numbers = sorted(ranked[:_MAX_DIRECTORIES])
    head, *rows = _fitting_table(plan, numbers, width)
    styles = [_style(plan, limits, number) for number in numbers]
    lines = [Line(head, QUIET), *map(Line, rows, styles)]
    if len(names) > _MAX_DIRECTORIES:
        left = len(names) - _MAX_DIRECTORIES
        lines.append(
            Line(
                f"... and {count_noun(left, 'directory', 'directories')} that change less; --html "
                "FILE draws all of them",
                QUIET,
            )
        )
    return lines


def _style(plan: PlacementPlan, limits: PlanLimits, number: int) -> str:
    directory = plan.cluster.directories[number]
    is_over = plan.used_bytes[number] > limits.max_fill * directory.capacity_bytes
    if not directory.is_online or (directory.capacity_bytes and is_over):
        return BAD
    return UNUSUAL if directory.is_cordoned and number not in plan.leaving else ""


def _fitting_table(plan: PlacementPlan, numbers: Sequence[int], width: int | None) -> list[str]:
    if width is None:
        return _directory_table(plan, numbers)
    longest = max((len(directory_names(plan.cluster)[number]) for number in numbers), default=0)
    for name_width, blocks in product((longest, *_SHORT_NAMES), _BARS):
        room = width - max(map(len, _directory_table(plan, numbers, blocks, name_width)))
        if room >= 0:
            return _directory_table(plan, numbers, blocks, name_width + room)
    return _directory_table(plan, numbers, _BARS[-1], _SHORT_NAMES[-1], _MIN_COLUMNS)


def _directory_table(
    plan: PlacementPlan,
    numbers: Sequence[int],
    blocks: int = _BARS[0],
    name_width: int | None = None,
    columns: Sequence[int] = range(7),
) -> list[str]:
    head = ("BROKER", "DIRECTORY", "CAPACITY", "BEFORE", "AFTER", "CHANGE", "STATE")
    rows, names = [], directory_names(plan.cluster)
    for number in numbers:
        directory, after = plan.cluster.directories[number], plan.used_bytes[number]
        row = (
            str(directory.broker_id),
            names[number] if name_width is None else shortened(names[number], name_width),
            size_text(directory.capacity_bytes) if directory.capacity_bytes else "-",
            bar_text(directory.kept_bytes, directory.capacity_bytes, blocks),
            bar_text(after, directory.capacity_bytes, blocks),
            _change_text(after - directory.kept_bytes),
            _state_text(plan, number),
        )
        rows.append([row[column] for column in columns])
    return table_lines([head[column] for column in columns], rows)


def bar_text(used_bytes: int, capacity_bytes: int, blocks: int = _BARS[0]) -> str:
    """Return a bar of blocks and the percentage; `-` for a directory of unknown size."""
    if not capacity_bytes:
        return "-"
    fill = used_bytes / capacity_bytes
    bar = f"{blocks_text(fill, blocks)} " if blocks else ""
    return f"{bar}{100 * fill:5.1f} %"


def _change_text(change_bytes: int) -> str:
    if not change_bytes:
        return ""
    return f"{'+' if change_bytes > 0 else '-'}{size_text(abs(change_bytes))}"


def _state_text(plan: PlacementPlan, number: int) -> str:
    directory = plan.cluster.directories[number]
    words = {
        "emptied": number in plan.leaving,
        "cordoned": directory.is_cordoned,
        "offline": not directory.is_online,
    }
    return ", ".join(word for word, is_so in words.items() if is_so)


def _round_lines(plan: PlacementPlan, width: int | None) -> list[Line]:
    """Return the rounds with bars over time; many rounds are grouped."""
    for blocks in _BARS:
        head, *rows = _round_table(plan, blocks)
        if width is None or max(map(len, (head, *rows))) <= width:
            break
    return [Line(head, QUIET), *map(Line, rows)]


def _round_table(plan: PlacementPlan, blocks: int) -> list[str]:
    head = ("ROUND", "MOVES", "BYTES", "AT LEAST", *(("TIME",) if blocks else ()))
    rounds, total_ms = plan.rounds, max(1, plan.duration_ms)
    size = -(-len(rounds) // _MAX_ROUNDS)
    rows, start_ms = [], 0
    for first in range(0, len(rounds), size):
        group = rounds[first : first + size]
        last = first + len(group)
        duration_ms = sum(planned_round.duration_ms for planned_round in group)
        moves = [move for planned_round in group for move in planned_round.moves]
        # A short round has at least one block.
        block = 1 / max(1, blocks)
        start, part = min(start_ms / total_ms, 1 - block), max(duration_ms / total_ms, block)
        bar = blocks_text(part, blocks, start)
        row = (
            str(last) if len(group) == 1 else f"{first + 1}-{last}",
            str(len(moves)),
            size_text(sum(move.size_bytes for move in moves)),
            duration_text(duration_ms / _MS) if duration_ms >= _MS else "<0:01",
        )
        rows.append((*row, bar) if blocks else row)
        start_ms += duration_ms
    return table_lines(head, rows)
