"""All items by name, and the sets of items that `--items` knows."""

from __future__ import annotations

from collections.abc import Sequence

import click

from benchmarks import spark
from benchmarks.cluster_items import CLUSTER_ITEMS
from benchmarks.compaction import COMPACTION_ITEMS
from benchmarks.connections import CONNECTION_ITEMS
from benchmarks.disks import DISK_ITEMS
from benchmarks.groups import GROUP_ITEMS
from benchmarks.idle import IDLE_ITEMS
from benchmarks.items import ITEMS
from benchmarks.metadata import METADATA_ITEMS
from benchmarks.moves import MOVE_ITEMS
from benchmarks.share_groups import SHARE_GROUP_ITEMS
from benchmarks.tls import TLS_ITEMS
from benchmarks.transactions import TRANSACTION_ITEMS

NODE_ITEMS = {
    item.name: item
    for items in (
        ITEMS, MOVE_ITEMS, COMPACTION_ITEMS, DISK_ITEMS, CLUSTER_ITEMS, IDLE_ITEMS,
        METADATA_ITEMS, TRANSACTION_ITEMS, GROUP_ITEMS, SHARE_GROUP_ITEMS, TLS_ITEMS,
        CONNECTION_ITEMS,
    )
    for item in items
}  # fmt: skip
"""The items that measure nodes; those of Spark stand in `spark`."""

SETS: dict[str, tuple[str, ...]] = {
    "spark": tuple(spark.ITEMS),
    "data-plane": (
        "restart",
        "metadata-snapshot-100k",
        "controller-failover-100k",
        "produce-1KiB-acks1",
        "produce-1KiB-acksall",
        "produce-100B-acks1",
        "consume-1KiB",
        "consume-1KiB-default-fetches",
        "consume-100B",
        "one-in-flight",
        "idle-node",
        "metadata-of-2000-partitions",
        "metadata-of-10000-partitions",
        "connections-1000-busy",
        "connections-10000-idle",
        "rf3-one-in-flight",
        "rf3-produce-1KiB",
        "rf3-produce-100B",
        "idle-cluster",
        "spark-two-columns",
    ),
}


def selected(names: str | None, with_kafka: bool) -> list[str]:
    """Return the items of a comma-separated list of items and sets; all without a list.

    Items of Spark compare with Kafka only: without it, sets do not have them.
    """
    known: Sequence[str] = [*NODE_ITEMS, *(spark.ITEMS if with_kafka else ())]
    if names is None:
        return list(known)
    wanted: dict[str, None] = {}
    for name in map(str.strip, names.split(",")):
        if name in SETS:
            wanted |= dict.fromkeys(item for item in SETS[name] if item in known)
        elif name in known:
            wanted[name] = None
        else:
            raise click.UsageError(
                f"unknown item {name!r}; known: {', '.join((*SETS, *known))}. Items spark-* "
                "compare with Apache Kafka, so --against needs --with-kafka for them"
            )
    return list(wanted)
