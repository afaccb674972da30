"""The page of scale: one table and one plot of the costs by the number of partitions.

python -m benchmarks.scale.page scale.json: writes benchmarks/SCALE.md and benchmarks/scale.svg
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.scale.latencies import BOUNDS_MS

FOLDER: Final = Path(__file__).parents[1]
HEAD: Final = """# Costs by the size of the cluster

`python -m benchmarks.scale` measured these figures, and `python -m benchmarks.scale.page` made this
page of them. [What each figure means](README.md#scale). The metadata has {brokers:,} brokers with
{directories} log directories each, and three replicas of every partition. {machine}
"""


class Cost(NamedTuple):
    """A row of the table: its title, the part of the document, the name of the figure."""

    title: str
    part: str
    name: str
    digits: int = 1


ONE, THREE = "one controller", "three controllers"
COSTS: Final = (
    Cost("controller: resident memory, MiB", ONE, "resident, MiB", 0),
    Cost("snapshot: size, MiB", ONE, "snapshot, MiB"),
    Cost("snapshot: encoded into a file, CPU-s", ONE, "snapshot encoded, CPU-s", 2),
    Cost("snapshot: from a change to its file, s", ONE, "snapshot written, s", 2),
    Cost("load: start of a controller to the first change, s", ONE, "loaded, s"),
    Cost("load: CPU-s until then", ONE, "loaded, CPU-s"),
    Cost("failover: kill -9 of the active of three, s", THREE, "change after kill -9, s", 2),
    Cost("broker: start to metadata of 10 topics, s", "broker", "broker started, s"),
    Cost("broker: resident memory after that, MiB", "broker", "broker resident, MiB", 0),
    Cost("metadata of 10 topics, ms", "broker", "metadata of 10 topics, ms"),
    Cost("metadata of all topics, ms", "broker", "metadata of all topics, ms", 0),
    Cost("balance plan of as many replicas, CPU-s", "plans", "balance, CPU-s"),
    Cost("drain of a directory, CPU-s", "plans", "drain of a directory, CPU-s"),
    Cost("decommission of a broker, CPU-s", "plans", "decommission of a broker, CPU-s"),
)  # fmt: skip
PLOTTED: Final = {
    "resident memory of a controller, MiB": COSTS[0],
    "snapshot encoded, CPU-s": COSTS[2],
    "load, s": COSTS[4],
    "failover, s": COSTS[6],
    "metadata of all topics, ms": COSTS[10],
    "balance plan, CPU-s": COSTS[11],
}
_COLOURS: Final = ("#3f6fb5", "#3f9b5a", "#c9503c", "#8a5fb0", "#c28a1e", "#2a9d9d")
_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 340, 60, 30


def page(document: Mapping[str, Any]) -> str:
    """Return the page in Markdown."""
    rows: list[Mapping[str, Any]] = document["rows"]
    sizes = [f"{row['partitions']:,}" for row in rows]
    lines = [
        HEAD.format(**document),
        f"| partitions | {' | '.join(sizes)} |",
        f"| --- |{' ---: |' * len(rows)}",
        *(f"| {cost.title} | {' | '.join(_cell(row, cost) for row in rows)} |" for cost in COSTS),
        "",
        "![The same costs on logarithmic scales](scale.svg)",
        "",
        "## Requests while the controllers work",
        "",
        "Heartbeats of all brokers over sockets of their own, each every 2 s, and a change of a "
        "configuration every 100 ms: the numbers of answers within so many milliseconds. A time "
        "counts from when the request was due. Errors are answers such as NOT_CONTROLLER while a "
        "controller loads, and refused connections while it does not run.",
        "",
    ]
    for row in rows:
        for part in (ONE, "three controllers"):
            if row.get(part):
                lines += [f"### {row['partitions']:,} partitions, {part}", ""]
                lines += _histogram(row[part]["latencies"])
    return "\n".join(lines).rstrip() + "\n"


def _cell(row: Mapping[str, Any], cost: Cost) -> str:
    value = _value(row, cost)
    return "" if value is None else f"{value:,.{cost.digits}f}"


def _value(row: Mapping[str, Any], cost: Cost) -> float | None:
    part = row.get(cost.part) or {}
    value = part.get("figures", part).get(cost.name)
    return None if value is None else float(value)


def _histogram(latencies: Mapping[str, Any]) -> list[str]:
    bounds = [*map(str, BOUNDS_MS), "above"]
    lines = [
        f"| while | p50 | p99 | max | {' | '.join(bounds)} | errors |",
        f"| --- |{' ---: |' * (len(bounds) + 4)}",
    ]
    for name, (counts, p50_ms, p99_ms, max_ms, errors) in latencies.items():
        shown = [f"{figure:,.1f}" for figure in (p50_ms, p99_ms, max_ms)]
        cells = [name, *shown, *(str(count or "") for count in counts), f"{sum(errors.values())}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def plot(document: Mapping[str, Any]) -> str:
    """Return the picture (SVG): a line for each cost, both axes logarithmic."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, cost in PLOTTED.items():
        values = [(row["partitions"], _value(row, cost)) for row in document["rows"]]
        lines[name] = [(size, value) for size, value in values if value]
    points = [point for line in lines.values() for point in line]
    columns = _Axis.of([size for size, _ in points], _LEFT, _WIDTH)
    rows = _Axis.of([value for _, value in points], _TOP + _HEIGHT, -_HEIGHT)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 290} '
        f'{_TOP + _HEIGHT + 40}" role="img" font-family="sans-serif" font-size="12" '
        'fill="currentColor">',
        "<title>Costs by the number of partitions, on logarithmic scales</title>",
    ]
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    for tick in columns.ticks():
        x = columns.place(tick)
        out.append(f'<line x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}" stroke="#8884"/>')
        out.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{tick:,.0f}</text>')
    for tick in rows.ticks():
        y = rows.place(tick)
        out.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="#8884"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{tick:,g}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(columns.place(size), rows.place(value)) for size, value in line]
        path = " ".join(f"{x},{y}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        y = _TOP + 20 * number + 10
        out.append(f'<rect x="{right + 20}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{right + 36}" y="{y}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


class _Axis(NamedTuple):
    """A logarithmic axis over whole powers of ten; `start` and `length` are in the picture."""

    first: int
    last: int
    start: float
    length: float

    @classmethod
    def of(cls, values: Sequence[float], start: float, length: float) -> _Axis:
        first = math.floor(math.log10(min(values, default=1.0)))
        last = math.ceil(math.log10(max(values, default=10.0)))
        return cls(first, max(last, first + 1), start, length)

    def place(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return round(self.start + share * self.length, 1)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


def write(document: Mapping[str, Any], folder: Path = FOLDER) -> None:
    """Write page and picture."""
    (folder / "SCALE.md").write_text(page(document))
    (folder / "scale.svg").write_text(plot(document))


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()))
