"""The test of invoices.py: a broker dies, and the checker of histories compares the topics.

pytest examples/test_invoices.py
"""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import invoices
import orders
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from spindle.testing import Cluster
from spindle.testing import histories as h

COUNT = 3000
PARTITIONS = 3
Logs = dict[h.TopicPartition, dict[int, h.NumberedRecord]]
# Enough for a look at the committed positions, and fewer than all orders.
BEFORE_THE_KILL = 200


def records(bootstrap: str, topic: str, coins: str) -> Logs:
    """Read a topic to its end as a consumer with read_committed does."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    logs: Logs = {h.TopicPartition(topic, p): {} for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
            continue
        value = json.loads(message.value())
        # The orders of a customer have 1, 4, 7, ... coins (2, 5, 8, ...): number 0, 1, 2, ...
        record = h.NumberedRecord(value["customer"], (value[coins] - 1) // 3)
        logs[h.TopicPartition(topic, message.partition())][message.offset()] = record
    consumer.close()
    return logs


def test_there_is_one_invoice_for_each_order(
    kafka_cluster_factory: Callable[..., Cluster],
) -> None:
    cluster = kafka_cluster_factory(brokers=3)
    bootstrap = cluster.bootstrap_servers
    for topic in (invoices.ORDERS, invoices.INVOICES):
        cluster.create_topic(topic, partitions=PARTITIONS, configs={"min.insync.replicas": 2})
    orders.send_orders(bootstrap, COUNT)
    with ThreadPoolExecutor(1) as threads:
        application = threads.submit(invoices.write_invoices, bootstrap)
        wait_for_invoices(bootstrap, BEFORE_THE_KILL, application)
        leaders = {cluster.wait_for_leader(invoices.INVOICES, p) for p in range(PARTITIONS)}
        # A client of librdkafka 2.16 may wait for a dead coordinator of its group without end,
        # on every kind of cluster: https://github.com/confluentinc/librdkafka/issues/5511
        cluster.broker(min(leaders - {coordinator(bootstrap)})).kill()
        application.result()

    history = h.ClientHistory()
    sent = records(bootstrap, invoices.ORDERS, "coins")
    for log in sent.values():
        history.events += [h.RecordSent(record, invoices.ORDERS) for record in log.values()]
    history.logs = {**sent, **records(bootstrap, invoices.INVOICES, "invoiced")}
    history.copies = [h.Copy(invoices.GROUP, invoices.ORDERS, invoices.INVOICES)]
    findings = h.check(history)
    assert not findings.faults, findings.lines
    assert findings.copied == COUNT


def coordinator(bootstrap: str) -> int:
    """Return the broker that coordinates the group of the application."""
    groups = AdminClient({"bootstrap.servers": bootstrap})
    described = groups.describe_consumer_groups([invoices.GROUP])[invoices.GROUP]
    return int(described.result().coordinator.id)


def wait_for_invoices(bootstrap: str, count: int, application: Future[int]) -> None:
    """Return when so many invoices are committed, or the application has ended."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "watch",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([invoices.INVOICES])
    while count > 0 and not application.done():
        count -= len(consumer.consume(count, timeout=1))
    consumer.close()
