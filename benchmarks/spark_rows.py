"""Measure the rows of `spark_table` in one Spark session; runs in the environment of spark_venv.

Reads a JSON plan from standard input, and prints a line with a JSON object for each row of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import col, count, lit, timestamp_millis, unix_millis

from benchmarks.process_cpu import cpu_times
from benchmarks.spark_table import BUILT_IN, DISKS, ROWS, Row, Samples, Topic, Way
from spindle.pipeline import count_records, get_spark
from spindle.pipeline.export import export_delta, export_parquet

KEPT = 0.01
"""The part of the rows that the filters keep."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of one broker, and the process of that broker."""

    name: str
    bootstrap: str
    log_dirs: str
    pid: int

    def options(self, way: Way, topic: Topic) -> dict[str, str]:
        """Return the options of a read of a topic."""
        result = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic.name, **way.options}
        return result | {"logDirs": self.log_dirs} if way.source == DISKS else result


@dataclass(frozen=True, eq=False)
class Case:
    """One way to do the work of a row on one cluster."""

    spark: SparkSession
    cluster: Cluster
    row: Row
    way: Way
    records: int
    folder: Path

    @cached_property
    def options(self) -> dict[str, str]:
        return self.cluster.options(self.way, self.row.topic)

    def read(self, **options: str) -> DataFrame:
        """Return the rows of the topic."""
        return self.spark.read.format(self.way.source).options(**self.options, **options).load()

    @property
    def offset_bounds(self) -> tuple[int, int]:
        """The kept offsets of each partition: the first, and the one after the last."""
        size = self.records // self.row.topic.partitions
        return size // 2, size // 2 + max(1, int(size * KEPT))

    @property
    def time_bounds_ms(self) -> tuple[int, int]:
        return time_bounds_ms(self.spark, self.cluster, self.row.topic)


@cache
def time_bounds_ms(spark: SparkSession, cluster: Cluster, topic: Topic) -> tuple[int, int]:
    """Return the first and the last kept timestamp of a topic."""
    options = cluster.options(Way("", BUILT_IN, ""), topic)
    rows = spark.read.format(BUILT_IN).options(**options).load()
    times = rows.select(unix_millis("timestamp").alias("ms"))
    least, greatest = times.approxQuantile("ms", [0.5, 0.5 + KEPT], 0.001)
    return int(least), int(greatest)


@dataclass(frozen=True, slots=True)
class Job:
    """The measured function, and one that does the same and returns how many rows there were."""

    run: Callable[[Case], Any]
    counted: Callable[[Case], int]


def dropped(frame: Callable[[Case], DataFrame]) -> Job:
    """Return the job that makes Spark produce all rows of a DataFrame and drop them."""

    def counted(case: Case) -> int:
        seen = Observation()
        drop(frame(case).observe(seen, count(lit(1)).alias("rows")))
        return int(seen.get["rows"])

    return Job(lambda case: drop(frame(case)), counted)


def drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def counting(run: Callable[[Case], int]) -> Job:
    """Return the job of a function that returns the number of rows."""
    return Job(run, run)


def offsets_where(case: Case) -> DataFrame:
    first, end = case.offset_bounds
    return case.read().where((col("offset") >= first) & (col("offset") < end))


def offsets_by_options(case: Case) -> DataFrame:
    start, end = (
        json.dumps({case.row.topic.name: dict.fromkeys(range(case.row.topic.partitions), offset)})
        for offset in case.offset_bounds
    )
    return case.read(startingOffsets=start, endingOffsets=end)


def times_where(case: Case) -> DataFrame:
    first, last = (timestamp_millis(lit(bound)) for bound in case.time_bounds_ms)
    return case.read().where(col("timestamp").between(first, last))


def times_by_options(case: Case) -> DataFrame:
    first, last = case.time_bounds_ms
    return case.read(minTimestamp=str(first), maxTimestamp=str(last))


def write_parquet(case: Case) -> None:
    case.read().write.parquet(str(case.folder / "parquet"), compression="snappy")


def parquet_rows(case: Case) -> int:
    write_parquet(case)
    return case.spark.read.parquet(str(case.folder / "parquet")).count()


def export_to_delta(case: Case) -> int:
    target = case.folder / "delta"
    return export_delta(case.spark, target, case.options, source=case.way.source).rows


def export_to_parquet(case: Case) -> int:
    target = case.folder / "exported"
    return export_parquet(case.spark, target, case.options, source=case.way.source).rows


