"""kafka-consumer-groups: list, describe, reset offsets, delete."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair, tool_answer
from peers.node import Node

_MEMBER_ID = re.compile(
    r"\w+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![\w+/-])[\w+/-]{22}(?![\w+/-])"
)
"""Member ids of the classic protocol, and of librdkafka in the consumer protocol."""


def groups(pair: Pair, node: Node, *arguments: str) -> Answer:
    """Return the answer of a kafka-consumer-groups command; member ids are replaced."""
    answer = tool_answer(
        pair.java_tools.run("groups", "--bootstrap-server", node.bootstrap, *arguments)
    )
    for stream in ("stdout", "stderr"):
        # The width of table columns depends on the length of addresses: compare words, not spaces.
        answer[stream] = [
            _MEMBER_ID.sub("<member>", line).split() for line in answer[stream] if line.strip()
        ]
    return answer


def prepare(pair: Pair, node: Node, topic: str, group: str) -> None:
    """Make a topic of two partitions with 20 records, and a group that has committed offsets."""
    pair.java_tools.run(
        "topics", "--bootstrap-server", node.bootstrap,
        "--create", "--topic", topic, "--partitions", "2",
    ).check()  # fmt: skip
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for number in range(20):
        producer.produce(
            topic, b"%d" % number, partition=number % 2, timestamp=FIRST_TIMESTAMP_MS + number
        )
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "log_level": 0, "group.id": group})
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 10)], asynchronous=False
        )
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def committed(module_pair: Pair) -> tuple[str, str]:
    for node in (module_pair.reference, module_pair.candidate):
        prepare(module_pair, node, "t", "g")
    return "t", "g"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--list",),
        ("--list", "--state"),
        ("--list", "--type"),
        ("--list", "--state", "Stable"),
        ("--list", "--state", "Empty"),
        ("--list", "--type", "classic"),
        ("--describe", "--group", "g"),
        ("--describe", "--group", "g", "--offsets"),
        ("--describe", "--group", "g", "--state"),
        ("--describe", "--group", "g", "--members"),
        ("--describe", "--group", "g", "--members", "--verbose"),
        ("--describe", "--group", "g", "--state", "--verbose"),
        ("--describe", "--group", "missing"),
        ("--describe", "--group", "missing", "--state"),
        ("--describe", "--group", "missing", "--members"),
        ("--describe", "--all-groups"),
        ("--delete", "--group", "missing"),
        ("--delete-offsets", "--group", "missing", "--topic", "t"),
        ("--validate-regex", "a.*"),
    ],
    ids=" ".join,
)
def test_queries(pair: Pair, committed: tuple[str, str], arguments: tuple[str, ...]) -> None:
    answer = pair.compare(lambda node: groups(pair, node, *arguments))
    assert answer["stdout"] or answer["stderr"] or answer["exit"] == 0


def _iso(time_ms: int) -> str:
    whole = datetime.fromtimestamp(time_ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{time_ms % 1000:03d}"


@pytest.mark.parametrize(
    "where",
    [
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-offset", "7"),
        ("--to-offset", "99"),
        ("--to-current",),
        ("--shift-by", "2"),
        ("--shift-by", "-100"),
        ("--to-datetime", _iso(FIRST_TIMESTAMP_MS + 10)),
        ("--by-duration", "PT0S"),
    ],
    # Without the time, which is another one in each process that runs tests.
    ids=lambda words: " ".join(words[:1] if words[0] == "--to-datetime" else words),
)
def test_reset_offsets(pair: Pair, committed: tuple[str, str], where: tuple[str, ...]) -> None:
    topic, group = committed
    select = ("--reset-offsets", "--group", group, "--topic", topic)

    def script(node: Node) -> Answer:
        return [
            groups(pair, node, *select, *where, "--dry-run"),
            groups(pair, node, *select, *where, "--execute"),
            groups(pair, node, "--describe", "--group", group),
            groups(pair, node, *select, "--to-offset", "5", "--execute"),
        ]

    pair.compare(script)


def test_a_group_of_its_own_is_deleted(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(pair, node, "t2", "short-lived")
        return [
            groups(pair, node, "--delete-offsets", "--group", "short-lived", "--topic", "t2:0"),
            groups(pair, node, "--describe", "--group", "short-lived"),
            groups(pair, node, "--delete", "--group", "short-lived"),
            groups(pair, node, "--describe", "--group", "short-lived"),
        ]

    pair.compare(script)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_is_described_as_by_kafka(pair: Pair, protocol: str) -> None:
    """A group with a member refuses deletion and resets, and describes its assignment."""
    topic, group = f"active-{protocol}", f"active-{protocol}"

    def script(node: Node) -> Answer:
        prepare(pair, node, topic, group)
        consumer = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "log_level": 0,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": "the-client",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([topic])
            for _ in range(100):
                if consumer.poll(0.2) is not None:
                    break
            select = ("--reset-offsets", "--group", group, "--topic", topic)
            return [
                groups(pair, node, "--describe", "--group", group),
                groups(pair, node, "--describe", "--group", group, "--members", "--verbose"),
                groups(pair, node, "--describe", "--group", group, "--state"),
                groups(pair, node, "--delete", "--group", group),
                groups(pair, node, *select, "--to-earliest", "--execute"),
                groups(pair, node, "--delete-offsets", "--group", group, "--topic", topic),
            ]
        finally:
            consumer.close()

    pair.compare(script)
