"""The Spark session of `benchmarks.spark_scale`: runs its reads and watches the memory in use.

Reads a JSON plan from standard input and prints one JSON list as its last line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from spindle.pipeline import get_spark

MIB = 1 << 20
SAMPLE_S = 0.2


def main() -> None:
    """Run the plan."""
    plan = json.load(sys.stdin)
    memory = f"{plan['executor_memory_mib']}m"
    conf = {
        "spark.executor.memory": memory,
        "spark.driver.memory": "1g",
        "spark.executor.cores": "1",
        "spark.executor.instances": str(plan["executors"]),
    }
    spark = get_spark("scale", plan["master"], conf, progress=True)
    wait_for_executors(spark, plan["executors"])
    for case in plan["cases"][:2] * 2:
        read(spark, case)  # a JVM is slow at first
    results = []
    for case in plan["cases"]:
        results.append(measured(spark, case, plan))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    spark.stop()
    print(json.dumps(results))


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """Wait until all executors have registered."""
    status = spark.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + 120
    while len(status.getExecutorInfos()) < count + 1:  # the driver is one of them
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} executors did not start")
        time.sleep(0.1)


def measured(spark: SparkSession, case: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of each run and the largest resident memory of each kind of process."""
    seconds = []
    with MemoryWatch(spark.sparkContext.applicationId) as watch:
        for _ in range(plan["runs"]):
            begin = time.perf_counter()
            rows, size_bytes = read(spark, case)
            seconds.append(time.perf_counter() - begin)
    if (rows, size_bytes) != (case["rows"], case["bytes"]):
        raise RuntimeError(f"{case}: read {rows} rows with {size_bytes} bytes")
    return {
        **{name: value for name, value in case.items() if name != "options"},
        "executors": plan["executors"],
        "tasks": frame_of(spark, case).rdd.getNumPartitions(),
        "seconds": seconds,
        "rss_mib": {kind: value / MIB for kind, value in watch.largest.items()},
    }


def read(spark: SparkSession, case: dict[str, Any]) -> tuple[int, int]:
    """Return the number of rows, and the bytes of all values."""
    row = frame_of(spark, case).selectExpr("count(*)", "sum(length(value))").first()
    assert row is not None
    return int(row[0]), int(row[1])


def frame_of(spark: SparkSession, case: dict[str, Any]) -> DataFrame:
    return spark.read.format(case["source"]).options(**case["options"]).load()


class MemoryWatch:
    """Samples the resident memory of all processes; keeps the largest value of each kind."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.largest: dict[str, int] = {}

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self._note("driver_python", psutil.Process())
            for child in psutil.Process().children():
                self._note("driver_jvm", child)
                for planner in descendants(child):
                    self._note("planner", planner)
            for process in psutil.process_iter(["cmdline"]):
                words = process.info["cmdline"] or []
                if self._application in words and "java" in words[0]:
                    self._note("executor", process)
                    for worker in descendants(process):
                        self._note("worker", worker)

    def _note(self, kind: str, process: psutil.Process) -> None:
        try:
            rss = process.memory_info().rss
        except psutil.Error:
            return  # it has ended
        self.largest[kind] = max(rss, self.largest.get(kind, 0))


def descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = process.children(recursive=True)
    except psutil.Error:
        return []
    return children


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
