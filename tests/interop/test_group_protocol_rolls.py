"""Members of a group change one by one from the classic to the consumer protocol and back.

The members are Java consumers; records flow meanwhile. After each step the groups on Kafka and on
Spindle are described alike, and have the same records in `__consumer_offsets`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import waiting
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from peers.clients import create, settings
from peers.compare import Answer, Pair, difference
from peers.java_process import JavaProcess
from peers.java_tools import JavaTools
from peers.node import Node
from peers.paths import java_can_compile
from peers.steady_input import SteadyInput

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not java_can_compile(), reason="a development kit of Java is needed"),
]
# Members hear of a rebalance with their next heartbeat.
NODE_OVERRIDES = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
}
PARTITIONS = 4
LIMIT_S = 40.0
_PARTITIONS = re.compile(r":\d[\d,]*$")
_RECORD = re.compile(r"key: (\{.*\}) payload: (.*)$")
# Times and ids; how far the traffic is; in how many steps the members took and gave partitions.
_OWN_VALUES = {
    *("currentStateTimestamp", "assignmentTimestamp", "commitTimestamp", "topicId", "offset"),
    *("metadataHash", "generation", "generationId", "previousMemberEpoch", "assignmentEpochs"),
    *("metadata", "ownedPartitions", "userData"),
}
_EPOCHS = ("epoch", "memberEpoch", "assignmentEpoch")
_ONE_TOOL = Lock()


class Roll:
    """One group on one node: its members, and what its records and descriptions are."""

    def __init__(self, node: Node, tools: JavaTools, members: JavaProcess, group: str) -> None:
        self._node = node
        self._tools = tools
        self._members = members
        self._group = group
        self._admin = AdminClient(settings(node))
        self._running: set[str] = set()

    def start(self, name: str, protocol: str, assignor: str = "", instance: str = "-") -> None:
        self._members.command(f"start {name} {protocol} {assignor or '-'} {instance}")
        self._running.add(name)

    def change(self, name: str, protocol: str, assignor: str = "", instance: str = "-") -> None:
        """Stop a member, and start it with another protocol."""
        stopped = self._members.count(f"stopped {name}\n")
        self._members.command(f"stop {name}")
        self.wait_until(lambda: self._members.count(f"stopped {name}\n") > stopped)
        self._members.command(f"start {name} {protocol} {assignor or '-'} {instance}")

    def settled(self) -> Answer:
        """Wait until the members share the partitions equally, each with a committed offset.

        Returns:
            The description of the group, and its records.
        """
        self.wait_until(self._is_settled)
        members, state = self._described("--members"), self._described("--state")
        column = [members[0].index(title) for title in ("CONSUMER-ID", "CLIENT-ID")]
        own = {row[column[0]]: row[column[1]] for row in members[1:]}
        own[self._node.bootstrap] = "<node>"
        epoch = dict(zip(state[0], state[1], strict=True))["GROUP-EPOCH"]
        own[epoch] = "<epoch>"
        described = [own.get(word, word) for row in members + state for word in row]
        return {
            "described": [_PARTITIONS.sub(":<partitions>", word) for word in described],
            "records": comparable(self._records(), own),
        }

    def wait_until(self, condition: Callable[[], bool]) -> None:
        def shown() -> str:
            lines = self._members.output().splitlines()
            others = [line for line in lines if not line.startswith(("read", "committed"))]
            return f"{self._node.kind}: {others[-60:]}"

        waiting.wait_until(condition, shown, limit_s=LIMIT_S, pause_s=0.1)

    def _is_settled(self) -> bool:
        lines = self._members.output().splitlines()
        owned = owners(lines)
        shares = [list(owned.values()).count(name) for name in self._running]
        if len(owned) != PARTITIONS or max(shares) - min(shares) > 1:
            return False
        committed = {line.split()[2] for line in lines if line.startswith("committed ")}
        if len(committed) != PARTITIONS:
            return False
        futures = self._admin.describe_consumer_groups([self._group])
        state = futures[self._group].result(LIMIT_S).state
        return bool(state == ConsumerGroupState.STABLE)

    def _described(self, option: str) -> Answer:
        words = ("--bootstrap-server", self._node.bootstrap, "--describe", "--group", self._group)
        with _ONE_TOOL:
            done = self._tools.run("groups", *words, option, "--verbose").check()
        title, *rows = [line.split() for line in done.lines if line]
        title = " ".join(title).replace("COORDINATOR (ID)", "COORDINATOR ID").split()
        return [
            title,
            *sorted(
                rows, key=lambda row: row[title.index("CLIENT-ID")] if "CLIENT-ID" in title else ""
            ),
        ]

    def _records(self) -> Answer:
        (log,) = [
            path
            for directory in self._node.log_dirs
            for path in directory.glob("__consumer_offsets-0/*.log")
        ]
        with _ONE_TOOL:
            words = ("--files", str(log), "--offsets-decoder")
            done = self._tools.run("dump-log", *words).check()
        state: dict[str, Any] = {}
        for line in done.lines:
            match = _RECORD.search(line)
            if match is None or self._group not in match[1]:
                continue
            state.pop(match[1], None)
            if match[2] != "<DELETE>":
                state[match[1]] = match[2]
        return [[json.loads(key), json.loads(value)] for key, value in state.items()]


def comparable(value: Any, own: dict[str, str]) -> Answer:
    """Return `value` with names for what belongs to one node, and lists in an order.

    Which partitions a member has depends on the random ids of members: they are counted.
    """
    if isinstance(value, dict):
        return {
            key: len(one)
            if key == "partitions"
            else own.get(str(one), one)
            if key in _EPOCHS
            else comparable(one, own)
            for key, one in value.items()
            if key not in _OWN_VALUES
        }
    if isinstance(value, list):
        return sorted((comparable(one, own) for one in value), key=repr)
    return own.get(value, value) if isinstance(value, str) else value


def owners(lines: Sequence[str]) -> dict[str, str]:
    """Return the owner of each partition; no partition had two at a time."""
    owned: dict[str, str] = {}
    for line in lines:
        match line.split():
            case ["got", name, partition]:
                assert partition not in owned, f"{line}, but {owned[partition]} owns it"
                owned[partition] = name
            case ["lost", name, partition]:
                assert owned.pop(partition) == name, line
    return owned


def check_reading(lines: Sequence[str], written: dict[int, list[bytes]]) -> None:
    """Every record was read; again only those that were not committed yet."""
    read: dict[int, set[int]] = defaultdict(set)
    committed: dict[int, int] = defaultdict(int)
    for line in lines:
        match line.split():
            case ["read", _, partition, offset]:
                assert int(offset) >= committed[int(partition)], f"{line}: committed before"
                read[int(partition)].add(int(offset))
            case ["committed", _, partition, offset]:
                assert int(offset) >= committed[int(partition)], f"{line}: committed more before"
                committed[int(partition)] = int(offset)
    for number, values in written.items():
        assert read[number] == set(range(len(values)))
        assert committed[number] == len(values)


@contextmanager
def rolling(pair: Pair, node: Node, group: str, folder: Path) -> Iterator[Roll]:
    """Run the members of a group while records flow, and check what they have read."""
    create(node, group, PARTITIONS)
    words = (node.bootstrap, group, group)
    members = JavaProcess(folder / f"{node.kind}.txt", "GroupMembers", *words)
    with members:
        roll = Roll(node, pair.java_tools, members, group)
        with SteadyInput(node.bootstrap, group, PARTITIONS, 100) as traffic:
            yield roll
        roll.wait_until(lambda: all_committed(members.output(), traffic.written))
        check_reading(members.output().splitlines(), traffic.written)
        owners(members.output().splitlines())


def all_committed(output: str, written: dict[int, list[bytes]]) -> bool:
    ends = [f" {partition} {len(values)}\n" for partition, values in written.items()]
    return all(re.search(rf"committed \w+{end}", output) for end in ends)


def compare(pair: Pair, script: Callable[[Node], Answer]) -> Answer:
    """Play the script on both nodes at the same time, compare, and return Kafka's answer."""
    with ThreadPoolExecutor(2) as pool:
        nodes = (pair.reference, pair.candidate)
        futures = [pool.submit(script, node) for node in nodes]
        answers = [future.result() for future in futures]
    assert answers[0] == answers[1], difference(*answers)
    return answers[0]


