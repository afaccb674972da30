"""Run integration tests of Kafka's test jars on nodes of a test.

A test of Kafka gets a cluster as its parameter; here its cluster is nodes in processes of their
own. One virtual machine runs all tests of a module.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from peers.java_tools import java_command
from peers.node import Node, random_uuid
from peers.paths import JAVA_SOURCES, OLDER_RELEASE, kafka_suite_jars

_CONTROLLER = 3000
_LAST_LINES = ("passed", "failed", "listed")


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """The cluster that a test of Kafka needs.

    Attributes:
        properties: keys of all brokers; `ID:key` is one of the broker with this id.
    """

    broker_count: int
    properties: Mapping[str, str]

    def roles(self) -> dict[int, str]:
        """Return the roles of the nodes: a controller apart stays while a test stops brokers."""
        if self.broker_count == 1:
            return {0: "broker,controller"}
        return {**dict.fromkeys(range(self.broker_count), "broker"), _CONTROLLER: "controller"}


class KafkaSuites:
    """A virtual machine that runs tests of Kafka one after another; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> KafkaSuites:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the virtual machine."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def cases(self, suite: str) -> dict[str, SuiteCase]:
        """Return the tests of a class that need a cluster."""
        cases = {}
        for line in self._ask({}, "list", suite):
            name, brokers, *pairs = line.split("\t")
            cases[name] = SuiteCase(int(brokers), dict(pair.split("=", 1) for pair in pairs))
        return cases

    def run(self, suite: str, test: str, nodes: Mapping[int, Node]) -> list[str]:
        """Run one test on the nodes; stop and start brokers as it asks.

        Returns:
            The lines of its output; the last one is `passed` or `failed`.
        """
        brokers = {n: node for n, node in nodes.items() if "broker" in node.roles}
        controllers = {n: node for n, node in nodes.items() if "controller" in node.roles}
        return self._ask(
            nodes,
            "run",
            suite,
            test,
            ",".join(node.bootstrap for node in brokers.values()),
            ",".join(node.controller for node in controllers.values()),
            ",".join(map(str, controllers)),
            *(f"{number}={node.properties_file}" for number, node in brokers.items()),
            keep_last=True,
        )

    def _ask(self, nodes: Mapping[int, Node], *words: str, keep_last: bool = False) -> list[str]:
        process = self._started()
        assert process.stdout is not None
        lines: list[str] = []
        answered = False
        try:
            self._send("\t".join(words))
            for line in process.stdout:
                lines.append(line.rstrip())
                verb, _, number = lines[-1].partition(" ")
                if lines[-1] in _LAST_LINES:
                    answered = True
                    return lines if keep_last else lines[:-1]
                if verb in ("stop", "start") and number.isdecimal():
                    node = nodes[int(number)]
                    if verb == "stop":
                        node.stop()
                    else:
                        node.start()
                    self._send("done")
        finally:
            if not answered:  # a late answer must not be taken for that of the next test
                self.close()
        raise RuntimeError("the virtual machine of the suites ended:\n" + "\n".join(lines))

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            command = java_command(
                "-Xmx384m",
                "-XX:+UseSerialGC",
                extra_path=f"{kafka_suite_jars()}/*",
                release=OLDER_RELEASE,
            )
            self._process = subprocess.Popen(
                [*command, str(JAVA_SOURCES / "suite" / "KafkaSuite.java")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        return self._process


def _keys_of(node_id: int, keys: Mapping[str, str]) -> dict[str, str]:
    own = f"{node_id}:"
    common = {key: value for key, value in keys.items() if ":" not in key}
    return common | {
        key.removeprefix(own): value for key, value in keys.items() if key.startswith(own)
    }


@contextmanager
def suite_cluster(
    kind: type[Node],
    folder: Path,
    roles: Mapping[int, str],
    *,
    broker_keys: Mapping[str, str],
    release: str = "",
) -> Iterator[dict[int, Node]]:
    """Run nodes with two log directories each; yield them by id."""
    cluster_id = random_uuid()
    nodes = {
        node_id: kind(
            folder / f"n{node_id}",
            directory_count=2,
            overrides=_keys_of(node_id, broker_keys) if "broker" in role else {},
            cluster_id=cluster_id,
            node_id=node_id,
            roles=tuple(role.split(",")),
        )
        for node_id, role in roles.items()
    }
    voters = [node for node in nodes.values() if "controller" in node.roles]
    try:
        for node in nodes.values():
            node.voters = voters
            node.write_properties()
            node.format(*(["--release-version", release] if release else []))
            node.start(wait=False)
        for node in nodes.values():
            node.wait_ready()
        yield nodes
    finally:
        for node in nodes.values():
            node.remove()
