"""Tests of the application in orders.py, with the fixtures that spindle-log[testing] brings.

pytest examples/test_orders.py
"""

import threading
from collections import Counter
from collections.abc import Callable

import orders
import pytest

from spindle.testing import Cluster

# The orders of ann are 1, 4, 7, ..., 298 coins; those of the others one and two more each.
TOTALS = {"ann": 14950, "bob": 15050, "cleo": 15150}


def totals(bootstrap: str) -> Counter[str]:
    """Return the coins of each customer, added up by one member of the group."""
    counter: Counter[str] = Counter()
    orders.add_up(bootstrap, counter, threading.Lock())
    return counter


def test_every_order_is_counted_once(
    kafka_server: Cluster, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "TOPIC", kafka_topic)
    orders.send_orders(kafka_server.bootstrap_servers, 300)
    assert totals(kafka_server.bootstrap_servers) == TOTALS


def test_orders_outlive_a_broker(kafka_cluster_factory: Callable[..., Cluster]) -> None:
    cluster = kafka_cluster_factory(brokers=3)
    cluster.create_topic("orders", partitions=3, configs={"min.insync.replicas": 2})
    orders.send_orders(cluster.bootstrap_servers, 150)
    leader = cluster.wait_for_leader("orders")
    cluster.broker(leader).kill()
    cluster.wait_for_leader("orders")
    # Numbers start again, so the two halves are equal.
    orders.send_orders(cluster.bootstrap_servers, 150)
    assert sum(totals(cluster.bootstrap_servers).values()) == 2 * sum(range(151))
