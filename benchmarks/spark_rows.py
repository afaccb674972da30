"""Measure the rows per second of several sources, in turn; runs in the environment of spark_venv.

Reads a JSON plan from standard input and prints one JSON object as its last line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from spindle.pipeline.session import get_spark


def main() -> None:
    """Read a plan from standard input, run its jobs and print their times as JSON."""
    plan = json.load(sys.stdin)
    spark = get_spark("bench", "local[2]", {"spark.jars": os.environ["SPARK_JARS"]})
    jobs: dict[str, Callable[[DataFrame], object]] = {
        "all columns": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "offset, timestamp": lambda frame: (
            frame.select("offset", "timestamp").write.format("noop").mode("overwrite").save()
        ),
        "count()": lambda frame: frame.count(),
    }
    times: dict[str, dict[str, list[float]]] = {job: {} for job in jobs}
    for job, run in jobs.items():
        for number in range(plan["warm_ups"] + plan["runs"]):
            for label, source in plan["sources"].items():
                start = time.perf_counter()
                run(read(spark, source))
                if number >= plan["warm_ups"]:
                    rate = plan["records"] / (time.perf_counter() - start)
                    times[job].setdefault(label, []).append(rate)
    spark.stop()
    print(json.dumps(times))


def read(spark: SparkSession, source: dict[str, object]) -> DataFrame:
    """Return a DataFrame of a source of the plan."""
    return spark.read.format(str(source["format"])).options(**source["options"]).load()  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
