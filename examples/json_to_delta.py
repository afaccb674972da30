"""A topic of JSON orders as a Delta table that keeps up with it, every order once.

    python examples/json_to_delta.py BOOTSTRAP TABLE

Needs spindle-log[spark]. It goes on until Ctrl-C. Kill it at any point and start it again: the
table itself says which offsets it holds, so there is no checkpoint to lose, and no order is missing
or there twice. Records that are no such JSON go into the table TABLE_dead_letters.
"""

import signal
import sys
import threading

from pyspark.sql import functions

from spindle.pipeline import get_spark
from spindle.pipeline.export import ExportJob, FollowSettings, follow_export, read_delta

TOPIC = "orders"
ORDER = "customer STRING, coins BIGINT"


def main() -> None:
    """Follow the topic until Ctrl-C, then print the coins of each customer."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python examples/json_to_delta.py BOOTSTRAP TABLE")
    bootstrap, table = sys.argv[1:]
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": TOPIC,
        "valueFormat": "json",
        "valueSchema": ORDER,  # or the json() of a StructType, or infer
        "columns": "customer, coins, timestamp, partition, offset",
        "badRecords": "dead_letters",
    }
    job = ExportJob("delta", table, options, {"source": "spindle"})
    # A commit follows five seconds after the first record that waits, or earlier with much to do.
    settings = FollowSettings(max_delay_ms=5000)
    stopped = threading.Event()
    spark = get_spark()
    # Behind the start of the session, which has a reaction of its own.
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    for result in follow_export(spark, job, settings, stopped):
        print(f"version {result.version}: {result.rows} orders", flush=True)
    totals = read_delta(spark, table).groupBy("customer").agg(functions.sum("coins").alias("coins"))
    for row in totals.orderBy("customer").collect():
        print(f"{row.customer:10}{row.coins:7} coins")
    spark.stop()


if __name__ == "__main__":
    main()
