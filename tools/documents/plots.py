"""Draw benchmarks/RESULTS.md: a bar for each figure that is compared with Apache Kafka."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

RESULTS: Final = Path(__file__).parents[2] / "benchmarks" / "RESULTS.md"
LABEL_WIDTH: Final = 330
BAR_WIDTH: Final = 420
ROW: Final = 22
WIDEST: Final = 32.0
"""Ratios from 1/32 to 32 have room; others are drawn at the edge."""
BETTER, WORSE, EQUAL = "#3f9b5a", "#c9503c", "#8a8f98"


class Figure(NamedTuple):
    """A measured figure: Kafka's and Spindle's median, and the ratio of the second to the first."""

    work: str
    unit: str
    kafka: str
    spindle: str
    ratio: float
    verdict: str

    @property
    def gain(self) -> float:
        """How many times better Spindle is; below 1 it is worse."""
        is_rate = self.unit.endswith("/s") or "/s " in self.unit
        return self.ratio if is_rate else 1 / self.ratio


def figures(text: str) -> list[Figure]:
    """Return the figures of the tables of all figures that have a ratio to Kafka."""
    heading, result = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if heading != "All figures":
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 9 and re.fullmatch(r"[\d.]+x", cells[5]) and float(cells[5][:-1]) > 0:
            spindle, kafka = (cell.partition(" ")[0] for cell in cells[3:5])
            ratio = float(cells[5].removesuffix("x"))
            result.append(Figure(cells[0], cells[1], spindle, kafka, ratio, cells[7].strip("*")))
    return result


def plot(title: str, shown: Sequence[Figure]) -> str:
    """Return a picture (SVG) of figures, one bar each, on a logarithmic scale around 1."""
    middle = LABEL_WIDTH + BAR_WIDTH / 2
    height = ROW * (len(shown) + 2)
    width = LABEL_WIDTH + BAR_WIDTH + 150
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(title)}</title>",
    ]
    for ratio in (1 / 16, 1 / 4, 1, 4, 16):
        x = middle + _offset(ratio)
        label = f"{ratio:g}x" if ratio >= 1 else f"1/{1 / ratio:g}"
        lines.append(f'<line x1="{x}" x2="{x}" y1="20" y2="{height}" stroke="#8888" />')
        lines.append(f'<text x="{x}" y="14" text-anchor="middle">{label}</text>')
    for row, figure in enumerate(shown, start=1):
        lines += _bar(figure, ROW * row + 6, middle)
    return "\n".join([*lines, "</svg>"])


def _offset(gain: float) -> float:
    share = math.log(max(1 / WIDEST, min(WIDEST, gain))) / math.log(WIDEST)
    return round(share * BAR_WIDTH / 2, 1)


def _bar(figure: Figure, y: int, middle: float) -> Iterator[str]:
    offset = _offset(figure.gain)
    colour = BETTER if figure.gain > 1.05 else WORSE if figure.gain < 0.95 else EQUAL
    left, width = (middle, offset) if offset >= 0 else (middle + offset, -offset)
    text = f"{figure.spindle} / {figure.kafka} {figure.unit}"
    yield f'<text x="{LABEL_WIDTH - 8}" y="{y + 11}" text-anchor="end">{escape(figure.work)}</text>'
    yield f'<rect x="{left}" y="{y}" width="{max(width, 2)}" height="{ROW - 8}" fill="{colour}"/>'
    yield f'<text x="{left + max(width, 2) + 6}" y="{y + 11}">{escape(text)}</text>'


GROUPS: Final = {
    "Produce, consume and replicate": (
        "produce",
        "consume",
        "fetch",
        "one-in-flight",
        "rf3",
        "tls",
    ),
    "Start, idle nodes and metadata": ("restart", "idle", "metadata", "controller"),
    "Spark": ("spark",),
}
OTHERS: Final = "All others"
HEAD: Final = """\
# Plots of the benchmarks

Drawn from [the results](../benchmarks/RESULTS.md) when the site is built. A bar to the right
(green) shows how many times better Spindle is than Apache Kafka, a bar to the left (red) how many
times worse; beside it are the medians of Spindle and of Kafka. The scale is logarithmic."""


def plots_page() -> str:
    """Return the page of plots, drawn from the page of results."""
    lines = [HEAD]
    groups: dict[str, list[Figure]] = {title: [] for title in (*GROUPS, OTHERS)}
    for figure in figures(RESULTS.read_text()):
        titles = (title for title, starts in GROUPS.items() if figure.work.startswith(starts))
        groups[next(titles, OTHERS)].append(figure)
    for title, shown in groups.items():
        if shown:
            lines += ["", f"## {title}", "", plot(title, shown)]
    return "\n".join(lines) + "\n"
