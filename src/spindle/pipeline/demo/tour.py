"""The steps of the demo, in order."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.common.text import size_text
from spindle.pipeline.demo import flights, questions, sending
from spindle.pipeline.demo.copies import Copies
from spindle.pipeline.demo.node import LOG_DIRECTORIES, DemoError, DemoLayout, DemoNode
from spindle.pipeline.demo.proof import Fingerprint
from spindle.pipeline.demo.screen import Screen
from spindle.pipeline.demo.sending import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class Tour:
    """The first half of a demo: one node, and Spark."""

    screen: Screen
    layout: DemoLayout
    node: DemoNode
    spark: "SparkSession | None" = None

    def run(self) -> bool:
        """Run all steps; return True if every copy of the data equals the input.

        Raises:
            DemoError, MissingInput: a step could not be done.
        """
        self._start_node()
        sent = self._send()
        self._show_directories()
        self._start_spark()
        copies = Copies(self.screen, self.session, sent)
        with self.screen.step('Spark reads the topic through the broker: format("spindle")'):
            copies.read_through_brokers(self.node.bootstrap_servers, TOPIC, "through the broker")
        with self.screen.step('The same, straight from the disks: format("spindle-segments")'):
            copies.read_directories(self._segment_options(), "from the disks")
        with self.screen.step("A Delta table of it, written by Spark's Python tasks"):
            copies.export(self.layout.delta_table, self._segment_options())
        with self.screen.step("Proof: every copy equals the input"):
            is_equal = copies.prove()
            self.screen.say(
                "[dim]The checksum adds up a CRC-32 of key, value and timestamp of every record, "
                "so it does not depend on their order.[/dim]"
            )
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

    def _send(self) -> Fingerprint:
        table = flights.read_flights()
        title = f"{table.num_rows:,} flights from New York, sent with confluent-kafka"
        with self.screen.step(title):
            sending.create_topic(self.node.bootstrap_servers)
            started = time.monotonic()
            with self.screen.progress("sending", table.num_rows) as advance:
                records = flights.flight_records(table)
                sent = sending.send(self.node.bootstrap_servers, records, advance)
            seconds = time.monotonic() - started
            self.screen.say(
                f"topic [bold]{TOPIC}[/bold], {PARTITIONS} partitions: keyed by tail number, JSON, "
                f"lz4, idempotent, at the time of departure; {size_text(sent.value_bytes)} "
                f"in {seconds:.1f} s ({sent.records / seconds:,.0f} records/s, made in Python)"
            )
        return sent

    def _show_directories(self) -> None:
        with self.screen.step("Where they landed"):
            settings = client_settings({"bootstrap.servers": self.node.bootstrap_servers})
            with WireClient(settings) as client:
                (directories,) = client.describe_log_dirs({TOPIC: range(PARTITIONS)}).values()
            rows = []
            for directory in directories:
                numbers = sorted(replica.partition for replica in directory.replicas)
                size_bytes = sum(replica.size_bytes for replica in directory.replicas.values())
                partitions = ", ".join(f"{TOPIC}-{number}" for number in numbers)
                rows.append((directory.path, partitions or "-", size_text(size_bytes)))
            self.screen.table(("log directory", "partitions", "size"), rows, numbers=(2,))

    def _start_spark(self) -> None:
        from spindle.pipeline.spark.session import get_spark

        with self.screen.step("A Spark session"):
            started = time.monotonic()
            with self.screen.waiting("starting Spark"), _errors_to(self.layout.spark_log):
                self.spark = get_spark("spindle-demo")
            self.screen.say(
                f"PySpark {self.spark.version} started in {time.monotonic() - started:.1f} s, "
                "without any jar of ours or Kafka's"
            )

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
                    *(_minutes(value) for value in by_airport),
                    f"{cancelled:.1%}",
                )
                for carrier, count, delay, by_airport, cancelled in answer
            ]
            columns = ("airline", "flights", "delay", "EWR", "JFK", "LGA", "cancelled")
            self.screen.table(columns, rows, numbers=range(1, 7))
            self.screen.say("[dim]Mean delay at the destination in minutes, worst first.[/dim]")

    @property
    def session(self) -> "SparkSession":
        """The Spark session.

        Raises:
            DemoError: it has not been started.
        """
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

        return read_delta(self.session, self.layout.delta_table)


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


def _minutes(delay: float | None) -> str:
    return "-" if delay is None else f"{delay:+.1f}"
