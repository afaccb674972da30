"""Three combined nodes of one program: a cluster for tests of tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from waiting import wait_for

from peers.clients import wait_for_brokers
from peers.compare import Answer, difference, plain_text
from peers.java_tools import JavaTools, ToolResult
from peers.node import Node, random_uuid

SETTLE_LIMIT_S = 60.0
_NUMBERS = (1, 2, 3)
STACK_FRAME = re.compile(r"\s+at [\w.$/]+\(|\s+\.\.\. \d+ more")


class Trio:
    """Nodes 1 to 3, each broker and controller, with two log directories each.

    Args:
        overrides: further keys of all property files.
        disks: a third log directory by the number of its node.
    """

    def __init__(
        self,
        kind: type[Node],
        folder: Path,
        tools: JavaTools,
        overrides: Mapping[str, str] = MappingProxyType({}),
        disks: Mapping[int, Path] = MappingProxyType({}),
    ) -> None:
        cluster_id = random_uuid()
        properties = {
            "offsets.topic.replication.factor": "3",
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "4000",
            # Leaders move only when a test asks for it.
            "auto.leader.rebalance.enable": "false",
            **overrides,
        }
        self.tools = tools
        self.nodes = {
            number: kind(
                folder / f"n{number}",
                directory_count=2,
                overrides=dict(properties),
                cluster_id=cluster_id,
                node_id=number,
            )
            for number in _NUMBERS
        }
        for number, path in disks.items():
            self.nodes[number].log_dirs.append(path)
        for node in self.nodes.values():
            node.voters = tuple(self.nodes.values())
            node.write_properties()

    @property
    def bootstrap(self) -> str:
        """Node 1, which no test stops."""
        return self.nodes[1].bootstrap

    def start(self) -> None:
        """Format and start all nodes side by side."""
        for node in self.nodes.values():
            node.format()
            node.start(wait=False)

    def wait_ready(self) -> None:
        for node in self.nodes.values():
            node.wait_ready()
        for node in self.nodes.values():
            wait_for_brokers(node, len(self.nodes))

    def remove(self) -> None:
        for node in self.nodes.values():
            node.remove()

    def run(self, tool: str, *words: str) -> ToolResult:
        """Run a tool of Kafka on this cluster."""
        if tool == "cluster":
            words = (words[0], "--bootstrap-server", self.bootstrap, *words[1:])
        else:
            words = ("--bootstrap-server", self.bootstrap, *words)
        return self.tools.run(tool, *words)

    def plain(self, text: str) -> str:
        """Return a text with names in place of what is particular to this cluster."""
        for number, node in self.nodes.items():
            text = plain_text(text, node)
            # The directory of a replica is chosen by chance.
            text = text.replace("<d2>", "<dir>").replace("<d1>", "<dir>")
            for name in ("node", "controller", "port", "dir", "folder"):
                text = text.replace(f"<{name}>", f"<{name} of {number}>")
        return re.sub(r'(?<=")[A-Za-z0-9_-]{22}(?=")', "<uuid>", text)

    def until(self, is_so: Callable[[list[str]], bool], tool: str, *words: str) -> None:
        """Run the tool again until its lines are right: other nodes learn of a change a moment
        later."""
        wait_for(
            lambda: self.run(tool, *words).lines,
            is_so,
            f"{tool} {' '.join(words)} prints other lines",
            limit_s=SETTLE_LIMIT_S,
            pause_s=0,
        )

    def answer(self, tool: str, *words: str) -> Answer:
        """Return exit code and lines of a tool, with names for what differs between clusters."""
        return self.answer_of(self.run(tool, *words))

    def answer_of(self, done: ToolResult) -> Answer:
        """Return what `answer` returns, for a tool that has ended."""
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        return done.exit_code, [self.plain(line) for line in lines if not STACK_FRAME.match(line)]


class TrioPair:
    """The reference and the candidate, both running; `folder` is for the files of a test."""

    def __init__(self, reference: Trio, candidate: Trio, folder: Path) -> None:
        self.both = (reference, candidate)
        self.folder = folder

    def compare(self, script: Callable[[Trio], Answer]) -> Answer:
        """Play a script on both; return the answer if both give the same."""
        # Convert through JSON, so that tuples and lists compare as equal.
        theirs, ours = (json.loads(json.dumps(script(trio))) for trio in self.both)
        assert ours == theirs, difference(theirs, ours)
        return theirs

    def write(self, name: str, content: object) -> str:
        """Write a JSON file and return its path."""
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)


@contextmanager
def running(trios: Sequence[Trio], folder: Path) -> Iterator[TrioPair]:
    """Start a reference and a candidate side by side; remove both at the end."""
    reference, candidate = trios
    try:
        for trio in trios:
            trio.start()
        for trio in trios:
            trio.wait_ready()
        yield TrioPair(reference, candidate, folder)
    finally:
        for trio in trios:
            trio.remove()
