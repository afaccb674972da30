"""The steps of the demo, in order."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spindle.client.wire.cluster import WireClient
from spindle.client.wire.settings import client_settings
from spindle.pipeline.demo import flights, questions, sending
from spindle.pipeline.demo.node import LOG_DIRECTORIES, DemoError, DemoLayout, DemoNode
from spindle.pipeline.demo.proof import Fingerprint, fingerprint_of_rows
from spindle.pipeline.demo.screen import Screen, size_text
from spindle.pipeline.demo.sending import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spindle.pipeline.export.model import ExportProgress

_PROOF_COLUMNS: Final = ("copy", "records", "value bytes", "checksum", "s", "equal")


@dataclass(slots=True)
class Tour:
    """One run of the demo: the node, the session, and the fingerprint of the input."""

    screen: Screen
    layout: DemoLayout
    node: DemoNode
    spark: "SparkSession | None" = None
    sent: Fingerprint = field(default_factory=Fingerprint)
    proofs: list[tuple[str, Fingerprint, float]] = field(default_factory=list)

    def run(self) -> bool:
        """Run all steps; return True if every copy of the data equals the input.

        Raises:
            DemoError, MissingInput: a step could not be done.
        """
        self._start_node()
        self._send()
        self._show_directories()
        self._read_through_broker()
        self._read_directories()
        self._export()
        is_equal = self._prove()
        self._ask()
        return is_equal

    def _start_node(self) -> None:
        with self.screen.step(f"A node with {LOG_DIRECTORIES} log directories"):
            cluster_id = self.node.format()
            with self.screen.waiting("starting"):
                seconds = self.node.start()
            self.screen.say(
                f"cluster {cluster_id} answers at [bold]{self.node.bootstrap_servers}[/bold], "
                f"{seconds:.2f} s after its process began"
            )

    def _send(self) -> None:
        table = flights.read_flights()
        title = f"{table.num_rows:,} flights from New York, sent with confluent-kafka"
        with self.screen.step(title):
            sending.create_topic(self.node.bootstrap_servers)
            started = time.monotonic()
            with self.screen.progress("sending", table.num_rows) as advance:
                records = flights.flight_records(table)
                self.sent = sending.send(self.node.bootstrap_servers, records, advance)
            seconds = time.monotonic() - started
            self.screen.say(
                f"topic [bold]{TOPIC}[/bold], {PARTITIONS} partitions: keyed by tail number, JSON, "
                f"lz4, idempotent, at the time of departure; {size_text(self.sent.value_bytes)} "
                f"in {seconds:.1f} s ({self.sent.records / seconds:,.0f} records/s, made in Python)"
            )

    def _show_directories(self) -> None:
        with self.screen.step("Where they landed"):
            settings = client_settings({"bootstrap.servers": self.node.bootstrap_servers})
            with WireClient(settings) as client:
                (directories,) = client.describe_log_dirs({TOPIC: range(PARTITIONS)}).values()
            rows = []
            for directory in directories:
                numbers = sorted(each.partition for each in directory.replicas)
                size_bytes = sum(each.size_bytes for each in directory.replicas.values())
                partitions = ", ".join(f"{TOPIC}-{number}" for number in numbers)
                rows.append((directory.path, partitions or "-", size_text(size_bytes)))
            self.screen.table(("log directory", "partitions", "size"), rows, numbers=(2,))

    def _read_through_broker(self) -> None:
        from spindle.pipeline.session import get_spark

        with self.screen.step('Spark reads the topic through the broker: format("spindle")'):
            started = time.monotonic()
            with self.screen.waiting("starting Spark"), _errors_to(self.layout.spark_log):
                self.spark = get_spark("spindle-demo")
            self.screen.say(
                f"PySpark {self.spark.version} started in {time.monotonic() - started:.1f} s, "
                "without any jar of ours or Kafka's"
            )
            rows = (
                self.spark.read.format("spindle")
                .option("kafka.bootstrap.servers", self.node.bootstrap_servers)
                .option("subscribe", TOPIC)
                .load()
            )
            self._check("through the broker", rows)

    def _read_directories(self) -> None:
        with self.screen.step('The same, straight from the disks: format("spindle-segments")'):
            reader = self._session.read.format("spindle-segments")
            for name, value in self._segment_options().items():
                reader = reader.option(name, value)
            self._check("from the disks", reader.load())

    def _export(self) -> None:
        from spindle.pipeline.export.delta import export_delta

        with self.screen.step("A Delta table of it, written by Spark's Python tasks"):
            started = time.monotonic()
            with self.screen.progress("exporting", self.sent.records) as advance:
                done = 0

                def report(progress: "ExportProgress") -> None:
                    nonlocal done
                    advance(progress.rows - done)
                    done = progress.rows

                options = self._segment_options()
                path = self.layout.delta_table
                result = export_delta(self._session, path, options, progress=report)
                seconds = time.monotonic() - started
                again = export_delta(self._session, path, options)
            self.screen.say(
                f"{result.rows:,} rows in {result.files} files, {size_text(result.size_bytes)}, "
                f"{seconds:.1f} s; run again it adds {again.rows} rows"
            )
            self._check("Delta table", self._delta_rows())

    def _prove(self) -> bool:
        with self.screen.step("Proof: every copy equals the input"):
            rows = [(*_proof_cells("input", self.sent), "", "")]
            for name, found, seconds in self.proofs:
                verdict = "yes" if found == self.sent else "[bold red]NO[/bold red]"
                rows.append((*_proof_cells(name, found), f"{seconds:.1f}", verdict))
            self.screen.table(_PROOF_COLUMNS, rows, numbers=(1, 2, 4))
            self.screen.say(
                "[dim]The checksum adds up a CRC-32 of key, value and timestamp of every record, "
                "so it does not depend on their order.[/dim]"
            )
        return all(found == self.sent for _, found, _ in self.proofs)

    def _ask(self) -> None:
        names = flights.read_airlines()
        with self.screen.step(f"A question in Spark SQL: {questions.QUESTION}"):
            with self.screen.waiting("asking"):
                answer = questions.ask(self._delta_rows())
            rows = [
                (
                    names.get(carrier, carrier),
                    f"{count:,}",
                    _minutes(delay),
                    *(_minutes(each) for each in by_airport),
                    f"{cancelled:.1%}",
                )
                for carrier, count, delay, by_airport, cancelled in answer
            ]
            columns = ("airline", "flights", "delay", "EWR", "JFK", "LGA", "cancelled")
            self.screen.table(columns, rows, numbers=range(1, 7))
            self.screen.say("[dim]Mean delay at the destination in minutes, worst first.[/dim]")

    def _check(self, name: str, rows: "DataFrame") -> None:
        started = time.monotonic()
        with self.screen.waiting("reading and adding up checksums"):
            found = fingerprint_of_rows(rows)
        seconds = time.monotonic() - started
        self.proofs.append((name, found, seconds))
        self.screen.say(
            f"{found.records:,} records read and checksummed in {seconds:.1f} s "
            f"({found.records / seconds:,.0f} records/s)"
        )

    @property
    def _session(self) -> "SparkSession":
        if self.spark is None:
            raise DemoError("there is no Spark session yet")
        return self.spark

    def _segment_options(self) -> dict[str, str]:
        # There is one replica, so all records up to the log end are committed; the high
        # watermark on disk may be seconds old while the node runs.
        directories = ",".join(map(str, self.layout.log_directories))
        return {"logDirs": directories, "subscribe": TOPIC, "end": "logEnd"}

    def _delta_rows(self) -> "DataFrame":
        from spindle.pipeline.export import read_delta

        return read_delta(self._session, self.layout.delta_table)


@contextlib.contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of processes that are started in the block to a file."""
    sys.stderr.flush()
    ours = os.dup(sys.stderr.fileno())
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, sys.stderr.fileno())
        os.close(ours)


def _proof_cells(name: str, found: Fingerprint) -> tuple[str, str, str, str]:
    return (
        name,
        f"{found.records:,}",
        f"{found.value_bytes:,}",
        found.checksum_text,
    )


def _minutes(delay: float | None) -> str:
    return "-" if delay is None else f"{delay:+.1f}"
