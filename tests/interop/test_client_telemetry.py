"""Client telemetry (KIP-714): subscriptions by kafka-client-metrics, pushes of real clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Producer
from peers.compare import Answer, Pair, difference
from peers.home_scripts import comparable, run_script
from peers.java_tools import JavaTools, ToolResult
from peers.node import Node
from peers.ports import free_ports
from waiting import wait_until

from spindle.testing import Cluster

NAME = ("--name", "slow")
COMMANDS = [
    ("--list",),
    ("--describe",),
    ("--alter", *NAME, "--metrics", "org.apache.kafka.producer.,x", "--interval", "1000"),
    ("--alter", "--name", "b", "--metrics", "*", "--match", "client_id=a.*,client_source_port=9"),
    ("--list",),
    ("--describe",),
    ("--describe", *NAME),
    ("--describe", "--name", "nosuch"),
    ("--alter", *NAME, "--metrics", ""),
    ("--describe", *NAME),
    ("--delete", *NAME),
    ("--delete", "--name", "nosuch"),
    ("--list",),
    ("--alter", *NAME, "--interval", "5"),
    ("--alter", *NAME, "--interval", "soon"),
    ("--alter", *NAME, "--match", "colour=red"),
    ("--alter", *NAME, "--match", "client_id=(a"),
    ("--alter", *NAME, "--generate-name"),
    ("--alter",),
    ("--delete",),
    ("--delete", *NAME, "--metrics", "x"),
    ("--list", *NAME),
    ("--list", "--describe"),
    (),
]


def test_the_tool_prints_what_kafkas_tool_prints(pair: Pair, home: Path) -> None:
    def script(run: Callable[..., ToolResult], node: Node) -> list[Answer]:
        at = ("--bootstrap-server", node.bootstrap)
        return [comparable(run("client-metrics", *at, *words)) for words in COMMANDS]

    expected = script(pair.java_tools.run, pair.reference)
    ours = script(lambda *words: run_script(home, *words), pair.candidate)
    for words, theirs, answer in zip(COMMANDS, expected, ours, strict=True):
        assert theirs == answer, f"{words}\n{difference(theirs, answer)}"


def shown(page: str) -> str:
    with urlopen(page) as answer:
        return str(answer.read().decode())


def names_of(page: str, client: str) -> set[str]:
    """Return the names of the metrics of a client, as its `client_id` or library names it."""
    pattern = rf'^(kafka_client_\w+)\{{[^}}]*="{client}"'
    return set(re.findall(pattern, shown(page), re.MULTILINE))


def test_metrics_of_clients_are_on_the_metrics_page(java_tools: JavaTools) -> None:
    (port,) = free_ports(1)
    page = f"http://127.0.0.1:{port}/metrics"
    with Cluster(properties={"spindle.metrics.listener": f"127.0.0.1:{port}"}) as cluster:
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        subscribed = java_tools.run(
            "client-metrics", *at, "--alter", "--name", "all", "--metrics", "*", "--interval", "100"
        )
        assert subscribed.exit_code == 0, subscribed
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "of-librdkafka"}
        )

        def has_pushed() -> bool:
            producer.produce("t", b"value")
            producer.poll(0)
            return "kafka_client_producer_request_latency_avg" in names_of(page, "of-librdkafka")

        wait_until(has_pushed)
        assert producer.flush(30) == 0
        words = ("--topic", "t", "--num-records", "20", "--record-size", "10", "--throughput", "10")
        property_words = ("--command-property", f"bootstrap.servers={cluster.bootstrap_servers}")
        done = java_tools.run("producer-perf", *words, *property_words)
        assert done.exit_code == 0, done
        pushed = names_of(page, "apache-kafka-java")
        assert "kafka_client_producer_record_send_total" in pushed
        assert "kafka_client_producer_topic_record_send_total" in pushed
        sent = re.findall(
            r'^\w+producer_topic_record_send_total\{.*apache-kafka-java.*topic="t".*\} (.*)',
            shown(page),
            re.MULTILINE,
        )
        assert [float(number) for number in sent] == [20.0]
        assert "kafka_server_client_metrics_plugin_error_total 0.0" in shown(page)
