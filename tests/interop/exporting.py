"""A process that exports a topic again and again until it is killed; the tasks run in it.

Without Spark a process starts in a second, so that a test can kill many of them.

    python exporting.py BOOTSTRAP TOPIC FORMAT TABLE [upsert] [once]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from spindle.pipeline.export import exporter
from spindle.pipeline.export.jobs import open_table
from spindle.pipeline.export.model import ExportConflict, ExportSource, PlannedRange, WrittenFile
from spindle.pipeline.export.parquet_files import FileSettings, write_range
from spindle.pipeline.export.portions import PortionSize
from spindle.pipeline.export.settings import ExportOptions, source_and_settings


def write_files(
    _: Any,
    source: ExportSource,
    portion: Sequence[PlannedRange],
    settings: FileSettings,
    report: Callable[..., None],
) -> list[WrittenFile]:
    tasks = source.tasks(portion)
    return [
        file for task in tasks for piece in task for file in write_range(source, piece, settings, 0)
    ]


def main(bootstrap: str, topic: str, table_format: Any, path: str, *words: str) -> None:
    vars(exporter)["write_files"] = write_files
    no_spark: Any = None
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    settings = ExportOptions(source="spindle", portion=PortionSize(offsets=500))
    if "upsert" in words:
        settings["mode"] = "upsert"
    while True:
        table = open_table(table_format, path)
        source, chosen = source_and_settings(options, settings, table)
        try:
            exported = exporter.run_export(no_spark, source, table, chosen)
            print("exported", exported.rows, flush=True)
        except ExportConflict:
            print("conflict", flush=True)
        else:
            if "once" in words:
                return


main(*sys.argv[1:])
