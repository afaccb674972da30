"""A program that runs in the environment of peers.spark_venv and reads rows from several sources.

It reads a JSON plan from standard input and prints one JSON object as its last line. It is not a
test, because Spark 4.2 must not share a process with the project's own PySpark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spindle.pipeline.spark.session import get_spark

Rows = list[list[object]]
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def main() -> None:
    plan = json.load(sys.stdin)
    spark = get_spark("interop", "local[2]", {"spark.jars": os.environ["SPARK_JARS"]})
    answer = {
        "batch": {name: compare(spark, plan, options) for name, options in plan["reads"].items()},
        "written": write(spark, plan),
        "stream": stream(spark, plan),
    }
    spark.stop()
    print(json.dumps(answer))


def read(
    spark: SparkSession, source: str, plan: dict[str, Any], options: dict[str, Any]
) -> DataFrame:
    reader = spark.read.format(source).option("includeHeaders", "true")
    reader = reader.option("kafka.bootstrap.servers", plan["bootstrap"])
    if source == "spindle-segments":
        reader = reader.option("logDirs", ",".join(plan["log_dirs"]))
    return reader.options(**options).load()


def rows(frame: DataFrame) -> Rows:
    """Return all rows as plain data, ordered by partition and offset."""
    collected = [
        [
            None if row.key is None else bytes(row.key).hex(),
            None if row.value is None else bytes(row.value).hex(),
            row.topic,
            row.partition,
            row.offset,
            row.timestamp.isoformat(),
            row.timestampType,
            None
            if row.headers is None
            else [[one.key, None if one.value is None else bytes(one.value).hex()]
                  for one in row.headers],
        ]
        for row in frame.select(*COLUMNS).collect()
    ]  # fmt: skip
    return sorted(collected, key=lambda row: (str(row[2]), row[3], row[4]))


def compare(
    spark: SparkSession, plan: dict[str, Any], options: dict[str, Any]
) -> dict[str, object]:
    """Return rows of each source, their schema, and the first difference to the built-in source."""
    frames = {
        source: read(spark, source, plan, options)
        for source in ("kafka", "spindle", "spindle-segments")
    }
    expected = rows(frames["kafka"])
    answer: dict[str, object] = {"kafka": len(expected)}
    for source in ("spindle", "spindle-segments"):
        actual = rows(frames[source])
        differences = [pair for pair in zip(expected, actual, strict=False) if pair[0] != pair[1]]
        answer[source] = len(actual)
        answer[f"{source} differs"] = differences[:1]
        answer[f"{source} schema"] = frames[source].schema.simpleString()
    answer["kafka schema"] = frames["kafka"].schema.simpleString()
    return answer


def write(spark: SparkSession, plan: dict[str, Any]) -> dict[str, object]:
    """Write 1,000 rows with the built-in sink, and read them with the sources."""
    frame = spark.sql(
        "select cast(concat('key-', id % 10) as binary) key,"
        " cast(if(id % 7 = 0, null, concat('value-', id)) as binary) value,"
        " array(named_struct('key', 'number', 'value', cast(cast(id as string) as binary))) headers"
        " from range(1000)"
    )
    target = {"kafka.bootstrap.servers": plan["bootstrap"], "topic": plan["sink"]}
    frame.write.format("kafka").option("includeHeaders", "true").options(**target).save()
    time.sleep(plan["checkpoint_delay_s"])
    return compare(spark, plan, {"subscribe": plan["sink"]})


def stream(spark: SparkSession, plan: dict[str, Any]) -> list[int]:
    """Run the built-in streaming source twice on one checkpoint; return the rows of each run."""
    folder = Path(plan["folder"])
    counts = []
    for _ in range(2):
        frame = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", plan["bootstrap"])
            .option("subscribe", plan["sink"])
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            frame.selectExpr("CAST(value AS STRING) AS value", "offset")
            .writeStream.format("parquet")
            .option("path", str(folder / "stream"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        counts.append(spark.read.parquet(str(folder / "stream")).count())
        frame = spark.range(10).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
        frame.write.format("kafka").option("kafka.bootstrap.servers", plan["bootstrap"]).option(
            "topic", plan["sink"]
        ).save()
    return counts


if __name__ == "__main__":
    main()
