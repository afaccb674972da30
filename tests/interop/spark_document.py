"""A program that runs the Python blocks of a document in one session of Spark 4.2, in their order.

It reads a JSON plan from standard input: the document, texts to replace in it, and topics. Before
each block it sends more orders, as in a job whose input goes on. It prints the orders as JSON: all
that were sent, and those that the job of the document has copied.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spindle.pipeline import get_spark

ORDERS_AT_ONCE = 60


def send(spark: SparkSession, bootstrap: str, block: int) -> None:
    """Send orders with the numbers of this block and 1 to 60 coins."""
    first = block * ORDERS_AT_ONCE
    rows = spark.range(first, first + ORDERS_AT_ONCE).selectExpr(
        "cast(id as string) key",
        f"to_json(struct(id as number, id - {first} + 1 as coins)) value",
    )
    target = {"kafka.bootstrap.servers": bootstrap, "topic": "orders"}
    rows.write.format("kafka").options(**target).save()


def numbers(spark: SparkSession, bootstrap: str, topic: str) -> list[int]:
    """Return the numbers of the orders in a topic, as a committed reader sees them."""
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
    }
    frame = spark.read.format("kafka").options(**source).load()
    return sorted(int(row.key) for row in frame.selectExpr("cast(key as string) key").collect())


def main() -> None:
    plan = json.load(sys.stdin)
    text = Path(plan["document"]).read_text(encoding="utf-8")
    for old, new in plan["replacements"].items():
        text = text.replace(old, new)
    spark = get_spark("document", "local[2]", {"spark.jars": os.environ["SPARK_JARS"]})
    names: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
        send(spark, plan["bootstrap"], number)
        exec(compile(block, f"block {number}", "exec"), names)
    answer = {topic: numbers(spark, plan["bootstrap"], topic) for topic in plan["topics"]}
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
