"""The results as a table and as JSON."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from benchmarks.items import Item, Metric

KAFKA = "kafka"
SPINDLE = "spindle"


@dataclass(slots=True)
class Results:
    """Measured values by item, metric and program, in the order of measuring.

    `baseline` is the kind of node that Spindle is compared with; `skipped` has the reason by item.
    """

    baseline: str = KAFKA
    values: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, str]:
        """The two kinds of node in the order of the table's columns."""
        return self.baseline, SPINDLE

    def add(self, item: Item, kind: str, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self.values.setdefault((item.name, name, kind), []).append(value)

    def of(self, item: Item, metric: Metric, kind: str) -> list[float]:
        return self.values.get((item.name, metric.name, kind), [])

    def ratio(self, item: Item, metric: Metric) -> float | None:
        """Return Spindle's median divided by the baseline's; None when one is missing or zero."""
        baseline, spindle = (self.of(item, metric, kind) for kind in self.kinds)
        if not baseline or not spindle or statistics.median(baseline) == 0:
            return None
        return statistics.median(spindle) / statistics.median(baseline)


def meets_goal(metric: Metric, ratio: float) -> bool | None:
    """Return True if `ratio` reaches the goal; None if there is no goal."""
    if metric.goal is None:
        return None
    return ratio >= metric.goal if metric.more_is_better else ratio <= metric.goal


def table(items: list[Item], results: Results) -> Table:
    """Return a row for each metric: median (minimum-maximum) of both, ratio and goal."""
    output = Table(title=f"{results.baseline} and Spindle, alternating: median (min-max)")
    output.add_column("work")
    output.add_column("unit")
    for title in (results.baseline, "Spindle", "ratio", "goal"):
        output.add_column(title, justify="right")
    for item in items:
        for metric in item.metrics:
            ratio = results.ratio(item, metric)
            goal = metric.goal if results.baseline == KAFKA else None
            reached = None if ratio is None or goal is None else meets_goal(metric, ratio)
            colour = {True: "green", False: "red", None: "default"}[reached]
            sign = ">=" if metric.more_is_better else "<="
            output.add_row(
                item.name,
                metric.unit,
                *(spread(results.of(item, metric, kind)) for kind in results.kinds),
                "" if ratio is None else f"[{colour}]{ratio:.2f}x[/]",
                "" if goal is None else f"{sign} {goal:g}x",
            )
        output.add_section()
    return output


def as_json(items: list[Item], results: Results) -> dict[str, object]:
    """Return the same as plain data, with every single value."""
    rows = [
        {
            "item": item.name,
            "metric": metric.name,
            "unit": metric.unit,
            "more_is_better": metric.more_is_better,
            "goal": metric.goal,
            "ratio": results.ratio(item, metric),
            **{kind: results.of(item, metric, kind) for kind in results.kinds},
        }
        for item in items
        for metric in item.metrics
    ]
    return {"results": rows, "failures": results.failures, "skipped": results.skipped}


def show(items: list[Item], results: Results, console: Console) -> None:
    """Print the table and the failures."""
    if items:
        console.print(table(items, results))
    for name, reason in results.skipped.items():
        console.print(f"skipped: {name}: {reason}", markup=False)
    for failure in results.failures:
        console.print(f"[red]failed:[/] {failure}")


def spread(values: list[float]) -> str:
    """Return median, minimum and maximum with a sensible number of digits."""
    if not values:
        return "-"
    numbers = [statistics.median(values), min(values), max(values)]
    digits = 0 if numbers[0] >= 100 else 1 if numbers[0] >= 10 else 2
    median, low, high = (f"{number:,.{digits}f}" for number in numbers)
    return f"{median} ({low}-{high})"
