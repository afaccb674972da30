"""A program that copies a topic into Parquet files as a stream, until it is killed or at the end.

It runs in the environment of peers.spark_venv. With `"finish": true` in its plan it stops at the
end of the topic and prints what the files hold as one JSON object.
"""

from __future__ import annotations

import json
import sys

from spindle.pipeline.spark.session import get_spark


def main() -> None:
    plan = json.load(sys.stdin)
    spark = get_spark("copy", "local[2]", {"spark.driver.memory": "1g"})
    rows = (
        spark.readStream.format("spindle")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("subscribe", plan["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", plan["max_offsets"])
        .option("minPartitions", 3)
        .load()
    )
    output = rows.select("partition", "offset", "value").writeStream.format("parquet")
    output = output.option("path", f"{plan['folder']}/rows")
    output = output.option("checkpointLocation", f"{plan['folder']}/checkpoint")
    if not plan["finish"]:
        output.trigger(processingTime="0 seconds").start().awaitTermination()
        return
    output.trigger(availableNow=True).start().awaitTermination()
    copied = spark.read.parquet(f"{plan['folder']}/rows")
    ends = copied.groupBy("partition").agg({"offset": "max"}).collect()
    answer = {
        "rows": copied.count(),
        "different": copied.select("partition", "offset").distinct().count(),
        "values": copied.select("value").distinct().count(),
        "last": {str(row[0]): row[1] for row in ends},
    }
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
