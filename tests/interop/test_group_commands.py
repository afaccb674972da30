"""kafka-consumer-groups and kafka-groups in every mode, under both protocols.

Each command runs three times: Kafka's tool against Kafka, Kafka's tool against Spindle, and our
script against Spindle. All three answers are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair, difference, plain
from peers.home_scripts import comparable, run_script
from peers.java_tools import ToolResult
from peers.node import Node

PLAN = "plan.csv"
_MEMBER_ID = re.compile(
    r"\w+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![\w+/-])[\w+/-]{22}(?![\w+/-])"
)
_CLIENT_LOG = re.compile(r"(ERROR|WARN) \[AdminClient ")
_OPTIONS = re.compile(r"\[[a-z-]+\](?:, \[[a-z-]+\])+")


@pytest.fixture(scope="module")
def groups(module_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make groups without members (`idle`, `other`) and with one (`classic`, `consumer`)."""
    open_consumers = []
    for node in (module_pair.reference, module_pair.candidate):
        for topic, partitions in (("t", "3"), ("u", "1")):
            module_pair.java_tools.run(
                "topics", "--bootstrap-server", node.bootstrap,
                "--create", "--topic", topic, "--partitions", partitions,
            ).check()  # fmt: skip
        fill(node)
        for name in ("idle", "other"):
            commit(node, name)
        open_consumers += [member(node, protocol) for protocol in ("classic", "consumer")]
    folder = tmp_path_factory.mktemp("plans")
    (folder / PLAN).write_text("t,0,2\nt,1,4\n")
    yield folder
    for consumer in open_consumers:
        consumer.close()


def fill(node: Node) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for number in range(30):
        producer.produce(
            "t", b"%d" % number, partition=number % 3, timestamp=FIRST_TIMESTAMP_MS + number * 1000
        )
    assert producer.flush(30) == 0


def commit(node: Node, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "log_level": 0, "group.id": group})
    offsets = [TopicPartition("t", 0, 3), TopicPartition("t", 1, 10), TopicPartition("u", 0, 0)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def member(node: Node, protocol: str) -> Consumer:
    """Join a group that is called like its protocol, and wait for the assignment."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "log_level": 0,
            "group.id": protocol,
            "group.protocol": protocol,
            "client.id": "the-client",
            "group.instance.id": "the-instance",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    for _ in range(200):
        if consumer.poll(0.2) is not None:
            break
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    return consumer


def shown(result: ToolResult, node: Node, plans: Path) -> Answer:
    """Return the words of the answer: widths of columns follow the lengths of addresses."""
    answer = plain(comparable(result), node)
    for stream in ("stdout", "stderr"):
        answer[stream] = [
            _MEMBER_ID.sub("<member>", _in_order(line)).replace(str(plans), "<plans>").split()
            for line in answer[stream]
            if line.strip() and not _CLIENT_LOG.match(line)
        ]
    return answer


def _in_order(line: str) -> str:
    """Sort the options that a message lists: Kafka's set of them has another order each time."""
    return _OPTIONS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), line)


def by(group: str, *words: str) -> tuple[str, ...]:
    return ("groups", "--reset-offsets", "--group", group, *words)


