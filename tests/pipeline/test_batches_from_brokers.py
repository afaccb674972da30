"""Rows of `spindle-batches` that come from a broker, because no log directory is at hand."""

from collections.abc import Iterator
from typing import Any

import pytest
from wire_broker import WireBroker

from spindle.client.blocking.settings import client_settings
from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.segments_fallback import BatchesThroughBrokers
from spindle.pipeline.segments.discovery import LogDirectoryIdentity
from spindle.pipeline.segments.failover import ReadSettings
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.sources.batches import BrokerBatchesPlan
from spindle.protocol.records.builder import SimpleRecord, build_batch

TOPIC = "a"


@pytest.fixture
def broker() -> Iterator[WireBroker]:
    with WireBroker() as running:
        for partition in (0, 1):
            log = running.log(TOPIC, partition)
            for base in range(0, 400, 10):
                records = [SimpleRecord(b"k", b"v", 1000 + base + n) for n in range(10)]
                log.append(build_batch(records, base, codec=partition))
        yield running


def options(broker: WireBroker, **extra: str) -> dict[str, str]:
    defaults = {
        "kafka.bootstrap.servers": broker.address,
        "kafka.fetch.max.wait.ms": "1",
        "fetchMaxBytes": "1024",
        "subscribe": TOPIC,
        "columns": "partition,baseOffset,recordCount,rowCount,codec,position,crcOk",
    }
    return defaults | extra


def rows(broker: WireBroker, **extra: str) -> list[dict[str, Any]]:
    plan = BrokerBatchesPlan(options(broker, **extra))
    return [
        row
        for task in plan.partitions()
        for batch in plan.read(task.ranges)
        for row in batch.to_pylist()
    ]


def test_every_batch_is_a_row_once(broker: WireBroker) -> None:
    read_rows = rows(broker)
    assert [(row["partition"], row["baseOffset"]) for row in read_rows] == [
        (partition, base) for partition in (0, 1) for base in range(0, 400, 10)
    ]
    assert {row["codec"] for row in read_rows} == {"none", "gzip"}
    assert read_rows[0]["position"] is None
    assert read_rows[0]["crcOk"] is None
    assert sum(row["rowCount"] for row in read_rows) == 800


def test_counts_end_where_the_offsets_and_times_of_the_options_do(broker: WireBroker) -> None:
    read_rows = rows(
        broker,
        startingOffsets='{"a":{"0":15,"1":399}}',
        endingOffsets='{"a":{"0":42,"1":400}}',
        checkCrcs="true",
    )
    assert [(row["baseOffset"], row["rowCount"]) for row in read_rows] == [
        (10, 5),
        (20, 10),
        (30, 10),
        (40, 2),
        (390, 1),
    ]
    assert all(row["crcOk"] and row["recordCount"] == 10 for row in read_rows)
    assert sum(row["rowCount"] for row in rows(broker, minTimestamp="1395")) == 10


def test_a_range_of_a_directory_that_is_not_here_comes_from_the_broker(broker: WireBroker) -> None:
    way = BatchesThroughBrokers(client_settings({"bootstrap.servers": broker.address}))
    home = LogDirectoryIdentity(None, 1, None)
    topic_id = broker.topic_ids[TOPIC]
    piece = SegmentRange(TopicPartition(TOPIC, 0), topic_id, home, "/none/a-0", 20, 50)
    read = [row for batch in way(piece, ReadSettings(("baseOffset", "rowCount"), ()))
             for row in batch.to_pylist()]  # fmt: skip
    assert read == [{"baseOffset": base, "rowCount": 10} for base in (20, 30, 40)]
