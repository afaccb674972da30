"""The Java client: produce, consume, groups, offsets by time and administration."""

from __future__ import annotations

import pytest
from peers.clients import create
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair
from peers.node import Node
from peers.samples import CODECS

# Members of the consumer protocol hear of a rebalance with their next heartbeat.
NODE_OVERRIDES = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}


def java(pair: Pair, node: Node, script: str, topic: str, *arguments: str) -> list[str]:
    """Return the lines that one script of JavaClient prints."""
    return (
        pair.java_tools.run("JavaClient", script, node.bootstrap, topic, *arguments).check().lines
    )


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(pair: Pair, codec: str, acks: str) -> None:
    topic = f"java-{codec}-{acks}"

    def script(node: Node) -> Answer:
        create(node, topic, 2)
        first = str(FIRST_TIMESTAMP_MS)
        return [
            java(pair, node, "produce", topic, codec, acks, first),
            java(pair, node, "consume", topic, "100"),
        ]

    sent, received = pair.compare(script)
    assert len(sent) == len(received) == 100
    assert "'value-1 '" in received[50]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(pair: Pair, protocol: str) -> None:
    topic = f"java-{protocol}"

    def script(node: Node) -> Answer:
        create(node, topic, 2)
        java(pair, node, "produce", topic, "none", "all", str(FIRST_TIMESTAMP_MS))
        return java(pair, node, "group", topic, f"members-{protocol}", protocol)

    lines = pair.compare(script)
    assert lines[:3] == ["alone [2]", "together [1, 1]", "alone again [2]"]
    assert lines[-1] == "positions 7 9"


def test_offsets_by_time(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "java-times", 2)
        java(pair, node, "produce", "java-times", "lz4", "all", str(FIRST_TIMESTAMP_MS))
        return java(pair, node, "times", "java-times", str(FIRST_TIMESTAMP_MS))

    assert len(pair.compare(script)) == 14


def test_administration(pair: Pair) -> None:
    lines = pair.compare(lambda node: java(pair, node, "admin", "java-admin"))
    assert lines[0] == "create: done"
    assert any(line.startswith("cleanup.policy=delete,compact") for line in lines)
