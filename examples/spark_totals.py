"""A PySpark batch job over the orders of orders.py: through the broker, and from the disks.

    python examples/spark_totals.py BOOTSTRAP 'LOG_DIRS'

Needs spindle-log[spark]. LOG_DIRS is a pattern such as /tmp/spindle-abc/disk-*; the job must see
the directories of the node, so it runs on the same machine.
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json
from pyspark.sql.functions import sum as total

from spindle.pipeline import get_spark

TOPIC = "orders"
ORDER = "customer string, coins long"


def totals(records: DataFrame) -> list[tuple[str, int]]:
    """Return the coins of each customer, in the order of their names."""
    orders = records.select(from_json(col("value").cast("string"), ORDER).alias("order"))
    rows = (
        orders.groupBy("order.customer")
        .agg(total("order.coins").alias("coins"))
        .orderBy("customer")
        .collect()
    )
    return [(row.customer, row.coins) for row in rows]


def main() -> None:
    """Read the topic through the broker and from the disks, and compare."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python examples/spark_totals.py BOOTSTRAP 'LOG_DIRS'")
    bootstrap, log_dirs = sys.argv[1:]
    spark = get_spark()
    through_the_broker = (
        spark.read.format("spindle")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .load()
    )
    # The broker is asked only for offsets here; the records come from the files.
    from_the_disks = (
        spark.read.format("spindle-segments")
        .option("logDirs", log_dirs)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .load()
    )
    result = totals(through_the_broker)
    assert result == totals(from_the_disks), "broker and disks disagree"
    for customer, coins in result:
        print(f"{customer:<6} {coins:>10} coins")


if __name__ == "__main__":
    main()
