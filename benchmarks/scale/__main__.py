"""Measure the costs at several sizes; see the README of the benchmarks.

Run: python -m benchmarks.scale --json scale.json [--partitions 10000,100000,1000000,2000000]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.scale import page
from benchmarks.scale.controllers import end_in_order
from benchmarks.scale.image import Size
from benchmarks.scale.parts import PARTS, measure

MAX_PLANNED = 1_000_000


def in_new_process(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function in a process whose memory is free afterwards."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *args).result()


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="10000,100000,1000000,2000000")
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--json", type=Path, required=True, help="kept and added to if it exists")
    options = parser.parse_args()
    document: dict[str, Any] = {"rows": []}
    if options.json.exists():
        document = json.loads(options.json.read_text())
    document["brokers"] = options.brokers
    document["directories"] = Size(1).directories_each
    document["machine"] = (
        f"Machine: {os.cpu_count()} cores, Python {platform.python_version()}, load average "
        f"{os.getloadavg()[0]:.2f} at the start."
    )
    rows = {row["partitions"]: row for row in document["rows"]}
    for partitions in map(int, options.partitions.split(",")):
        size = Size(partitions, options.brokers)
        row = rows.setdefault(partitions, {"partitions": partitions})
        for part in options.parts.split(","):
            if part == "plans" and partitions > MAX_PLANNED:
                continue
            try:
                row[part] = in_new_process(measure, part, size)
            except (RuntimeError, OSError) as failure:  # the other parts are measured
                print(f"{partitions:,} partitions, {part}: failed: {failure}")
                continue
            print(f"{partitions:,} partitions, {part}: {row[part].get('figures', row[part])}")
            document["rows"] = [rows[known] for known in sorted(rows)]
            options.json.write_text(json.dumps(document, indent=1))
    page.write(document)


if __name__ == "__main__":
    main()