def upgraded(answer: Answer) -> list[int]:
    """Return after each step how many members have the new protocol; -1 if all have one."""
    return [
        one["described"].count("true") if "UPGRADED" in one["described"] else -1 for one in answer
    ]


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_members_change_one_by_one(pair: Pair, tmp_path: Path, assignor: str) -> None:
    def script(node: Node) -> Answer:
        states: Answer = []
        with rolling(pair, node, f"roll-{assignor}", tmp_path) as roll:
            for name in "ab":
                roll.start(name, "classic", assignor)
                states.append(roll.settled())
            for protocol in ("consumer", "classic"):
                for name in "ab":
                    roll.change(name, protocol, assignor)
                    states.append(roll.settled())
        return states

    assert upgraded(compare(pair, script)) == [-1, -1, 1, -1, 1, -1]


def test_a_static_member_changes(pair: Pair, tmp_path: Path) -> None:
    def script(node: Node) -> Answer:
        states: Answer = []
        with rolling(pair, node, "roll-static", tmp_path) as roll:
            roll.start("a", "classic", "RangeAssignor", "one")
            states.append(roll.settled())
            roll.start("b", "classic", "RangeAssignor")
            states.append(roll.settled())
            for protocol in ("consumer", "classic"):
                roll.change("a", protocol, "RangeAssignor", "one")
                states.append(roll.settled())
        return states

    assert upgraded(compare(pair, script)) == [-1, -1, 1, -1]
