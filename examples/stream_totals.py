"""A PySpark streaming job over the orders of orders.py, with Spark's own Kafka source.

    python examples/stream_totals.py BOOTSTRAP TOPIC FOLDER

Needs spindle-log[spark], and Maven Central for the jar of the source, unless SPARK_JARS names jars
that are there. Each run takes the orders that are new since the run before, and FOLDER keeps the
totals of all runs.
"""

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.functions import sum as total

from spindle.pipeline import get_spark

ORDER = "customer string, coins long"


def session() -> SparkSession:
    """Return a session with Spark's Kafka source, in the version of PySpark."""
    jars = os.environ.get("SPARK_JARS")
    if jars:
        return get_spark(conf={"spark.jars": jars})
    source = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    return get_spark(conf={"spark.jars.packages": source})


def run(spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
    """Store the coins of each customer in the orders that are new, and return."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    orders = records.select(from_json(col("value").cast("string"), ORDER).alias("order"))

    def store(batch: DataFrame, number: int) -> None:
        sums = batch.groupBy("order.customer").agg(total("order.coins").alias("coins"))
        # A batch that is repeated after a crash replaces what it has stored before.
        sums.write.mode("overwrite").parquet(str(folder / "batches" / str(number)))

    query = (
        orders.writeStream.foreachBatch(store)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def totals(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Return the coins of each customer over all runs."""
    rows = (
        spark.read.parquet(str(folder / "batches" / "*"))
        .groupBy("customer")
        .agg(total("coins").alias("coins"))
        .collect()
    )
    return {row.customer: row.coins for row in rows}


def main() -> None:
    """Take the new orders and print the totals."""
    if len(sys.argv) != 4:
        raise SystemExit("usage: python examples/stream_totals.py BOOTSTRAP TOPIC FOLDER")
    bootstrap, topic, folder = sys.argv[1:]
    spark = session()
    run(spark, bootstrap, topic, Path(folder))
    for customer, coins in sorted(totals(spark, Path(folder)).items()):
        print(f"{customer:<6} {coins:>10} coins")


if __name__ == "__main__":
    main()
