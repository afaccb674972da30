"""Play one script against two nodes and compare the answers.

A script is a function of a `Node` that returns plain data. Before the comparison, every address,
path and id that belongs to one node is replaced by a name, so that equal behaviour gives equal
data.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.java_tools import JavaTools, ToolResult
from peers.node import Node

# Younger than every retention period, and the same for all nodes of a run.
FIRST_TIMESTAMP_MS = (int(time.time()) - 7200) * 1000

Answer = Any
Script = Callable[[Node], Answer]

_TOPIC_ID = re.compile(r"TopicId: [A-Za-z0-9_-]{22}")
_CLIENT_NUMBER = re.compile(r"(adminclient|producer|consumer)-\d+")
_STACK_FRAME = re.compile(r"^\s+at |^\s+\.\.\. \d+ more|^Caused by: ")


class Difference(AssertionError):
    """The two nodes answered differently; the text is a unified diff."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The reference (Apache Kafka) and the node under test, both running."""

    reference: Node
    candidate: Node
    java_tools: JavaTools
    differences: Path | None
    test_name: str = ""

    def compare(self, script: Script) -> Answer:
        """Play `script` on both nodes and raise Difference unless the answers are equal.

        Returns the reference's answer, so that a test can also assert what it contains.
        """
        answers = [plain(script(node), node) for node in (self.reference, self.candidate)]
        if answers[0] != answers[1]:
            text = difference(answers[0], answers[1])
            self._keep(text)
            raise Difference(f"{self.test_name}: kafka (-) and {self.candidate.kind} (+)\n{text}")
        return answers[0]

    def _keep(self, text: str) -> None:
        if self.differences is None:
            return
        self.differences.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^A-Za-z0-9_]+", "-", self.test_name).strip("-")
        (self.differences / f"{name}.diff").write_text(text)


def plain(answer: Answer, node: Node) -> Answer:
    """Return `answer` with a name in place of each value that is particular to `node`."""
    if isinstance(answer, dict):
        return {plain(key, node): plain(value, node) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [plain(value, node) for value in answer]
    if isinstance(answer, str):
        return plain_text(answer, node)
    return answer


def plain_text(text: str, node: Node) -> str:
    """Return a string with names in place of the addresses, paths and ids of `node`."""
    for number, path in enumerate(node.log_dirs, start=1):
        text = text.replace(str(path), f"<d{number}>")
    text = text.replace(str(node.folder), "<folder>")
    text = text.replace(node.cluster_id, "<cluster>")
    for host in ("127.0.0.1", "localhost", "/127.0.0.1"):
        text = text.replace(f"{host}:{node.port}", "<node>")
        text = text.replace(f"{host}:{node.controller_port}", "<controller>")
    text = re.sub(rf"\b{node.port}\b", "<port>", text)
    return _TOPIC_ID.sub("TopicId: <id>", text)


def tool_answer(result: ToolResult) -> dict[str, Answer]:
    """Return exit code and lines of both streams, without Java's stack frames."""
    return {
        "exit": result.exit_code,
        "stdout": [line.rstrip() for line in result.stdout.splitlines()],
        "stderr": [
            _CLIENT_NUMBER.sub(r"\1-<n>", line.rstrip())
            for line in result.stderr.splitlines()
            if line.strip() and not _STACK_FRAME.match(line)
        ],
    }


def difference(expected: Answer, actual: Answer) -> str:
    """Return the unified diff of two answers, as indented JSON."""
    before, after = (
        json.dumps(answer, indent=1, sort_keys=True, default=repr).splitlines()
        for answer in (expected, actual)
    )
    return "\n".join(difflib.unified_diff(before, after, "kafka", "candidate", lineterm="", n=4))
