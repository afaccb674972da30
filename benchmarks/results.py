"""Make the page benchmarks/RESULTS.md from the JSON of a run.

python -m benchmarks.results result.json > benchmarks/RESULTS.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.environment import summary
from benchmarks.report import FLOOR, KAFKA, MET, MISSED, NOT_MEASURED, SPINDLE, Line, spread

BUSY = 0.25
"""From this load average for each core on, the page warns of other programs."""

HEAD = (
    "# Results\n\n"
    "`python -m benchmarks.results` made this page from the JSON of one run of `make bench`. "
    "[What each measurement means](README.md).\n"
    "A ratio is Spindle's median divided by the other program's. Figures are the median "
    "(minimum-maximum), of at most {runs} runs.\n"
    "Absolute figures are those of this machine.\n"
)


def page(document: dict[str, Any]) -> str:
    """Return the page in Markdown: the surroundings, what is missed, and all figures."""
    lines = [line_of(entry) for entry in document["lines"]]
    programs = [program for program in document["programs"] if program != SPINDLE]
    missed = [line for line in lines if line.verdict() in (MISSED, NOT_MEASURED)]
    met = [line for line in lines if line.verdict() == MET]
    parts = [
        HEAD.format(runs=document["settings"]["runs"]),
        *_warnings(document),
        "## What it ran on\n",
        *(f"* {line}" for line in summary(document["environment"]).splitlines()),
        f"* {_settings(document['settings'])}\n",
        f"## Goals: {len(met)} met, {len(missed)} missed\n",
        *(_table(missed, programs) if missed else ["Every goal is met.\n"]),
        "## All figures\n",
        *_table(lines, programs),
    ]
    for title in ("failures", "skipped"):
        if document[title]:
            parts += [f"## {title.capitalize()}\n", *_entries(document[title]), ""]
    return "\n".join(parts).rstrip() + "\n"


def line_of(entry: dict[str, Any]) -> Line:
    """Return the line that an object of the JSON describes."""
    names = ("item", "metric", "unit", "more_is_better", "values", "goals")
    return Line(**{name: entry[name] for name in names})


def _warnings(document: dict[str, Any]) -> Iterable[str]:
    described = document["environment"]
    load = described["load_average_at_start"][0]
    if load > BUSY * described["cores"]:
        yield (
            f"**Other programs ran on this machine (load average {load:.2f} at the start): do not "
            "rely on these figures.**\n"
        )
    if KAFKA not in document["programs"]:
        yield "**Kafka was not measured: the ratios are to another Spindle.**\n"


def _settings(settings: dict[str, Any]) -> str:
    return (
        f"Volume of a run {settings['volume_bytes'] / 2**20:,.0f} MiB of 1 KiB records, "
        f"{settings['small_volume_bytes'] / 2**20:,.0f} MiB of 100-byte records; "
        f"{settings['latency_records']:,} records one by one after "
        f"{settings['warm_up_requests']:,} unmeasured ones; "
        f"{settings['restart_partitions']:,} partitions to restart with; "
        f"{settings['spark_records']:,} records for Spark"
    )


def _table(lines: Sequence[Line], programs: Sequence[str]) -> list[str]:
    """Return a Markdown table with a row for each line; a missed goal stands out in bold."""
    comparisons = [title for program in programs for title in (f"to {program}", "goal")]
    titles = ["work", "unit", FLOOR, *programs, SPINDLE, *comparisons, "verdict", "remark"]
    rows = [_row(line, programs) for line in lines]
    text = [titles, ["---"] * len(titles), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in text), ""]


def _row(line: Line, programs: Sequence[str]) -> list[str]:
    values = [spread(line.values.get(name, [])) for name in (FLOOR, *programs, SPINDLE)]
    comparisons = []
    for program in programs:
        ratio = line.ratio(program)
        comparisons += ["" if ratio is None else f"{ratio:.2f}x", line.goal_text(program)]
    verdict = line.verdict()
    shown = f"**{verdict}**" if verdict in (MISSED, NOT_MEASURED) else verdict
    return [line.item, line.unit, *values, *comparisons, shown, line.remark()]


def _entries(found: list[str] | dict[str, str]) -> list[str]:
    if isinstance(found, dict):
        return [f"* `{name}`: {reason}" for name, reason in found.items()]
    return [f"* {entry}" for entry in found]


@click.command(help=__doc__)
@click.argument("json_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(json_file: Path) -> None:
    """Print the page."""
    sys.stdout.write(page(json.loads(json_file.read_text())))


if __name__ == "__main__":
    main()
