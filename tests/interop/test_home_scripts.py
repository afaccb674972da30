"""The scripts of `spindle home` and Kafka's Java tools, against one node: the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from peers.compare import Pair, difference, plain
from peers.home_scripts import comparable, run_script

READ_ONLY = [
    ("topics", "--list"),
    ("topics", "--describe"),
    ("topics", "--describe", "--topic", "missing"),
    ("topics", "--describe", "--topics-with-overrides"),
    ("topics", "--describe", "--under-replicated-partitions", "--topics-with-overrides"),
    ("topics", "--create", "--topic", "home-t"),
    ("topics", "--create", "--topic", "x y"),
    ("topics", "--create", "--topic", "bad", "--replication-factor", "7"),
    ("topics", "--create", "--topic", "bad", "--config", "nosuch=1"),
    ("topics", "--alter", "--topic", "home-t", "--partitions", "1"),
    ("topics", "--nosuch"),
    ("configs", "--entity-type", "topics", "--describe"),
    ("configs", "--entity-type", "topics", "--entity-name", "home-t", "--describe", "--all"),
    ("configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"),
    ("configs", "--entity-type", "nosuch", "--describe"),
    ("configs", "--topic", "missing", "--describe"),
    ("configs", "--topic", "home-t", "--alter", "--add-config", "retention.ms=abc"),
    ("groups", "--list"),
    ("groups", "--list", "--state"),
    ("groups", "--describe", "--group", "missing"),
    ("groups", "--delete", "--group", "missing"),
    ("groups", "--describe", "--group", "missing", "--members"),
    ("groups", "--list", "--type", "classic"),
    ("get-offsets", "--topic", "home-t"),
    ("get-offsets", "--topic", "missing"),
    ("get-offsets", "--topic", "home-t", "--time", "never"),
    ("log-dirs", "--describe", "--topic-list", "home-t"),
    ("log-dirs", "--describe", "--broker-list", "9"),
    ("features", "describe"),
    ("features", "describe", "--node-id", "1"),
    ("broker-api-versions",),
    ("leader-election", "--election-type", "preferred", "--topic", "home-t", "--partition", "0"),
    ("leader-election", "--election-type", "preferred", "--topic", "missing", "--partition", "0"),
]


@pytest.fixture(scope="module")
def prepared(module_pair: Pair) -> Pair:
    for node in (module_pair.reference, module_pair.candidate):
        module_pair.java_tools.run(
            "topics", "--bootstrap-server", node.bootstrap, "--create",
            "--topic", "home-t", "--partitions", "3", "--config", "retention.ms=100000",
        ).check()  # fmt: skip
    return module_pair


@pytest.mark.parametrize("command", READ_ONLY, ids=" ".join)
@pytest.mark.parametrize("kind", ["candidate", "reference"])
def test_the_same_lines(prepared: Pair, home: Path, command: tuple[str, ...], kind: str) -> None:
    """Run the command against Spindle and against Apache Kafka."""
    node = prepared.candidate if kind == "candidate" else prepared.reference
    tool, words = command[0], ("--bootstrap-server", node.bootstrap, *command[1:])
    theirs = plain(comparable(prepared.java_tools.run(tool, *words)), node)
    ours = plain(comparable(run_script(home, tool, *words)), node)
    assert theirs == ours, difference(theirs, ours)
