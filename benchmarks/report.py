"""The results as one table and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.items import Item

FLOOR = "floor"
KAFKA = "kafka"
SPINDLE = "spindle"
MET = "met"
MISSED = "missed"
NOT_MEASURED = "not measured"
COLOURS = {MET: "green", MISSED: "red", NOT_MEASURED: "red"}


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of an item: every value by program, and the goals.

    A goal is a bound for the ratio of medians (Spindle / program), by that program: a lower bound
    where more is better, else an upper one.
    """

    item: str
    metric: str
    unit: str
    more_is_better: bool
    values: dict[str, list[float]]
    goals: dict[str, float] = field(default_factory=dict)

    def ratio(self, program: str) -> float | None:
        """Return Spindle's median divided by the program's; None if one is missing or zero."""
        own, other = self.values.get(SPINDLE), self.values.get(program)
        if not own or not other or statistics.median(other) == 0:
            return None
        return statistics.median(own) / statistics.median(other)

    def verdict(self, program: str | None = None) -> str:
        """Return whether the goal is met, for one program or for all; "" if there is none."""
        goals = self.goals if program is None else {program: self.goals.get(program)}
        verdicts = {self._judge(self.ratio(name), goal) for name, goal in goals.items()}
        return next((one for one in (MISSED, NOT_MEASURED, MET) if one in verdicts), "")

    def remark(self) -> str:
        """Return what weakens the verdict; "" if nothing does.

        That is a spread so wide that other runs could give the other verdict, or a floor that
        misses the goal, too: then client and machine allow no broker to meet it.
        """
        remarks = []
        for program, goal in self.goals.items():
            verdict = self.verdict(program)
            own, other = self.values.get(SPINDLE), self.values.get(program)
            if verdict not in (MET, MISSED) or not own or not other or min(other) <= 0:
                continue
            extremes = (min(own) / max(other), max(own) / min(other))
            if {self._judge(extreme, goal) for extreme in extremes} == {MET, MISSED}:
                remarks.append("within the spread")
            floor = self.values.get(FLOOR)
            if verdict == MISSED and floor:
                reachable = statistics.median(floor) / statistics.median(other)
                if self._judge(reachable, goal) == MISSED:
                    remarks.append(f"the floor has {reachable:.2f}x")
        return ", ".join(dict.fromkeys(remarks))

    def _judge(self, ratio: float | None, goal: float | None) -> str:
        if goal is None:
            return ""
        if ratio is None:
            return NOT_MEASURED
        return MET if (ratio >= goal if self.more_is_better else ratio <= goal) else MISSED

    def goal_text(self, program: str) -> str:
        """Return the goal as a reader writes it: `>= 1.7x`."""
        goal = self.goals.get(program)
        return "" if goal is None else f"{'>=' if self.more_is_better else '<='} {goal:g}x"

    def as_json(self) -> dict[str, Any]:
        """Return the line with its ratios and its verdict."""
        others = [program for program in self.values if program not in (SPINDLE, FLOOR)]
        ratios = {program: self.ratio(program) for program in others}
        return asdict(self) | {
            "ratios": ratios,
            "verdict": self.verdict(),
            "remark": self.remark(),
        }


@dataclass(slots=True)
class Results:
    """Measured values by item, metric and program, in the order of measuring.

    `programs` are the kinds of node in the order of the table, Spindle last; `skipped` has the
    reason by item.
    """

    programs: tuple[str, ...] = (KAFKA, SPINDLE)
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def baselines(self) -> tuple[str, ...]:
        """The programs that Spindle is compared with."""
        return self.programs[:-1]

    def add(self, item: Item, kind: str, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self.values.setdefault((item.name, name, kind), []).append(value)

    def lines(self, items: Sequence[Item]) -> list[Line]:
        """Return a line for each metric of the items."""
        return [
            Line(
                item.name,
                metric.name,
                metric.unit,
                metric.more_is_better,
                {
                    program: self.values.get((item.name, metric.name, program), [])
                    for program in (*([FLOOR] if item.has_floor else []), *self.programs)
                },
                {
                    program: goal
                    for program in self.baselines
                    if (goal := metric.goal if program == KAFKA else metric.goal_of_before)
                },
            )
            for item in items
            if item.name not in self.skipped
            for metric in item.metrics
        ]


def table(lines: Sequence[Line], programs: Sequence[str]) -> Table:
    """Return a row for each line: median (minimum-maximum), ratios, goals and verdict."""
    output = Table(title="In turn on one machine: median (min-max)")
    output.add_column("work")
    output.add_column("unit")
    for title in (FLOOR, *programs):
        output.add_column(title, justify="right")
    for program in programs[:-1]:
        output.add_column(f"to {program}", justify="right")
        output.add_column("goal", justify="right")
    output.add_column("verdict")
    output.add_column("remark")
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        output.add_row(
            line.item,
            line.unit,
            *(spread(line.values.get(program, [])) for program in (FLOOR, *programs)),
            *(cell for program in programs[:-1] for cell in _comparison(line, program)),
            _coloured(line.verdict(), line.verdict()),
            line.remark(),
            end_section=after is not None and after.item != line.item,
        )
    return output


def _comparison(line: Line, program: str) -> tuple[str, str]:
    ratio = line.ratio(program)
    text = "" if ratio is None else f"{ratio:.2f}x"
    return _coloured(text, line.verdict(program)), line.goal_text(program)


def _coloured(text: str, verdict: str) -> str:
    return f"[{COLOURS[verdict]}]{text}[/]" if verdict and text else text


def show(lines: Sequence[Line], results: Results, console: Console) -> None:
    """Print the table, and what is missing in it."""
    if lines:
        console.print(table(lines, results.programs))
    for name, reason in results.skipped.items():
        console.print(f"skipped: {name}: {reason}", markup=False)
    for failure in results.failures:
        console.print(f"failed: {failure}", markup=False, style="red")


def spread(values: list[float]) -> str:
    """Return median, minimum and maximum with a sensible number of digits."""
    if not values:
        return "-"
    numbers = [statistics.median(values), min(values), max(values)]
    digits = 0 if numbers[0] >= 100 else 1 if numbers[0] >= 10 else 2
    median, low, high = (f"{number:,.{digits}f}" for number in numbers)
    return f"{median} ({low}-{high})"
