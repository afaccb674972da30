"""A program that reads a secured cluster with every source, and prints what it found as JSON.

It is not a test, because the session's event log needs a session of its own. It reads the options
of the sources from standard input, as JSON, and writes below the folder of its only argument.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spindle.pipeline.export import export_delta
from spindle.pipeline.spark.session import get_spark


def main() -> None:
    options = json.load(sys.stdin)
    folder = Path(sys.argv[1])
    (folder / "events").mkdir()
    spark = get_spark(
        "secured",
        "local[2]",
        {
            "spark.driver.memory": "1g",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (folder / "events").as_uri(),
        },
    )
    answer: dict[str, Any] = {
        source: values(spark.read.format(source).options(**options).load())
        for source in ("spindle", "spindle-segments")
    }
    answer["stream"] = streamed(spark, options, folder)
    answer["exported"] = export_delta(
        spark, str(folder / "t"), options=options, source="spindle"
    ).rows
    # The plan of this command has the options of the source.
    spark.read.format("spindle").options(**options).load().createOrReplaceTempView("v")
    answer["refused"] = refusal(spark, options)
    spark.stop()
    print(json.dumps(answer))


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def streamed(spark: SparkSession, options: dict[str, str], folder: Path) -> list[str]:
    received: list[str] = []
    frame = spark.readStream.format("spindle").options(**options).load()
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: received.extend(values(batch)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(received)


def refusal(spark: SparkSession, options: dict[str, str]) -> str:
    """Return the error of a read with another user's name."""
    other = options["kafka.sasl.jaas.config"].replace("alice", "nobody")
    try:
        frame = spark.read.format("spindle").options(**options)
        values(frame.option("kafka.sasl.jaas.config", other).load())
    except Exception as error:  # noqa: BLE001
        return str(error)
    return ""


if __name__ == "__main__":
    main()
