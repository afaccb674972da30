"""Kafka's tools on three nodes of Kafka and on three of Spindle: the answers are equal.

The tests of this module depend on their order: all use the same two clusters.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.compare import Answer
from peers.home_scripts import run_script
from peers.java_tools import JavaTools
from peers.node import KafkaNode, Node
from peers.paths import SPINDLE
from peers.trio import Trio, TrioPair, running

TOPIC = "moved"
SLOW = "slow"
ASSIGNMENT = "1:2,2:3,3:1"
VIEWS = (
    "--under-replicated-partitions",
    "--at-min-isr-partitions",
    "--under-min-isr-partitions",
    "--unavailable-partitions",
)


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
    java_tools: JavaTools,
) -> Iterator[TrioPair]:
    folder = tmp_path_factory.mktemp("trios")
    trios = [
        Trio(kind, folder / name, java_tools)
        for name, kind in (("reference", KafkaNode), ("candidate", candidate_class))
    ]
    with running(trios, folder) as pair:
        for trio in trios:
            created = trio.run(
                "topics",
                *("--create", "--topic", TOPIC, "--replica-assignment", ASSIGNMENT),
                *("--config", "min.insync.replicas=2"),
            )
            created.check()
        yield pair


def plan(*replicas: list[int]) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {"topic": TOPIC, "partition": number, "replicas": of}
            for number, of in enumerate(replicas)
        ],
    }


def test_quorum(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        status = trio.run("metadata-quorum", "describe", "--status").check()
        rows = trio.run("metadata-quorum", "describe", "--replication").check().lines
        return [
            # Numbers depend on the moment, and the leader on chance.
            [re.sub(r":\s+\d+$", ": <n>", trio.plain(line)) for line in status.lines],
            rows[0].split(),
            sorted((row.split()[0], len(row.split())) for row in rows[1:]),
            sorted(row.split()[-1] for row in rows[1:]),
        ]

    _, _, nodes, roles = clusters.compare(script)
    assert [node for node, _ in nodes] == ["1", "2", "3"]
    assert roles == ["Follower", "Follower", "Leader"]


def test_cluster_and_features(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        features = trio.answer("features", "describe")
        return [
            trio.answer("cluster", "cluster-id"),
            trio.answer("cluster", "list-endpoints"),
            trio.answer("cluster", "unregister", "--id", "99"),
            [re.sub(r"Epoch: \d+", "Epoch: <n>", line) for line in features[1]],
        ]

    clusters.compare(script)


def test_topics_and_directories_in_order(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        directories = trio.run(
            "log-dirs", "--describe", "--broker-list", "1,2,3", "--topic-list", TOPIC
        ).check()
        document = json.loads(directories.lines[-1])
        replicas = sorted(
            (broker["broker"], entry["partition"], entry["offsetLag"], entry["isFuture"])
            for broker in document["brokers"]
            for directory in broker["logDirs"]
            for entry in directory["partitions"]
        )
        counts = [len(broker["logDirs"]) for broker in document["brokers"]]
        views = [trio.answer("topics", "--describe", view) for view in VIEWS]
        return [trio.answer("topics", "--describe", "--topic", TOPIC), views, counts, replicas]

    _, views, counts, replicas = clusters.compare(script)
    assert views[0] == [0, []]
    assert views[1][1], "two replicas in sync are just as many as needed"
    assert counts == [2, 2, 2]
    assert len(replicas) == 6


def test_a_reassignment_with_a_throttle(clusters: TrioPair) -> None:
    path = clusters.write("plan.json", plan([3, 1], [2, 3, 1]))

    def script(trio: Trio) -> Answer:
        reassign = ("reassign-partitions", "--reassignment-json-file", path)
        begun = trio.answer(*reassign, "--execute", "--throttle", "5000000")
        limited = trio.answer("configs", "--describe", "--entity-type", "brokers", "--all")[0]
        trio.until(
            lambda lines: sum("is completed" in line for line in lines) == 2,
            *(*reassign, "--verify", "--preserve-throttles"),
        )
        return [
            begun,
            limited,
            trio.answer(*reassign, "--verify"),
            trio.answer("reassign-partitions", "--list"),
            trio.answer(*reassign, "--cancel"),
            trio.answer("topics", "--describe", "--topic", TOPIC),
        ]

    answers = clusters.compare(script)
    assert any("Warning: You must run --verify" in line for line in answers[0][1])
    assert any("Replicas: 3,1" in line for line in answers[-1][1])


def test_a_reassignment_under_way(clusters: TrioPair) -> None:
    """The throttle is so low that the reassignment does not end while the test looks at it."""
    move = {"topic": SLOW, "partition": 0, "replicas": [3, 1]}
    path = clusters.write("slow.json", {"version": 1, "partitions": [move]})

    def script(trio: Trio) -> Answer:
        create = ("--create", "--topic", SLOW, "--replica-assignment", "1:2")
        trio.run("topics", *create).check()
        trio.tools.run(
            "producer-perf",
            *("--topic", SLOW, "--num-records", "2000", "--record-size", "1000"),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={trio.bootstrap}"),
        ).check()
        reassign = ("reassign-partitions", "--reassignment-json-file", path)
        return [
            trio.answer(*reassign, "--execute", "--throttle", "1"),
            trio.answer("reassign-partitions", "--list"),
            trio.answer("topics", "--describe", "--topic", SLOW),
            trio.answer(*reassign, "--verify"),
            trio.answer(*reassign, "--execute"),
            trio.answer(*reassign, "--cancel"),
            trio.answer("reassign-partitions", "--list"),
            trio.answer("topics", "--describe", "--topic", SLOW),
        ]

    answers = clusters.compare(script)
    assert "slow-0: replicas: 3,1,2. adding: 3. removing: 2." in answers[1][1]
    assert answers[-2][1] == ["No partition reassignments found."]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("features", ["describe"]),
        ("cluster", ["list-endpoints"]),
        ("topics", ["--describe", "--topic", TOPIC]),
        ("topics", ["--describe", "--at-min-isr-partitions"]),
        ("reassign-partitions", ["--list"]),
        (
            "leader-election",
            ["--election-type", "unclean", "--topic", TOPIC, "--partition", "0"],
        ),
        ("leader-election", ["--election-type", "preferred", "--topic", "none"]),
    ],
)
def test_spindles_tools_say_what_kafkas_say(
    clusters: TrioPair, tool: str, words: list[str]
) -> None:
    candidate = clusters.both[1]
    theirs = candidate.run(tool, *words)
    where = ["--bootstrap-server", candidate.bootstrap]
    words = [words[0], *where, *words[1:]] if tool == "cluster" else [*where, *words]
    command = [str(SPINDLE), "kafka", tool, *words]
    ours = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    told = [re.sub(r"Epoch: \d+", "Epoch: <n>", text) for text in (ours.stdout, theirs.stdout)]
    assert (ours.returncode, told[0].splitlines()) == (theirs.exit_code, told[1].splitlines())


def test_plans_that_cannot_be(clusters: TrioPair) -> None:
    unknown = clusters.write("unknown.json", plan([1, 9]))
    other = {"version": 1, "partitions": [{"topic": "none", "partition": 0, "replicas": [1]}]}
    missing = clusters.write("missing.json", other)
    clusters.compare(
        lambda trio: [
            trio.answer("reassign-partitions", "--reassignment-json-file", path, "--execute")
            for path in (unknown, missing)
        ]
    )


def test_a_plan_may_be_refused_because_it_changes_the_number_of_replicas(
    clusters: TrioPair, home: Path
) -> None:
    path = clusters.write("fewer.json", plan([1]))
    words = ("reassign-partitions", "--reassignment-json-file", path, "--execute")
    strict = (*words, "--disallow-replication-factor-change")

    def script(trio: Trio) -> Answer:
        tool, *rest = strict
        twin = run_script(home, tool, "--bootstrap-server", trio.bootstrap, *rest)
        answer = trio.answer(*strict)
        # Empty lines around a trace are not compared.
        code, lines = trio.answer_of(twin)
        assert (code, list(filter(None, lines))) == (answer[0], list(filter(None, answer[1])))
        return answer[0], [line for line in answer[1] if not line.startswith("{")]

    code, lines = clusters.compare(script)
    assert (code, lines[-1]) == (1, "moved-0: The replication factor is changed from 2 to 1")


def test_a_node_that_is_away(clusters: TrioPair) -> None:
    path = clusters.write("away.json", plan([1, 2, 3]))

    def script(trio: Trio) -> Answer:
        trio.nodes[3].stop()
        described = ("topics", "--describe", "--topic", TOPIC)
        trio.until(
            lambda lines: not any(re.search(r"Isr: \S*3", line) for line in lines), *described
        )
        views = [trio.answer(*described), *(trio.answer("topics", "--describe", v) for v in VIEWS)]
        reassign = ("reassign-partitions", "--reassignment-json-file", path)
        moving = trio.answer(*reassign, "--execute")
        fenced = [
            trio.answer("cluster", "list-endpoints"),
            trio.answer("cluster", "list-endpoints", "--include-fenced-brokers"),
        ]
        elections = [
            trio.answer(
                "leader-election", "--election-type", kind, "--topic", TOPIC, "--partition", "0"
            )
            for kind in ("preferred", "unclean")
        ]
        return [views, moving, fenced, elections]

    views, moving, _, _ = clusters.compare(script)
    assert views[1][1], "a replica is missing"
    assert moving[1][0] == "Error: Unknown broker id 3"


def test_a_node_that_comes_back(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        trio.nodes[3].start()
        under = ("topics", "--describe", "--under-replicated-partitions")
        trio.until(lambda lines: not lines, *under)
        before = trio.answer("topics", "--describe", "--topic", TOPIC)
        election = ("leader-election", "--election-type", "preferred", "--all-topic-partitions")
        elected = trio.answer(*election)
        trio.until(
            lambda lines: any("Leader: 3" in line for line in lines),
            *("topics", "--describe", "--topic", TOPIC),
        )
        again = trio.answer(*election)
        path = clusters.write("no.json", {"partitions": [{"topic": "no", "partition": 0}]})
        nowhere = trio.answer(
            "leader-election", "--election-type", "unclean", "--path-to-json-file", path
        )
        after = trio.answer("topics", "--describe", "--topic", TOPIC)
        return [before, elected, again, nowhere, after]

    answers = clusters.compare(script)
    assert any("Successfully completed leader election" in line for line in answers[1][1])


def test_a_broker_that_is_forgotten(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        trio.nodes[3].kill()
        listed = ("cluster", "list-endpoints")
        trio.until(lambda lines: not any(line.startswith("3 ") for line in lines), *listed)
        forgotten = trio.answer("cluster", "unregister", "--id", "3")
        known = ("cluster", "list-endpoints", "--include-fenced-brokers")
        trio.until(lambda lines: not any(line.startswith("3 ") for line in lines), *known)
        return [forgotten, trio.answer(*known)]

    forgotten, _ = clusters.compare(script)
    assert forgotten[0] == 0