def write_topic(case: Case) -> None:
    rows = case.spark.range(case.records).selectExpr(
        "cast(id as string) key",
        f"rpad(cast(id as string), {case.row.topic.value_bytes}, 'x') value",
    )
    brokers = {"kafka.bootstrap.servers": case.cluster.bootstrap}
    rows.write.format(case.way.source).options(**brokers, **case.way.options).mode("append").save()


def topic_rows(case: Case) -> int:
    """Write a topic; return how many rows it has, as a committed reader sees them."""
    write_topic(case)
    options = {
        "kafka.bootstrap.servers": case.cluster.bootstrap,
        "subscribe": case.way.options["topic"],
        "kafka.isolation.level": "read_committed",
    }
    return case.spark.read.format(BUILT_IN).options(**options).load().count()


def read_stream(case: Case) -> int:
    """Read all records as a stream; return the rows of its batches."""
    source = case.spark.readStream.format(case.way.source).options(**case.options)
    rows = source.option("startingOffsets", "earliest").load()
    sink = rows.writeStream.format("noop").option("checkpointLocation", str(case.folder / "at"))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


JOBS: dict[str, Job] = {
    "noop": dropped(lambda case: case.read()),
    "two_columns": dropped(lambda case: case.read().select("offset", "timestamp")),
    "offsets_where": dropped(offsets_where),
    "offsets_by_options": dropped(offsets_by_options),
    "times_where": dropped(times_where),
    "times_by_options": dropped(times_by_options),
    "count": counting(lambda case: case.read().count()),
    "count_records": counting(lambda case: count_records(case.spark, case.options)),
    "parquet": Job(write_parquet, parquet_rows),
    "write_topic": Job(write_topic, topic_rows),
    "read_stream": counting(read_stream),
    "export_delta": counting(export_to_delta),
    "export_parquet": counting(export_to_parquet),
}


def check(cases: list[Case]) -> None:
    """Run each case once. Raise RuntimeError if it gives other rows than the first one."""
    expected = None
    for case in cases:
        shutil.rmtree(case.folder, ignore_errors=True)
        case.folder.mkdir(parents=True)
        result = JOBS[case.way.job].counted(case)
        expected = result if expected is None else expected
        if result != expected:
            raise RuntimeError(
                f"{case.row.name} on {case.cluster.name}: {result} rows by {case.way.label}, "
                f"and {expected} by {case.row.baseline.label}"
            )


def measure(case: Case, samples: Samples) -> None:
    """Run a case once and note its figures."""
    shutil.rmtree(case.folder, ignore_errors=True)
    case.folder.mkdir(parents=True)
    processes = (os.getpid(), case.cluster.pid)
    before = [cpu_times(process) for process in processes]
    start = time.perf_counter()
    JOBS[case.way.job].run(case)
    elapsed_s = time.perf_counter() - start
    samples.rows_per_s.append(case.records / elapsed_s)
    kinds = (samples.client_cpu_s, samples.broker_cpu_s)
    for process, times, values in zip(processes, before, kinds, strict=True):
        used_s = cpu_times(process).since(times)
        if used_s is not None:
            values.append(used_s)


def measure_row(spark: SparkSession, row: Row, plan: dict[str, Any]) -> dict[str, Any]:
    """Measure a row in all ways on all clusters in turn; return samples by cluster and way."""
    records = row.topic.records_of(plan["records"])
    cases = [
        Case(spark, Cluster(**cluster), row, way, records, Path(plan["folder"]) / "output")
        for cluster in plan["clusters"]
        for way in row.ways
    ]
    for cluster in plan["clusters"]:
        check([case for case in cases if case.cluster.name == cluster["name"]])
    results = {case: Samples() for case in cases}
    for number in range(1, plan["warm_ups"] + plan["runs"]):
        for case, samples in results.items():
            measure(case, samples if number >= plan["warm_ups"] else Samples())
    measure_row: dict[str, Any] = {}
    for case, samples in results.items():
        measure_row.setdefault(case.cluster.name, {})[case.way.label] = asdict(samples)
    return measure_row


def main() -> None:
    """Read a plan from standard input, and print a JSON object for each row of it."""
    plan = json.load(sys.stdin)
    spark = get_spark("bench", "local[2]", {"spark.jars": os.environ["SPARK_JARS"]})
    for row in ROWS:
        if row.name not in plan["rows"]:
            continue
        answer: dict[str, Any] = {"row": row.name}
        try:
            answer["clusters"] = measure_row(spark, row, plan)
        except (PySparkException, Py4JError, RuntimeError, ValueError) as failure:
            answer["failure"] = str(failure)[:800]
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
