"""The scripts of `spindle home` and Kafka's Java tools, against one node: the same lines."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from peers.compare import Answer, Pair, difference, plain, tool_answer
from peers.java_tools import ToolResult
from peers.paths import SPINDLE

SCRIPT_OF = {
    "topics": "kafka-topics",
    "configs": "kafka-configs",
    "groups": "kafka-consumer-groups",
    "get-offsets": "kafka-get-offsets",
    "log-dirs": "kafka-log-dirs",
    "metadata-quorum": "kafka-metadata-quorum",
    "features": "kafka-features",
    "broker-api-versions": "kafka-broker-api-versions",
    "leader-election": "kafka-leader-election",
}
_TIME = re.compile(r"^\[[\d ,:-]+\] ")
_JAVA_EXCEPTION = re.compile(r"^(java|joptsimple|org\.apache\.kafka)\.[\w.$]+(Exception|Error)\b")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("homes") / "a home"
    subprocess.run([str(SPINDLE), "home", str(folder)], check=True, capture_output=True)
    return folder


def run_script(home: Path, tool: str, *words: str) -> ToolResult:
    done = subprocess.run(
        [str(home / "bin" / f"{SCRIPT_OF[tool]}.sh"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)


def comparable(result: ToolResult) -> Answer:
    """Return the answer without usage tables, traces and clock times, which differ by program."""
    answer = tool_answer(result)
    lines: list[str] = []
    for line in answer["stderr"]:
        if line.startswith("Option  "):
            break
        text = _TIME.sub("", line)
        if not _JAVA_EXCEPTION.match(text) and "\tSuppressed: " not in text:
            lines.append(text)
    answer["stderr"] = lines
    # Kafka's metadata log grows by itself.
    answer["stdout"] = [re.sub(r"Epoch: \d+$", "Epoch: <n>", line) for line in answer["stdout"]]
    return answer


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