COMMANDS = [
    ("groups", "--list"),
    ("groups", "--list", "--state"),
    ("groups", "--list", "--type"),
    ("groups", "--list", "--state", "--type"),
    ("groups", "--list", "--state", "empty,STABLE"),
    ("groups", "--list", "--type", "consumer"),
    ("groups", "--list", "--type", "classic", "--state", "Stable"),
    ("groups", "--list", "--type", "share"),
    ("groups", "--list", "--group", "idle"),
    *(
        ("groups", "--describe", "--group", group, *how)
        for group in ("idle", "classic", "consumer", "missing")
        for how in (
            (),
            ("--offsets",),
            ("--offsets", "--verbose"),
            ("--members",),
            ("--members", "--verbose"),
            ("--state",),
            ("--state", "--verbose"),
        )
    ),
    ("groups", "--describe", "--group", "idle", "--group", "classic"),
    ("groups", "--describe", "--group", "idle", "--group", "missing"),
    ("groups", "--describe", "--all-groups"),
    ("groups", "--describe", "--all-groups", "--members"),
    ("groups", "--describe", "--all-groups", "--state"),
    ("groups", "--describe", "--group", "idle", "--all-groups"),
    ("groups", "--describe", "--group", "idle", "--members", "--state"),
    ("groups", "--describe", "--group", "idle", "--state", "Stable"),
    ("groups", "--describe", "--group", "idle", "--topic", "t"),
    ("groups", "--group", "idle"),
    ("groups", "--delete", "--group", "classic"),
    ("groups", "--delete", "--group", "consumer"),
    ("groups", "--delete", "--group", "missing", "--group", "classic"),
    ("groups", "--delete"),
    ("groups", "--delete", "--group", "idle", "--topic", "t"),
    *(
        ("groups", "--delete-offsets", "--group", group, "--topic", topic)
        for group, topic in (
            ("missing", "t"),
            ("classic", "t"),
            ("consumer", "t"),
            ("consumer", "t:0,1"),
            ("idle", "nosuch"),
            ("idle", "nosuch:0"),
            ("idle", "t:9"),
            ("idle", "t:x"),
            ("idle", "t:0:1"),
        )
    ),
    ("groups", "--delete-offsets", "--group", "idle"),
    ("groups", "--delete-offsets", "--topic", "t"),
    *(
        by("idle", "--topic", "t", *where, "--dry-run")
        for where in (
            ("--to-earliest",),
            ("--to-latest",),
            ("--to-current",),
            ("--to-offset", "4"),
            ("--to-offset", "-4"),
            ("--to-offset", "1000"),
            ("--shift-by", "1000"),
            ("--to-datetime", "2001-01-01T00:00:00.000"),
            ("--to-datetime", "2001-01-01T00:00:00.000+0200"),
            ("--to-datetime", "2099-01-01T00:00:00.000Z"),
            ("--to-datetime", "yesterday"),
            ("--by-duration", "P1D"),
            ("--by-duration", "PT0S"),
            ("--by-duration", "a while"),
            ("--to-earliest", "--to-latest"),
            ("--to-offset", "many"),
        )
    ),
    by("idle", "--topic", "t:0,2", "--to-latest", "--dry-run"),
    by("idle", "--topic", "t:0", "--topic", "u", "--to-latest", "--dry-run"),
    by("idle", "--topic", "t:7", "--to-latest", "--dry-run"),
    by("idle", "--topic", "nosuch", "--to-latest", "--dry-run"),
    by("idle", "--topic", "t:x", "--to-latest", "--dry-run"),
    by("idle", "--topic", "t:0", "--shift-by", "-1", "--dry-run"),
    by("idle", "--topic", "t:2", "--shift-by", "-1", "--dry-run"),
    by("idle", "--all-topics", "--to-latest", "--dry-run"),
    by("idle", "--all-topics", "--to-latest", "--dry-run", "--export"),
    by("idle", "--group", "other", "--all-topics", "--to-latest", "--dry-run", "--export"),
    by("idle", "--topic", "t", "--to-latest", "--dry-run", "--execute"),
    by("idle", "--topic", "t", "--to-latest"),
    by("idle", "--from-file", "{plans}/plan.csv", "--dry-run"),
    by("missing", "--topic", "t", "--to-latest", "--dry-run"),
    by("missing", "--all-topics", "--to-latest", "--dry-run"),
    by("classic", "--topic", "t", "--to-latest", "--execute"),
    by("consumer", "--topic", "t", "--to-latest", "--execute"),
    ("groups", "--validate-regex", "a.*"),
    ("groups", "--validate-regex", "(a"),
    ("groups", "--validate-regex", "[a"),
    ("groups", "--validate-regex", "a**"),
    ("groups", "--validate-regex", "(?=a)"),
    ("groups", "--list", "--timeout", "soon"),
    ("all-groups", "--list"),
    ("all-groups", "--list", "--group-type", "classic"),
    ("all-groups", "--list", "--group-type", "CONSUMER"),
    ("all-groups", "--list", "--group-type", "share"),
    ("all-groups", "--list", "--group-type", "nosuch"),
    ("all-groups", "--list", "--protocol", "consumer"),
    ("all-groups", "--list", "--protocol", "connect"),
    ("all-groups", "--list", "--protocol", "consumer", "--group-type", "classic"),
    ("all-groups", "--list", "--consumer"),
    ("all-groups", "--list", "--share"),
    ("all-groups", "--list", "--streams"),
    ("all-groups", "--list", "--consumer", "--share"),
    ("all-groups", "--list", "--consumer", "--group-type", "classic"),
    ("all-groups", "--nosuch"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_same_lines(
    module_pair: Pair, groups: Path, home: Path, command: tuple[str, ...]
) -> None:
    tool, *words = (word.replace("{plans}", str(groups)) for word in command)

    def theirs(node: Node) -> Answer:
        at = ("--bootstrap-server", node.bootstrap)
        return shown(module_pair.java_tools.run(tool, *at, *words), node, groups)

    candidate = module_pair.candidate
    expected, actual = theirs(module_pair.reference), theirs(candidate)
    assert expected == actual, difference(expected, actual)
    ours = run_script(home, tool, "--bootstrap-server", candidate.bootstrap, *words)
    answer = shown(ours, candidate, groups)
    assert expected == answer, difference(expected, answer)


def test_positions_are_set_exported_and_deleted(
    module_pair: Pair, groups: Path, home: Path
) -> None:
    """Our script and Kafka's tool change one group after the other, and agree on every result."""

    def script(node: Node, *, is_ours: bool) -> Answer:
        def run(*words: str) -> Answer:
            line = ("--bootstrap-server", node.bootstrap, *words)
            if is_ours:
                return shown(run_script(home, "groups", *line), node, groups)
            return shown(module_pair.java_tools.run("groups", *line), node, groups)

        commit(node, "moved")
        reset = ("--reset-offsets", "--group", "moved")
        return [
            run(*reset, "--topic", "t", "--to-offset", "5", "--execute"),
            run("--describe", "--group", "moved"),
            run(*reset, "--topic", "t:0", "--shift-by", "2", "--execute", "--export"),
            run(*reset, "--from-file", str(groups / PLAN), "--execute"),
            run("--describe", "--group", "moved"),
            run("--delete-offsets", "--group", "moved", "--topic", "t:0", "--topic", "u"),
            run("--describe", "--group", "moved"),
            run("--delete", "--group", "moved", "--group", "missing"),
            run("--describe", "--group", "moved"),
        ]

    expected = script(module_pair.reference, is_ours=False)
    for is_ours in (False, True):
        answer = script(module_pair.candidate, is_ours=is_ours)
        assert expected == answer, difference(expected, answer)
