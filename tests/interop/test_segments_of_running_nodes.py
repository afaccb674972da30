"""Reads from the log directories of running nodes of Kafka and Spindle, which move and compact."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from peers.clients import create, settings
from peers.node import KafkaNode, Node
from waiting import wait_until

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.pipeline.brokers.segments_fallback import rows_through_brokers
from spindle.pipeline.segments.batch_reader import read_batch_ranges
from spindle.pipeline.segments.broker_state import live_cluster
from spindle.pipeline.segments.failover import ReadSettings, read_settings
from spindle.pipeline.segments.options import (
    SegmentOptions,
    parse_batch_options,
    parse_segment_options,
)
from spindle.pipeline.segments.partitions import readable_partitions
from spindle.pipeline.segments.ranges import SegmentRange, plan_tasks, resolve_ranges
from spindle.pipeline.segments.reader import read_ranges
from spindle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)

pytestmark = pytest.mark.timeout(240)

LIMIT_S = 60.0
RECORDS = 8000
OVERRIDES = {
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture(scope="module", params=["candidate", "kafka"])
def node(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("segments")
    node_class = candidate_class if request.param == "candidate" else KafkaNode
    started = node_class(folder / "node", overrides=dict(OVERRIDES))
    try:
        with started:
            yield started
    finally:
        started.remove()


def given(node: Node, topic: str, **extra: str) -> dict[str, str]:
    directories = ",".join(map(str, node.log_dirs))
    brokers = {"kafka.bootstrap.servers": node.bootstrap}
    return {"logDirs": directories, "subscribe": topic, **brokers, **extra}


def planned(options: SegmentOptions) -> list[tuple[SegmentRange, ...]]:
    partitions = readable_partitions(options, live_cluster(options))
    return plan_tasks(options, resolve_ranges(options, partitions, options.row_bounds))


def batches(options: SegmentOptions, tasks: list[tuple[SegmentRange, ...]]) -> Iterator[Any]:
    settings_of_tasks = read_settings(options, rows_through_brokers(options))
    for task in tasks:
        yield from read_ranges(task, settings_of_tasks)


def offsets(found: Iterator[Any]) -> list[int]:
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def fill(node: Node, topic: str, records: int = RECORDS) -> None:
    producer = Producer(settings(node, linger_ms=5, batch_size=16384))
    for number in range(records):
        producer.produce(topic, b"%06d" % number + b"." * 500, b"key-%d" % (number % 50), 0)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0


def place(node: Node, topic: str) -> Path | None:
    log_dirs = [path for path in node.log_dirs if (path / f"{topic}-0").exists()]
    return log_dirs[0] if len(log_dirs) == 1 else None


def move(node: Node, topic: str) -> None:
    """Move partition 0 to another directory, and wait until the old files are deleted."""
    here = place(node, topic)
    target = next(path for path in node.log_dirs if path != here)
    kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topics = [kind.AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[kind(path=str(target), topics=topics)])
    with WireClient(client_settings({"bootstrap.servers": node.bootstrap})) as client:
        answer = client.ask(request, AlterReplicaLogDirsResponse)
    assert answer.results[0].partitions[0].error_code == 0
    wait_until(
        lambda: [path for path in node.log_dirs if list(path.glob(f"{topic}-0*"))] == [target]
    )


def test_a_partition_that_moves_between_directories_is_read_once(node: Node) -> None:
    create(node, "moving")
    fill(node, "moving")
    options = parse_segment_options(given(node, "moving", taskBytes="1000000"))
    tasks = planned(options)
    assert len(tasks) > 2
    read_batches = batches(options, tasks)
    read = next(read_batches).column("offset").to_pylist()
    move(node, "moving")
    assert read + offsets(read_batches) == list(range(RECORDS))


def test_a_partition_whose_directory_is_elsewhere_is_read_through_the_broker(node: Node) -> None:
    create(node, "remote")
    fill(node, "remote", 2000)
    options = parse_segment_options(given(node, "remote"))
    tasks = planned(options)
    for directory in node.log_dirs:
        (directory / "meta.properties").rename(directory / "hidden")
    try:
        # The tasks are on a machine that has other log directories at these paths, or none.
        settings_here = settings_elsewhere(options)
        read = offsets(batch for task in tasks for batch in read_ranges(task, settings_here))
    finally:
        for directory in node.log_dirs:
            (directory / "hidden").rename(directory / "meta.properties")
    assert read == list(range(2000))


def settings_elsewhere(options: SegmentOptions) -> ReadSettings:
    way = rows_through_brokers(options)
    return replace(ReadSettings(options.columns, ()), through_brokers=way)


def test_a_topic_that_is_compacted_while_it_is_read_keeps_its_last_records(node: Node) -> None:
    create(node, "compacted", config={"min.cleanable.dirty.ratio": "0.01"})
    fill(node, "compacted")
    options = parse_segment_options(given(node, "compacted", taskBytes="700000"))
    tasks = planned(options)
    read_batches = batches(options, tasks)
    read = next(read_batches).column("offset").to_pylist()
    before = log_bytes(node, "compacted")
    compact(node, "compacted")
    wait_until(lambda: log_bytes(node, "compacted") < before / 2)
    read += offsets(read_batches)
    assert read == sorted(set(read)), "no record twice"
    left = consumed(node, "compacted", "read_uncommitted")
    assert set(left) - set(read) == set(), "no record that is left is missing"
    assert counted(node, "compacted") == len(consumed(node, "compacted", "read_uncommitted"))


def log_bytes(node: Node, topic: str) -> int:
    paths = [path for root in node.log_dirs for path in root.glob(f"{topic}-0/*.log")]
    return sum(path.stat().st_size for path in paths if path.exists())


def compact(node: Node, topic: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient(settings(node))
    for done in client.incremental_alter_configs([resource]).values():
        done.result(LIMIT_S)


def test_batches_count_what_a_consumer_gets(node: Node) -> None:
    create(node, "transactions")
    producer = Producer(settings(node, transactional_id="counting", linger_ms=1))
    producer.init_transactions(LIMIT_S)
    for number in range(12):
        producer.begin_transaction()
        for index in range(number + 1):
            producer.produce("transactions", b"%d" % index, partition=0)
        if number % 3:
            producer.commit_transaction(LIMIT_S)
        else:
            producer.flush(LIMIT_S)
            producer.abort_transaction(LIMIT_S)
    for level in ("read_committed", "read_uncommitted"):
        expected = consumed(node, "transactions", level)
        assert counted(node, "transactions", isolationLevel=level) == len(expected)
    assert len(consumed(node, "transactions", "read_committed")) == 78 - (1 + 4 + 7 + 10)


def counted(node: Node, topic: str, **extra: str) -> int:
    options = parse_batch_options(given(node, topic, columns="rowCount", **extra))
    rows = [
        batch.column("rowCount").to_pylist()
        for task in planned(options)
        for batch in read_batch_ranges(task, read_settings(options))
    ]
    return sum(sum(column) for column in rows)


def consumed(node: Node, topic: str, level: str) -> list[int]:
    config = settings(node, group_id="reader", isolation_level=level, enable_partition_eof=True)
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumed: list[int] = []
    while True:
        message = consumer.poll(LIMIT_S)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return consumed
        offset = message.offset()
        assert offset is not None
        consumed.append(offset)


def test_directories_of_a_node_that_is_gone_are_read_where_they_were_copied(
    node: Node, tmp_path: Path
) -> None:
    create(node, "kept")
    fill(node, "kept", 3000)
    node.kill()
    try:
        for directory in node.log_dirs:
            shutil.copytree(directory, tmp_path / directory.name)
    finally:
        node.start()
    options = parse_segment_options({"logDirs": f"{tmp_path}/d*", "subscribe": "kept"})
    assert offsets(batches(options, planned(options))) == list(range(3000))
