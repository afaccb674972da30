"""A program that runs reads, exports and writes on a Spark cluster and kills executors meanwhile.

It also writes to topics with speculative execution, if the plan says so.

It reads a JSON plan from standard input and prints one JSON object as its last line. It is not a
test, because each cluster needs a session, and so a process, of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spindle.pipeline import get_spark
from spindle.pipeline.export import export_delta

TASKS_BEFORE_KILL = 3
LIMIT_S = 600
CONF = {"spark.executor.memory": "1g", "spark.driver.memory": "1g"}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}
SPECULATIVE_TASKS = 6
COPY_LIMIT_S = 120.0


def main() -> None:
    plan = json.load(sys.stdin)
    spark = get_spark("kills", plan["master"], CONF)
    try:
        answer: dict[str, Any] = {
            name: {job: killed(spark, partial(JOBS[job], spark, source)) for job in source["jobs"]}
            for name, source in plan["sources"].items()
        }
    finally:
        application = spark.sparkContext.applicationId
        spark.stop()
        remove_work_folder(application)
    if plan["speculation"]:
        spark = get_spark("speculation", plan["master"], CONF | SPECULATION)
        try:
            answer["speculation"] = {
                wakes: speculated(spark, wakes, **given)
                for wakes, given in plan["speculation"].items()
            }
        finally:
            spark.stop()
    print(json.dumps(answer))


def read(spark: SparkSession, source: dict[str, Any]) -> list[list[int]]:
    return offsets_of(spark.read.format(source["format"]).options(**source["options"]).load())


def offsets_of(frame: DataFrame) -> list[list[int]]:
    """Return partition, rows, distinct offsets, least and greatest offset, by partition."""
    data_frame = frame.groupBy("partition").agg(
        f.count("*"), f.countDistinct("offset"), f.min("offset"), f.max("offset")
    )
    return sorted(list(row) for row in data_frame.collect())


def export(spark: SparkSession, source: dict[str, Any]) -> int:
    exported = export_delta(spark, source["table"], source["options"], source=source["format"])
    return exported.rows


def stream(spark: SparkSession, source: dict[str, Any]) -> list[list[int]]:
    """Stream what is there into Parquet files; return their rows as `offsets_of` does."""
    frame = spark.readStream.format(source["format"]).options(**source["options"])
    query = (
        frame.option("startingOffsets", "earliest")
        .load()
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("path", f"{source['table']}-stream")
        .option("checkpointLocation", f"{source['table']}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(LIMIT_S)
    return offsets_of(spark.read.parquet(f"{source['table']}-stream"))


def sink(spark: SparkSession, source: dict[str, Any]) -> None:
    """Write the numbers below `rows` to a topic."""
    write(spark.range(0, source["rows"], 1, source["tasks"]), source["options"])


def write(numbers: DataFrame, options: dict[str, str]) -> None:
    # To write, Spark looks for a source of Python in the active session of the thread only.
    spark = numbers.sparkSession
    session_class = SparkSession._get_j_spark_session_class(spark._jvm)
    session_class.setActiveSession(spark._jsparkSession)
    values = numbers.selectExpr("cast(id as string) value")
    values.write.format("spindle").mode("append").options(**options).save()


def speculated(
    spark: SparkSession, wakes: str, rows: int, options: dict[str, str], folder: str
) -> bool:
    """Write numbers to a topic; Spark starts a copy of the first task, which waits in the middle.

    Args:
        wakes: The first attempt waits until its copy has `started`, or has `ended` its rows.
        folder: Where the attempts tell each other how far they are.

    Returns:
        Whether the first attempt was still running when its copy ran.
    """
    marks = Path(folder)
    marks.mkdir()

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        is_first = context.partitionId() == 0 and context.attemptNumber() == 0
        is_copy = context.partitionId() == 0 and not is_first
        if is_copy:
            (marks / "started").touch()
        for number, batch in enumerate(batches):
            if is_first and number == 2:
                if wait_for(marks / "started"):
                    (marks / "seen").touch()
                wait_for(marks / wakes)
            yield batch
        if is_copy:
            (marks / "ended").touch()

    def wait_for(mark: Path) -> bool:
        deadline = time.monotonic() + COPY_LIMIT_S
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return mark.exists()

    write(spark.range(0, rows, 1, SPECULATIVE_TASKS).mapInArrow(slowly, "id bigint"), options)
    return (marks / "seen").exists()


JOBS = {"read": read, "export": export, "stream": stream, "sink": sink}


def killed(spark: SparkSession, job: Callable[[], Any]) -> dict[str, Any]:
    """Run a job; kill an executor, and a Python worker of another one, in the middle of it."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job)
        done, total = wait_for_tasks(spark, running)
        executors = executors_of(spark.sparkContext.applicationId)
        victim, *others = executors
        workers = [worker for executor in others for worker in python_workers(executor)]
        for process in (victim, *workers[:1]):
            process.send_signal(signal.SIGKILL)
        return {
            "tasks_done_at_kill": done,
            "tasks_total": total,
            "killed": 1 + len(workers[:1]),
            "result": running.result(LIMIT_S),
        }


def wait_for_tasks(spark: SparkSession, running: Future[Any]) -> tuple[int, int]:
    """Wait until a stage of several tasks has completed some; return completed and all tasks."""
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and not running.done():
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None or info.numTasks <= 2 * TASKS_BEFORE_KILL:
                continue
            if info.numCompletedTasks >= TASKS_BEFORE_KILL:
                return info.numCompletedTasks, info.numTasks
        time.sleep(0.01)
    early = running.result(0)
    raise RuntimeError(f"the job was never in the middle; it returned {early}")


def executors_of(application: str) -> list[psutil.Process]:
    executors = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if application in words and any("CoarseGrainedExecutorBackend" in word for word in words):
            executors.append(process)
    return executors


def python_workers(executor: psutil.Process) -> list[psutil.Process]:
    """Return the forked workers below the Python daemons of an executor."""
    try:
        return [worker for daemon in executor.children() for worker in daemon.children()]
    except psutil.NoSuchProcess:
        return []


def remove_work_folder(application: str) -> None:
    """Remove what the workers of `local-cluster` wrote into the installed PySpark."""
    work = Path(pyspark.__file__).parent / "work"
    shutil.rmtree(work / application, ignore_errors=True)
    if work.is_dir() and not os.listdir(work):
        work.rmdir()


if __name__ == "__main__":
    main()
