"""A program that runs in the environment of peers.spark_venv and reads streams from two sources.

It reads a JSON plan from standard input, plays one scene after the other with Spark's `kafka`
source and with ours, and prints one JSON object as its last line. It is not a test, because Spark
4.2 must not share a process with the project's own PySpark.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spindle.client.admin.groups import committed_offsets
from spindle.client.admin.topics import NewTopic, create_partitions, create_topic, delete_topics
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.blocking.settings import client_settings
from spindle.common.ids import TopicPartition
from spindle.pipeline.spark.session import get_spark
from spindle.protocol.records.builder import SimpleRecord

TIME_MS = 1_700_000_000_000
Batches = list[list[list[Any]]]
SOURCES = ("kafka", "spindle", "spindle-segments")


class Stage:
    """The cluster and the session of all scenes."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.client = WireClient(client_settings({"bootstrap.servers": bootstrap}))

    def topic(self, name: str, partitions: int) -> None:
        create_topic(self.client, NewTopic(name, partitions, 1))
        self.client.wait_for_topic(name)

    def send(self, name: str, partition: int, first: int, count: int) -> None:
        producer = BlockingProducer(self.client)
        for base in range(first, first + count, 20):
            numbers = range(base, min(base + 20, first + count))
            producer.send(
                TopicPartition(name, partition),
                [
                    SimpleRecord(b"%d" % n, b"value %d" % n, TIME_MS + n, (("h", b"%d" % n),))
                    for n in numbers
                ],
            )

    def frame(self, source: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format(source).option("includeHeaders", "true")
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def run(self, source: str, checkpoint: str, **options: str) -> Batches:
        """Run a stream to the ends of its logs; return the rows of each batch that has any."""
        batches: Batches = []

        def keep(rows: DataFrame, _: int) -> None:
            kept = rows.selectExpr(
                "topic", "partition", "offset", "cast(value as string)", "cast(timestamp as long)",
                "timestampType", "cast(headers[0].value as string)",
            ).collect()  # fmt: skip
            if kept:
                batches.append(sorted(list(row) for row in kept))

        output = self.frame(source, **options).writeStream.foreachBatch(keep)
        output = output.option("checkpointLocation", str(self.folder / checkpoint))
        query = output.trigger(availableNow=True).start()
        query.awaitTermination()
        return batches


def same_batches(stage: Stage) -> dict[str, Any]:
    """Read with limits, add a partition and a topic of the pattern, and read on."""
    stage.topic("same", 3)
    for partition, count in enumerate((300, 120, 7)):
        stage.send("same", partition, 0, count)
    options = {
        "subscribePattern": "ame",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "200",
    }
    answer: dict[str, Any] = {}
    for source in SOURCES:
        answer[source] = stage.run(source, f"same-{source}", **options)
    create_partitions(stage.client, {"same": 4}, {})
    stage.client.forget_metadata()
    stage.client.wait_for_topic("same")
    stage.topic("same-more", 1)
    stage.send("same", 3, 0, 30)
    stage.send("same", 0, 300, 30)
    stage.send("same-more", 0, 0, 30)
    for source in SOURCES:
        answer[source] += stage.run(source, f"same-{source}", **options)
    return answer


def one_checkpoint(stage: Stage) -> dict[str, Any]:
    """Let both sources take turns on one checkpoint."""
    stage.topic("turns", 2)
    counts = []
    rows: list[Any] = []
    for turn, source in enumerate(("kafka", "spindle", "spindle", "kafka", "spindle")):
        stage.send("turns", 0, 50 * turn, 50)
        stage.send("turns", 1, 10 * turn, 10)
        options = {"subscribe": "turns", "startingOffsets": "earliest"}
        read = [row for batch in stage.run(source, "turns", **options) for row in batch]
        counts.append(len(read))
        rows += read
    return {"counts": counts, "different": len({(row[1], row[2]) for row in rows})}


def repeated_batches(stage: Stage) -> dict[str, Any]:
    """Take back the commit of batches, as if the driver had died before it; compare the rows."""
    stage.topic("again", 2)
    stage.send("again", 0, 0, 200)
    stage.send("again", 1, 0, 50)
    options = {
        "subscribe": "again", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100",
    }  # fmt: skip
    first = stage.run("spindle", "again", **options)
    repeated = []
    for batch in (2, 1, 0):
        commits = stage.folder / "again" / "commits"
        for name in (f"{batch}", f".{batch}.crc"):
            (commits / name).unlink(missing_ok=True)
        offsets = stage.folder / "again" / "offsets"
        for later in range(batch + 1, 9):
            for folder, name in ((offsets, f"{later}"), (offsets, f".{later}.crc"),
                                 (commits, f"{later}"), (commits, f".{later}.crc")):  # fmt: skip
                (folder / name).unlink(missing_ok=True)
        stage.send("again", 0, 200 + 10 * batch, 10)
        repeated.append(stage.run("spindle", "again", **options)[0])
    return {"first": first[:3], "repeated": repeated[::-1]}


def created_again(stage: Stage) -> dict[str, Any]:
    """Delete a topic and create it again with more records than the first one had."""
    stage.topic("reborn", 1)
    stage.send("reborn", 0, 0, 40)
    options = {
        "subscribe": "reborn", "startingOffsets": "earliest", "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "100",
    }  # fmt: skip
    first = stage.run("spindle", "reborn", **options)
    delete_topics(stage.client, ["reborn"])
    stage.client.forget_metadata()
    stage.client.retrying(lambda: stage.topic("reborn", 1))
    stage.send("reborn", 0, 1000, 60)
    try:
        stage.run("spindle", "reborn", **options)
        refusal = "no error"
    except StreamingQueryException as error:
        refusal = str(error)
    left = stage.run("spindle", "reborn", failOnDataLoss="false", **options)
    return {
        "first": sum(map(len, first)),
        "refusal": refusal,
        "left": [row[3] for batch in left for row in batch],
    }


def lag_of_a_group(stage: Stage) -> dict[str, Any]:
    """Commit the offsets of finished batches to a group."""
    stage.topic("watched", 2)
    stage.send("watched", 0, 0, 70)
    stage.send("watched", 1, 0, 30)
    stage.run(
        "spindle", "watched", subscribe="watched", startingOffsets="earliest",
        maxOffsetsPerTrigger="50", commitOffsetsTo="lag-of-watched",
    )  # fmt: skip
    offsets = committed_offsets(stage.client, "lag-of-watched")
    return {str(partition): offset.offset for partition, offset in offsets.items()}


SCENES: tuple[Callable[[Stage], dict[str, Any]], ...] = (
    same_batches,
    one_checkpoint,
    repeated_batches,
    created_again,
    lag_of_a_group,
)


def main() -> None:
    plan = json.load(sys.stdin)
    spark = get_spark(
        "streams", "local[2]",
        {"spark.jars": os.environ["SPARK_JARS"], "spark.driver.memory": "1g"},
    )  # fmt: skip
    stage = Stage(spark, plan["bootstrap"], Path(plan["folder"]))
    answer = {scene.__name__: scene(stage) for scene in SCENES}
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
