"""A topic of JSON orders as a Delta table that keeps up with it, every order once.

    python examples/json_to_delta.py BOOTSTRAP TABLE

Needs spindle-log[spark]. It goes on until Ctrl-C or SIGTERM. Kill it at any point and start it
again: the table itself says which offsets it holds, so there is no checkpoint to lose, and no order
is missing or there twice. Records that are no such JSON go into the table TABLE_dead_letters.
"""

import sys

from pyspark.sql import functions

from spindle.pipeline import get_spark
from spindle.pipeline.export import FollowSettings, export_delta, read_delta


def main() -> None:
    """Follow the topic until Ctrl-C, then print the coins of each customer."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python examples/json_to_delta.py BOOTSTRAP TABLE")
    bootstrap, table = sys.argv[1:]
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "orders",
        "valueFormat": "json",
        "valueSchema": "customer STRING, coins BIGINT",  # or infer
        "columns": "customer, coins, timestamp, partition, offset",
        "badRecords": "dead_letters",
    }
    spark = get_spark()
    # A commit follows five seconds after the first record that waits, or earlier with much to do.
    export_delta(spark, table, options, follow=FollowSettings(max_delay_ms=5000))
    totals = read_delta(spark, table).groupBy("customer").agg(functions.sum("coins").alias("coins"))
    for row in totals.orderBy("customer").collect():
        print(f"{row.customer:10}{row.coins:7} coins")
    spark.stop()


if __name__ == "__main__":
    main()
