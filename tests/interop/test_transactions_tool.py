"""kafka-transactions: our tool and Kafka's, each against Kafka and against Spindle."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from peers.compare import Answer, Pair, difference, plain
from peers.home_scripts import comparable, run_script
from peers.java_tools import JavaTools, ToolResult
from peers.node import Node

from spindle.cli.tools.bootstrap import connect
from spindle.client.producing import produce_request
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.protocol.messages.produce import ProduceResponse
from spindle.protocol.records.builder import SimpleRecord, build_batch

TOPIC = "moved"
HANGING_ID = 4711
_LAST_VERSION_WITHOUT_IMPLICIT_PARTITIONS = 11
_TRANSACTION_LIMIT_MS = 60_000
_DURATION = re.compile(rf"({_TRANSACTION_LIMIT_MS}\s+\d+\s+)\d+\s*")
_TIME_MS = re.compile(r"\b1\d{12}\b")
_CLIENT_LOG = re.compile(r"(ERROR|WARN) \[AdminClient ")


NODE_OVERRIDES = {"transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module", autouse=True)
def prepared(module_pair: Pair) -> Iterator[None]:
    """Make a committed, an open and a hanging transaction on each node."""
    opened = [prepare(module_pair.java_tools, node) for node in both(module_pair)]
    yield
    for opened_log in opened:
        opened_log.abort_transaction()


def both(pair: Pair) -> tuple[Node, Node]:
    return pair.reference, pair.candidate


def prepare(java_tools: JavaTools, node: Node) -> Producer:
    """Return the producer of the open transaction."""
    java_tools.run(
        "topics", "--bootstrap-server", node.bootstrap,
        "--create", "--topic", TOPIC, "--partitions", "3",
    ).check()  # fmt: skip
    committed, opened = (producer(node, name) for name in ("committed", "opened"))
    for item in (committed, opened):
        item.init_transactions()
        item.begin_transaction()
        for partition in (0, 1):
            item.produce(TOPIC, b"value", partition=partition)
        item.flush()
    committed.commit_transaction()
    hang(node)
    return opened


def producer(node: Node, transactional_id: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "log_level": 0,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _TRANSACTION_LIMIT_MS,
        }
    )


def hang(node: Node, producer_epoch: int = 0) -> None:
    """Open a transaction in a partition that no coordinator knows of."""
    partition = TopicPartition(TOPIC, 2)
    record = SimpleRecord(value=b"lost", timestamp_ms=int(time.time() * 1000) - 3_600_000)
    batch = build_batch(
        [record],
        producer_id=HANGING_ID,
        producer_epoch=producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    request = produce_request(partition, ZERO_UUID, batch, acks=-1, timeout_ms=5000)
    request.transactional_id = "lost"
    with connect(node.bootstrap, {}) as client:
        leader = client.current_view((TOPIC,)).leader_of(partition)
        answer = client.ask(
            request,
            ProduceResponse,
            broker=leader,
            last_version=_LAST_VERSION_WITHOUT_IMPLICIT_PARTITIONS,
        )
    assert answer.responses[0].partition_responses[0].error_code == 0


def shown(result: ToolResult, node: Node) -> Answer:
    """Return the answer with durations replaced, and only the reason of a usage error."""
    answer = plain(comparable(result), node)
    answer["stdout"] = sorted(_DURATION.sub(r"\1<ms>", line) for line in answer["stdout"])
    answer["stderr"] = [line for line in answer["stderr"] if not _CLIENT_LOG.match(line)]
    text = " ".join(" ".join(answer["stderr"]).split())
    _, actual, reason = text.partition("error: ")
    answer["stderr"] = reason if actual else text
    return answer


COMMANDS = [
    ("list",),
    ("list", "--duration-filter", "-1"),
    ("list", "--duration-filter", "0"),
    ("list", "--duration-filter", "3600000"),
    ("list", "--duration-filter", "soon"),
    ("list", "--transactional-id-pattern", "comm.*"),
    ("list", "--transactional-id-pattern", "comm"),
    ("list", "--transactional-id-pattern", ""),
    ("list", "--transactional-id-pattern", "("),
    ("list", "--nosuch"),
    ("describe",),
    ("describe", "--transactional-id", "committed"),
    ("describe", "--transactional-id", "opened"),
    ("describe", "--transactional-id", "missing"),
    ("describe-producers",),
    ("describe-producers", "--topic", TOPIC),
    ("describe-producers", "--topic", TOPIC, "--partition", "one"),
    ("describe-producers", "--topic", TOPIC, "--partition", "0"),
    ("describe-producers", "--topic", TOPIC, "--partition", "0", "--broker-id", "1"),
    ("describe-producers", "--topic", TOPIC, "--partition", "2"),
    ("abort", "--topic", TOPIC, "--partition", "2"),
    ("abort", "--topic", TOPIC, "--partition", "2", "--start-offset", "77"),
    ("abort", "--topic", TOPIC, "--partition", "2", "--producer-id", "4711"),
    (
        "abort", "--topic", TOPIC, "--partition", "2", "--producer-id", "4711",
        "--producer-epoch", "0",
    ),
    (
        "abort", "--topic", TOPIC, "--partition", "2", "--producer-id", "4711",
        "--producer-epoch", "70000",
    ),
    ("find-hanging",),
    ("find-hanging", "--partition", "0"),
    ("find-hanging", "--broker-id", "1", "--partition", "0"),
    ("find-hanging", "--broker-id", "1"),
    ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"),
    ("find-hanging", "--broker-id", "1", "--topic", TOPIC),
    ("find-hanging", "--broker-id", "9"),
    ("find-hanging", "--topic", TOPIC),
    ("find-hanging", "--topic", TOPIC, "--partition", "2"),
    ("find-hanging", "--topic", TOPIC, "--partition", "0"),
    ("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "600"),
    ("forceTerminateTransaction",),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_same_lines(pair: Pair, home: Path, command: tuple[str, ...]) -> None:
    answers = []
    for node in both(pair):
        words = ("--bootstrap-server", node.bootstrap, *command)
        theirs = shown(pair.java_tools.run("transactions", *words), node)
        ours = shown(run_script(home, "transactions", *words), node)
        assert theirs == ours, f"{node.kind}: {difference(theirs, ours)}"
        answers.append(theirs | {"stdout": [_TIME_MS.sub("<time>", x) for x in theirs["stdout"]]})
    assert answers[0] == answers[1], difference(*answers)


def test_a_hanging_transaction_is_found_and_aborted(pair: Pair, home: Path) -> None:
    """One node is asked by our tool, the other by Kafka's; then the same the other way round."""
    java, script = pair.java_tools.run, partial(run_script, home)
    for turn in (0, 1):
        for number, node in enumerate(both(pair)):
            run = (java, script)[(turn + number) % 2]
            if turn:
                hang(node, producer_epoch=1)
            search = (
                "transactions", "--bootstrap-server", node.bootstrap,
                "find-hanging", "--topic", TOPIC,
            )  # fmt: skip
            lines = run(*search).check().lines
            assert lines[0].split()[:3] == ["Topic", "Partition", "ProducerId"]
            columns = lines[1].split()
            assert columns[:3] == [TOPIC, "2", str(HANGING_ID)]
            abort = ("abort", "--topic", TOPIC, "--partition", "2")
            # Both forms: by the first offset, and by what the coordinator of old knows.
            named = (
                ("--start-offset", columns[5])
                if turn == 0
                else (
                    "--producer-id", columns[2],
                    "--producer-epoch", columns[3],
                    "--coordinator-epoch", columns[4],
                )
            )  # fmt: skip
            run(*search[:3], *abort, *named).check()
            assert len(java(*search).check().lines) == 1


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_a_terminated_transaction_is_aborted(pair: Pair, home: Path, kind: str) -> None:
    run = pair.java_tools.run if kind == "theirs" else partial(run_script, home)
    for node in both(pair):
        stuck = producer(node, f"stuck-{kind}")
        stuck.init_transactions()
        stuck.begin_transaction()
        stuck.produce(TOPIC, b"value", partition=0)
        stuck.flush()
        at = ("--bootstrap-server", node.bootstrap)
        name = ("--transactionalId", f"stuck-{kind}")
        run("transactions", *at, "forceTerminateTransaction", *name).check()
        wait_aborted(run, node, f"stuck-{kind}")


def wait_aborted(run: Callable[..., ToolResult], node: Node, transactional_id: str) -> None:
    describe = ("describe", "--transactional-id", transactional_id)
    for _ in range(50):
        answer = run("transactions", "--bootstrap-server", node.bootstrap, *describe).check()
        if answer.lines[1].split()[4] in ("CompleteAbort", "Empty"):
            return
    raise AssertionError(answer.stdout)
