"""The measurements of transactions, on one node and on three."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient, NewTopic
from peers.clients import settings
from peers.committed_reader import wait_all_read
from peers.java_process import JavaProcess
from peers.node import Node

from benchmarks import native_client
from benchmarks.cluster_items import THREE_NODES
from benchmarks.items import LIMIT_S, MIB, SHARED_NODE, Item, Metric, Metrics, Sizes

PARTITIONS = 10
RECORDS_PER_TRANSACTION = 10_000
COPIED_AT_ONCE = 500
_names = itertools.count()


@contextmanager
def _topic(node: Node) -> Iterator[str]:
    """Create a topic of ten partitions and the default replication factor; delete it at the end."""
    name = f"transactions-{next(_names)}"
    client = AdminClient(settings(node))
    client.create_topics([NewTopic(name, PARTITIONS)], operation_timeout=30)[name].result(LIMIT_S)
    # The metadata of every broker has the topic a moment later.
    time.sleep(1)
    try:
        yield name
    finally:
        client.delete_topics([name])[name].result(LIMIT_S)
        time.sleep(1.5)


def small_transactions(producers: int) -> Callable[[Node, Sizes], Metrics]:
    """Return a benchmark of transactions with one record of 100 bytes each."""

    def run(node: Node, sizes: Sizes) -> Metrics:
        count = max(sizes.latency_records // (10 if producers == 1 else 4), 300)
        with _topic(node) as topic:
            cpu = node.cpu_s()
            result = native_client.run(
                "transactions", node.bootstrap, topic, count, 100, producers=producers,
                partitions=PARTITIONS, linger_ms=0,
            )  # fmt: skip
            return {
                "rate": count / result["seconds"],
                "p99": result["p99_ms"],
                "broker_cpu": (node.cpu_s() - cpu) / count * 1e3,
            }

    return run


def produce_in_transactions(node: Node, sizes: Sizes) -> Metrics:
    """Measure the rate of 1 KiB records in transactions, and outside of them (idempotent)."""
    size = 1024
    count = max(sizes.small_volume_bytes // size // RECORDS_PER_TRANSACTION, 1)
    tuning: dict[str, str | int] = {
        "acks": "all",
        "batch_size": 1_000_000,
        "batch_num_messages": 100_000,
        "linger_ms": 5,
        "queue_buffering_max_kbytes": 262_144,
        "queue_buffering_max_messages": 2_000_000,
    }
    volume = count * RECORDS_PER_TRANSACTION * size
    with _topic(node) as topic:
        outside = native_client.run(
            "produce", node.bootstrap, topic, volume // size, size, enable_idempotence="true",
            **tuning,
        )  # fmt: skip
        cpu = node.cpu_s()
        inside = native_client.run(
            "transactions", node.bootstrap, topic, count, size, records=RECORDS_PER_TRANSACTION,
            **tuning,
        )  # fmt: skip
        used = node.cpu_s() - cpu
    return {
        "inside": volume / 1e6 / inside["seconds"],
        "outside": volume / 1e6 / outside["seconds"],
        "broker_cpu": used / (volume / 1e9),
    }


def exactly_once_copy(node: Node, sizes: Sizes) -> Metrics:
    """Measure a Java application that copies 100-byte records, 500 in a transaction."""
    count = sizes.small_volume_bytes // MIB * 400
    with _topic(node) as source, _topic(node) as target, TemporaryDirectory() as folder:
        for partition in range(PARTITIONS):
            native_client.run(
                "produce", node.bootstrap, source, count // PARTITIONS, 100, partition=partition
            )
        group = f"copy-{source}"
        words = (node.bootstrap, source, target, group, "classic", group, "0", str(COPIED_AT_ONCE))
        copier = JavaProcess(Path(folder) / "copier.txt", "TransactionalCopier", *words, "0")
        with copier:
            copier.wait_more("copied")
            cpu, start, first = node.cpu_s(), time.perf_counter(), copier.count("copied")
            wait_all_read(node.bootstrap, source, PARTITIONS, group)
            seconds, used = time.perf_counter() - start, node.cpu_s() - cpu
            measured = (copier.count("copied") - first) * COPIED_AT_ONCE
    return {"rate": measured / seconds, "broker_cpu": used / measured * 1e6}


TRANSACTION_ITEMS: tuple[Item, ...] = (
    *(
        Item(
            f"{prefix}transactions-{producers}",
            small_transactions(producers),
            (
                Metric("rate", "transactions/s", True, 1.0),
                Metric("p99", "ms p99", False),
                Metric("broker_cpu", "broker CPU-ms per transaction", False),
            ),
            subject,
        )
        for prefix, subject in (("", SHARED_NODE), ("rf3-", THREE_NODES))
        for producers in (1, 10, 100)
    ),
    *(
        Item(
            f"{prefix}{name}",
            run,
            metrics,
            subject,
        )
        for prefix, subject in (("", SHARED_NODE), ("rf3-", THREE_NODES))
        for name, run, metrics in (
            (
                "produce-in-transactions",
                produce_in_transactions,
                (
                    Metric("inside", "MB/s inside transactions", True, 1.0),
                    Metric("outside", "MB/s outside", True, 1.0),
                    Metric("broker_cpu", "broker CPU-s per GB inside", False),
                ),
            ),
            (
                "exactly-once-copy",
                exactly_once_copy,
                (
                    Metric("rate", "records/s", True, 1.0),
                    Metric("broker_cpu", "broker CPU-s per 10^6 records", False),
                ),
            ),
        )
    ),
)
