"""The copies of the flights that Spark reads, each proved equal to the input."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spindle.common.text import size_text
from spindle.pipeline.demo.proof import Fingerprint, fingerprint_of_rows
from spindle.pipeline.demo.screen import Screen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spindle.pipeline.export.model import ExportProgress

_COLUMNS: Final = ("copy", "records", "value bytes", "checksum", "s", "equal")


@dataclass(slots=True)
class Copies:
    """The fingerprint of what was sent, and those of the copies."""

    screen: Screen
    spark: "SparkSession"
    sent: Fingerprint
    found: list[tuple[str, Fingerprint, float]] = field(default_factory=list)

    def read_through_brokers(self, bootstrap_servers: str, topic: str, name: str) -> None:
        """Read the topic from its leaders and take the fingerprint."""
        rows = (
            self.spark.read.format("spindle")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .load()
        )
        self._check(name, rows)

    def read_directories(self, options: dict[str, str], name: str) -> None:
        """Read log directories without a broker and take the fingerprint.

        Args:
            options: those of `spindle-segments`.
        """
        self._check(name, self.spark.read.format("spindle-segments").options(**options).load())

    def export(self, table: Path, options: dict[str, str]) -> None:
        """Write a Delta table of log directories, try it a second time, and read it back."""
        from spindle.pipeline.export import read_delta
        from spindle.pipeline.export.delta import export_delta

        started = time.monotonic()
        with self.screen.progress("exporting", self.sent.records) as advance:
            done = 0

            def report(progress: "ExportProgress") -> None:
                nonlocal done
                advance(progress.rows - done)
                done = progress.rows

            result = export_delta(self.spark, table, options, progress=report)
            seconds = time.monotonic() - started
            again = export_delta(self.spark, table, options)
        self.screen.say(
            f"{result.rows:,} rows in {result.files} files, {size_text(result.size_bytes)}, "
            f"{seconds:.1f} s; run again it adds {again.rows} rows"
        )
        self._check("Delta table", read_delta(self.spark, table))

    def prove(self) -> bool:
        """Show all fingerprints; return True if every copy equals the input."""
        rows = [(*_cells("input", self.sent), "", "")]
        for name, fingerprint, seconds in self.found:
            verdict = "yes" if fingerprint == self.sent else "[bold red]NO[/bold red]"
            rows.append((*_cells(name, fingerprint), f"{seconds:.1f}", verdict))
        self.screen.table(_COLUMNS, rows, numbers=(1, 2, 4))
        return all(fingerprint == self.sent for _, fingerprint, _ in self.found)

    def _check(self, name: str, rows: "DataFrame") -> None:
        started = time.monotonic()
        with self.screen.waiting("reading and adding up checksums"):
            fingerprint = fingerprint_of_rows(rows)
        seconds = time.monotonic() - started
        self.found.append((name, fingerprint, seconds))
        self.screen.say(
            f"{fingerprint.records:,} records read and checksummed in {seconds:.1f} s "
            f"({fingerprint.records / seconds:,.0f} records/s)"
        )


def _cells(name: str, found: Fingerprint) -> tuple[str, str, str, str]:
    return name, f"{found.records:,}", f"{found.value_bytes:,}", found.checksum_text
