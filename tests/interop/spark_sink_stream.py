"""A program that runs in the environment of peers.spark_venv and writes a stream to a topic.

It ends when Spark has noted so many batches. The plan comes as JSON from standard input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from spindle.pipeline.spark.session import get_spark


def main() -> None:
    plan = json.load(sys.stdin)
    spark = get_spark(
        "sink",
        plan.get("master", "local[2,8]"),
        {"spark.driver.memory": "1g", "spark.task.maxFailures": "4", **plan.get("conf", {})},
    )
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", plan["rows_per_batch"])
        .option("numPartitions", 3)
        .load()
    )
    query = (
        rows.selectExpr("cast(value % 97 as string) key", "cast(value as string) value")
        .writeStream.format("spindle")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("topic", plan["topic"])
        .option("checkpointLocation", plan["checkpoint"])
        .start()
    )
    commits = Path(plan["checkpoint"]) / "commits" / str(plan["batches"] - 1)
    while query.isActive and not commits.is_file():
        time.sleep(0.05)
    failed = query.exception()
    if failed is not None:
        raise failed
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
