"""kafka-topics: create, describe, list, alter, delete and what it refuses."""

from __future__ import annotations

import time

import pytest
from peers.compare import Answer, Pair, tool_answer
from peers.node import Node

METADATA_DELAY_S = 0.2


def topics(pair: Pair, node: Node, *arguments: str) -> Answer:
    """Return the answer of a kafka-topics command, when the broker has seen its change."""
    done = pair.java_tools.run("topics", "--bootstrap-server", node.bootstrap, *arguments)
    if not {"--list", "--describe"} & set(arguments) and done.exit_code == 0:
        time.sleep(METADATA_DELAY_S)
    return tool_answer(done)


def test_life_of_a_topic(pair: Pair) -> None:
    commands = [
        ("--create", "--topic", "life", "--partitions", "4"),
        ("--describe", "--topic", "life"),
        ("--list",),
        ("--alter", "--topic", "life", "--partitions", "6"),
        ("--describe", "--topic", "life"),
        ("--alter", "--topic", "life", "--partitions", "3"),
        ("--alter", "--topic", "life", "--partitions", "6"),
        ("--delete", "--topic", "life"),
        ("--list",),
        ("--describe", "--topic", "life"),
        ("--create", "--topic", "life"),
        ("--describe", "--topic", "life"),
    ]
    answers = pair.compare(lambda node: [topics(pair, node, *words) for words in commands])
    assert answers[0]["stdout"] == ["Created topic life."]
    assert "PartitionCount: 6" in answers[4]["stdout"][0]


def test_configs_at_creation(pair: Pair) -> None:
    commands = [
        (
            "--create",
            "--topic",
            "with-configs",
            "--partitions",
            "1",
            "--config",
            "retention.ms=100000",
            "--config",
            "cleanup.policy=compact,delete",
            "--config",
            "min.insync.replicas=1",
            "--config",
            "compression.type=zstd",
        ),
        ("--describe", "--topic", "with-configs"),
        ("--describe", "--topics-with-overrides"),
        ("--describe", "--topic", "with-configs", "--topics-with-overrides"),
    ]
    answers = pair.compare(lambda node: [topics(pair, node, *words) for words in commands])
    assert "retention.ms=100000" in answers[1]["stdout"][0]


def test_replicas_are_assigned_as_given(pair: Pair) -> None:
    commands = [
        ("--create", "--topic", "manual", "--replica-assignment", "1,1,1"),
        ("--describe", "--topic", "manual"),
        ("--alter", "--topic", "manual", "--partitions", "4", "--replica-assignment", "1,1,1,1"),
        ("--describe", "--topic", "manual", "--under-replicated-partitions"),
        ("--describe", "--topic", "manual", "--unavailable-partitions"),
        ("--describe", "--topic", "manual", "--at-min-isr-partitions"),
        ("--describe", "--topic", "manual", "--under-min-isr-partitions"),
    ]
    pair.compare(lambda node: [topics(pair, node, *words) for words in commands])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--create", "--topic", "bad", "--replication-factor", "2"),
        ("--create", "--topic", "bad", "--replication-factor", "0"),
        ("--create", "--topic", "bad", "--partitions", "0"),
        ("--create", "--topic", "bad", "--replica-assignment", "9"),
        ("--create", "--topic", "bad", "--replica-assignment", "1:1"),
        ("--create", "--topic", "bad", "--config", "nosuch=1"),
        ("--create", "--topic", "bad", "--config", "retention.ms=abc"),
        ("--create", "--topic", "bad", "--config", "retention.ms=-2"),
        ("--create", "--topic", "bad", "--config", "cleanup.policy=shred"),
        ("--create", "--topic", "bad", "--config", "compression.type=rar"),
        ("--create", "--topic", "bad", "--config", "max.message.bytes=-1"),
        ("--create", "--topic", "bad", "--config", "segment.bytes=1"),
        ("--create", "--topic", "bad", "--config", "min.insync.replicas=0"),
        ("--create", "--topic", "bad", "--config", "unclean.leader.election.enable=maybe"),
        ("--create", "--topic", "bad", "--config", "min.cleanable.dirty.ratio=1.5"),
        ("--create", "--topic", "x y"),
        ("--create", "--topic", "."),
        ("--create", "--topic", ".."),
        ("--create", "--topic", "x" * 250),
        ("--create", "--topic", ""),
        ("--create", "--topic", "ünï"),
        ("--describe", "--topic", "missing"),
        ("--delete", "--topic", "missing"),
        ("--delete", "--topic", "missing", "--if-exists"),
        ("--alter", "--topic", "missing", "--partitions", "5"),
        ("--alter", "--topic", "missing", "--partitions", "5", "--if-exists"),
        ("--create", "--topic", "__consumer_offsets", "--partitions", "3", "--if-not-exists"),
        ("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ"),
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_refusals_have_kafkas_texts(pair: Pair, arguments: tuple[str, ...]) -> None:
    answer = pair.compare(lambda node: topics(pair, node, *arguments))
    assert answer["stdout"] or answer["stderr"] or answer["exit"] == 0


def test_names_that_collide_in_metrics_are_refused(pair: Pair) -> None:
    commands = [
        ("--create", "--topic", "a.b"),
        ("--create", "--topic", "a_b"),
        ("--create", "--topic", "a.b"),
        ("--create", "--topic", "a.b", "--if-not-exists"),
        ("--list", "--exclude-internal"),
    ]
    pair.compare(lambda node: [topics(pair, node, *words) for words in commands])


def test_describe_by_topic_id(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        topics(pair, node, "--create", "--topic", "by-id", "--partitions", "2")
        described = topics(pair, node, "--describe", "--topic", "by-id")["stdout"][0]
        topic_id = described.split("TopicId: ")[1].split("\t")[0]
        return topics(pair, node, "--describe", "--topic-id", topic_id)

    answer = pair.compare(script)
    assert len(answer["stdout"]) == 3
