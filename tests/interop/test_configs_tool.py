"""kafka-configs: describe and alter configurations of topics, brokers and groups."""

from __future__ import annotations

import time

import pytest
from peers.compare import Answer, Pair, tool_answer
from peers.node import Node

METADATA_DELAY_S = 0.2


def configs(pair: Pair, node: Node, *arguments: str) -> Answer:
    """Return the answer of a kafka-configs command, when the broker has seen its change."""
    done = pair.java_tools.run("configs", "--bootstrap-server", node.bootstrap, *arguments)
    if "--alter" in arguments and done.exit_code == 0:
        time.sleep(METADATA_DELAY_S)
    return tool_answer(done)


def create(pair: Pair, node: Node, topic: str, *arguments: str) -> None:
    pair.java_tools.run(
        "topics", "--bootstrap-server", node.bootstrap, "--create", "--topic", topic, *arguments
    ).check()


def test_topic_configs(pair: Pair) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "t1")

    def script(node: Node) -> Answer:
        create(pair, node, "t1", "--config", "retention.ms=5000")
        return [
            configs(pair, node, *entity, *words)
            for words in [
                ("--describe",),
                ("--alter", "--add-config", "cleanup.policy=compact,segment.bytes=2097152"),
                ("--describe",),
                ("--alter", "--add-config", "cleanup.policy=[compact,delete]"),
                ("--describe",),
                ("--alter", "--delete-config", "cleanup.policy,retention.ms"),
                ("--describe",),
                ("--alter", "--delete-config", "retention.ms"),
                ("--alter", "--delete-config", "nosuch"),
                ("--alter", "--add-config", "nosuch=1"),
                ("--alter", "--add-config", "retention.ms=abc"),
                ("--alter", "--add-config", "retention.ms=-5"),
                ("--alter", "--add-config", "message.timestamp.type=Yesterday"),
                ("--describe",),
            ]
        ]

    answers = pair.compare(script)
    assert any("retention.ms=5000" in line for line in answers[0]["stdout"])


def test_every_topic_config_and_its_default(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(pair, node, "all-configs")
        return configs(
            pair, node, "--entity-type", "topics", "--entity-name", "all-configs", "--describe",
            "--all",
        )  # fmt: skip

    answer = pair.compare(script)
    assert len(answer["stdout"]) > 30


def test_every_broker_config_and_its_default(pair: Pair) -> None:
    """All keys, except those whose values are addresses or Java's own settings."""

    def script(node: Node) -> Answer:
        answer = configs(
            pair, node, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"
        )
        return sorted(answer["stdout"]), answer["exit"]

    lines, _ = pair.compare(script)
    assert len(lines) > 200


@pytest.mark.parametrize("entity", [("--entity-name", "1"), ("--entity-default",)])
def test_broker_configs(pair: Pair, entity: tuple[str, ...]) -> None:
    def script(node: Node) -> Answer:
        return [
            configs(pair, node, "--entity-type", "brokers", *entity, *words)
            for words in [
                ("--describe",),
                ("--alter", "--add-config", "log.retention.ms=123456789"),
                ("--alter", "--add-config", "log.cleaner.threads=2,num.io.threads=6"),
                ("--describe",),
                ("--alter", "--add-config", "num.io.threads=1000"),
                ("--alter", "--add-config", "num.io.threads=many"),
                ("--alter", "--add-config", "node.id=7"),
                ("--alter", "--add-config", "nosuch=1"),
                ("--alter", "--delete-config", "log.retention.ms"),
                ("--alter", "--delete-config", "log.cleaner.threads,num.io.threads"),
                ("--describe",),
            ]
        ]

    pair.compare(script)


def test_a_topic_inherits_a_dynamic_broker_config(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        broker = ("--entity-type", "brokers", "--entity-default")
        create(pair, node, "heir")
        answers = [
            configs(pair, node, *broker, "--alter", "--add-config", "log.segment.bytes=4194304")
        ]
        described = configs(
            pair, node, "--entity-type", "topics", "--entity-name", "heir", "--describe", "--all"
        )
        answers.append([line for line in described["stdout"] if "segment.bytes" in line])
        answers.append(
            configs(pair, node, *broker, "--alter", "--delete-config", "log.segment.bytes")
        )
        return answers

    answers = pair.compare(script)
    assert any("4194304" in line for line in answers[1])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--entity-type", "topics", "--entity-name", "missing", "--describe"),
        ("--entity-type", "topics", "--entity-name", "missing", "--describe", "--all"),
        (
            "--entity-type",
            "topics",
            "--entity-name",
            "missing",
            "--alter",
            "--add-config",
            "retention.ms=1",
        ),
        ("--entity-type", "brokers", "--entity-name", "abc", "--describe"),
        ("--entity-type", "groups", "--entity-name", "g", "--describe"),
        (
            "--entity-type",
            "groups",
            "--entity-name",
            "g",
            "--alter",
            "--add-config",
            "consumer.session.timeout.ms=50000",
        ),
        (
            "--entity-type",
            "groups",
            "--entity-name",
            "g",
            "--alter",
            "--add-config",
            "consumer.session.timeout.ms=1",
        ),
        (
            *("--entity-type", "groups", "--entity-name", "g"),
            *(
                "--alter",
                "--add-config",
                "consumer.heartbeat.interval.ms=45000",
            ),
        ),
        (
            *("--entity-type", "groups", "--entity-name", "g"),
            *("--alter", "--add-config", "streams.num.standby.replicas=9"),
        ),
        (
            *("--entity-type", "groups", "--entity-name", "g"),
            *("--alter", "--add-config", "streams.num.warmup.replicas=21"),
        ),
        (
            *("--entity-type", "groups", "--entity-name", "g"),
            *("--alter", "--add-config", "streams.task.offset.interval.ms=1"),
        ),
        (
            *("--entity-type", "groups", "--entity-name", "g"),
            *("--alter", "--add-config", "streams.assignor.name=other"),
        ),
        (
            *("--entity-type", "groups", "--entity-name", "g"),
            *("--alter", "--add-config", "streams.rack.aware.assignment.tags=[a,b,a]"),
        ),
        (
            *("--entity-type", "groups", "--entity-name", "g"),
            *("--alter", "--add-config", "errors.deadletterqueue.topic.name=__x"),
        ),
        ("--entity-type", "groups", "--entity-name", "g", "--describe", "--all"),
        ("--entity-type", "brokers", "--describe"),
        ("--entity-type", "client-metrics", "--describe"),
    ],
    ids=lambda words: " ".join(words)[:70],
)
def test_other_entities_and_refusals(pair: Pair, arguments: tuple[str, ...]) -> None:
    answer = pair.compare(lambda node: configs(pair, node, *arguments))
    assert isinstance(answer["exit"], int)
