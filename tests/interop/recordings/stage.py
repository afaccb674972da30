"""A cluster of one program that plays a scenario and writes down what it sees."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

from confluent_kafka import Producer
from peers.clients import settings
from peers.failing_disk import FailingDisk
from peers.java_tools import ToolResult
from peers.node import Node, random_uuid
from waiting import wait_until

from recordings.metadata_log import FOLDER, State, read_batches
from recordings.names import Names
from recordings.programs import Program
from recordings.record_lines import record_lines, without_repeated_fences
from recordings.trees import tree_lines

SETTLE_LIMIT_S = 40.0
_QUIET_S = 0.6
"""Time without a record after which brokers have reported what they had to report."""
_PRODUCE_LIMIT_S = 100.0
"""A replica on a disk that has failed may leave the ISR by `replica.lag.time.max.ms` only."""
_PLACE = re.compile(r"(?<=<n\d)d\d'*")
_PROPERTIES = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "300",
    "auto.leader.rebalance.enable": "false",
    "log.index.size.max.bytes": "65536",
    "log.segment.delete.delay.ms": "600000",
}


class Stage:
    """Nodes of a program; node 1 is the controller unless `roles` says otherwise.

    Use it as a context manager, and call `step` first.

    Args:
        roles: of each node, such as "broker,controller".
        failing: places, as node and directory counted from 1, that are on disks which can fail.
        overrides: further keys of all property files.
        own_overrides: further keys by node. The text `<n1d2>` stands for a directory.
    """

    def __init__(
        self,
        program: Program,
        folder: Path,
        roles: Mapping[int, str] = MappingProxyType({1: "broker,controller"}),
        *,
        directory_count: int = 2,
        failing: Sequence[tuple[int, int]] = (),
        overrides: Mapping[str, str] = MappingProxyType({}),
        own_overrides: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        self.program = program
        self.lines: list[str] = []
        self._folder = folder
        cluster_id = random_uuid()
        self.nodes: dict[int, Node] = {}
        for number, role in roles.items():
            self.nodes[number] = program.new_node(
                folder / f"n{number}",
                directory_count=directory_count,
                overrides=_PROPERTIES | dict(overrides),
                cluster_id=cluster_id,
                node_id=number,
                roles=tuple(role.split(",")),
            )
        self.disks = {
            place: FailingDisk(folder / f"disk{place[0]}-{place[1]}") for place in failing
        }
        for (number, place), disk in self.disks.items():
            self.nodes[number].log_dirs[place - 1] = disk.path
        self.names = Names(self.nodes.values())
        voters = [node for node in self.nodes.values() if "controller" in node.roles]
        self.controller = voters[0]
        for node in self.nodes.values():
            node.voters = voters
            for key, value in own_overrides.get(node.node_id, {}).items():
                node.overrides[key] = self.real(value)
            node.write_properties()
        self._first_offset = 0
        self._killed: set[int] = set()
        self._fenced: set[int] = set()
        self._deleted_before: set[Path] = set()

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            if kind is None:
                node.remove()
            else:
                node.kill()
        for disk in self.disks.values():
            disk.remove()

    @property
    def bootstrap(self) -> str:
        """The addresses of all live brokers."""
        return ",".join(
            node.bootstrap for node in self.nodes.values() if node.alive and "broker" in node.roles
        )

    @property
    def live(self) -> set[int]:
        """The brokers that run."""
        return {
            number for number, node in self.nodes.items() if node.alive and "broker" in node.roles
        }

    def real(self, text: str) -> str:
        """Return a text with the paths that `<n1d2>` and the like stand for."""
        for number, node in self.nodes.items():
            for place, path in enumerate(node.log_dirs, 1):
                text = text.replace(f"<n{number}d{place}>", str(path))
            text = text.replace(f"<n{number}>", node.bootstrap)
            text = text.replace(f"<n{number}c>", node.controller)
            text = text.replace(f"<n{number}.properties>", str(node.properties_file))
        return text.replace("<cluster>", self.controller.cluster_id)

    # Steps

    def step(self, title: str) -> None:
        """Begin a step; the lines of a step are its title, tools and files, and its records."""
        self.lines += ["", f"## {title}"]

    def records(self, *, is_settled: bool = True, has_any_place: bool = False) -> None:
        """Write the records since the last call, when all live brokers have nothing more to do.

        Args:
            is_settled: False if a live broker cannot have done everything.
            has_any_place: brokers chose directories by chance: their ids get one name.
        """
        if is_settled and (reason := self.settle()):
            self.note(f"(after {SETTLE_LIMIT_S:.0f} s: {reason})")
        batches = read_batches(self._metadata_folder, self._first_offset)
        self.names.learn_directories()
        lines = record_lines(without_repeated_fences(batches, self._fenced), self.names)
        if has_any_place:
            lines = [_PLACE.sub("d?", line) if line[0] == "*" else line for line in lines]
        self.lines += lines
        if batches:
            self._first_offset = batches[-1].base_offset + 1

    def skip_records(self) -> None:
        """Leave out the records since the last call, those of a preparation.

        Logs that are to be deleted are left out, too: they were placed by chance.
        """
        count = len(self.lines)
        self.records()
        del self.lines[count:]
        for node in self.nodes.values():
            for path in node.log_dirs:
                self._deleted_before.update(path.glob("*-delete"))

    def leave_out_records(self, reason: str) -> None:
        """Leave out the records since the last call, whose order is a race of the program."""
        count = len(self.lines)
        self.records()
        del self.lines[count:]
        self.note(f"(records left out: {reason})")

    def note(self, text: str) -> None:
        """Write a line."""
        self.lines.append(self.names.plain(text))

    # Waits

    def now(self) -> State:
        """Return the state after all records that the controller has written."""
        state = State()
        state.replay(read_batches(self._metadata_folder))
        return state

    def until(self, is_so: Callable[[State], object], what: str = "") -> None:
        """Return when the metadata log says so."""
        wait_until(lambda: is_so(self.now()), what or (lambda: self.now()), limit_s=SETTLE_LIMIT_S)

    def wait(self, condition: Callable[[], object]) -> None:
        """Return when a condition is true."""
        wait_until(condition, limit_s=SETTLE_LIMIT_S)

    def settle(self) -> str:
        """Return when live brokers have nothing to report, and no record has come for a while.

        Return what is still to be done after SETTLE_LIMIT_S: brokers of Kafka may leave it so.
        """
        deadline = time.monotonic() + SETTLE_LIMIT_S
        seen, quiet_since = -1, time.monotonic()
        while True:
            batches = read_batches(self._metadata_folder)
            state = State()
            state.replay(batches)
            now = time.monotonic()
            if len(batches) != seen:
                seen, quiet_since = len(batches), now
            reason = state.why_unsettled(self.live)
            if not reason and now - quiet_since > _QUIET_S:
                return ""
            if now > deadline:
                return reason or "records come without end"
            time.sleep(0.1)

    # Nodes

    def format(self, *numbers: int, flags: Sequence[str] = ()) -> None:
        """Format nodes without writing it down."""
        for number in numbers or self.nodes:
            self.nodes[number].format(*flags)

    def start(self, *numbers: int) -> None:
        """Start nodes together, and wait until they are ready."""
        self._killed -= set(numbers or self.nodes)
        for number in numbers or self.nodes:
            self.nodes[number].start(wait=False)
        for number in numbers or self.nodes:
            self.nodes[number].wait_ready()

    def stop(self, number: int) -> None:
        """Stop a node in order and write down its exit code."""
        self.note(f"exit code of {number}: {self.nodes[number].stop()}")

    def kill(self, number: int) -> None:
        """Kill a node, as kill -9 does. Its files are then those of a running node."""
        self._killed.add(number)
        self.nodes[number].kill()

    def ended(self, number: int) -> None:
        """Wait until a node has ended by itself, and write down its exit code."""
        node = self.nodes[number]
        assert node.process is not None
        code = node.process.wait(SETTLE_LIMIT_S)
        node.process = None
        self._killed.add(number)
        self.note(f"exit code of {number}: {code}")

    def fail_start(self, number: int) -> None:
        """Start a node that must end by itself, and write down its exit code."""
        self.nodes[number].start(wait=False)
        self.ended(number)

    # Tools

    def tool(self, tool: str, words: str, *, server: str = "") -> ToolResult:
        """Run a tool on the cluster, and write down its command, exit code and output.

        Args:
            words: separated by spaces; `<n1d2>` and the like stand for what they name.
            server: the server, such as "<n1c>", or "-" for a tool without one; all live brokers
                by default.
        """
        arguments = self.real(words).split()
        if server != "-":
            at = 1 if tool == "cluster" else 0
            option = "--bootstrap-controller" if server.endswith("c>") else "--bootstrap-server"
            address = self.real(server) or self.bootstrap
            arguments[at:at] = [option, address]
        done = self.program.run(tool, *arguments)
        at_server = f" ({server})" if len(server) > 1 else ""
        self.lines.append(f"$ kafka-{tool} {self.names.plain(words)}{at_server}")
        if done.exit_code:
            self.lines.append(f"  exit code {done.exit_code}")
        for text in (done.stdout, done.stderr):
            self.lines += [f"  {line}" for line in self.names.output(text)]
        return done

    def describe(self, *topics: str) -> None:
        """Describe topics, one after the other: the tool prints them in the order of a hash map."""
        for topic in topics:
            self.tool("topics", f"--describe --topic {topic}")

    def json_file(self, name: str, content: object) -> str:
        """Write a JSON file for a tool and return its path."""
        path = self._folder / name
        path.write_text(self.real(json.dumps(content)))
        return str(path)

    def files(self, *numbers: int, has_topics: bool = True) -> None:
        """Write down the files of the log directories of nodes.

        Args:
            has_topics: False to leave out the logs of topics, which were placed by chance.
        """
        self.names.learn_directories()
        for number in numbers or self.nodes:
            node = self.nodes[number]
            for path in node.log_dirs:
                logs = () if has_topics else path.glob("*-[0-9]")
                left_out = {one for one in logs if one.name != FOLDER}
                is_stopped = not node.alive and number not in self._killed
                self.lines += tree_lines(
                    path,
                    self.names,
                    is_stopped=is_stopped,
                    left_out=self._deleted_before | left_out,
                )

    # Topics and records

    def reassign(self, action: str, *moves: Mapping[str, object], flags: str = "") -> ToolResult:
        """Run kafka-reassign-partitions with a plan and write down what it answers.

        Args:
            action: `execute`, `verify` or `cancel`.
            moves: topic, partition, replicas and log_dirs.
        """
        path = self.json_file("reassignment.json", {"version": 1, "partitions": moves})
        self.names.add(path, "plan")
        self.lines.append(f"plan: {json.dumps(moves)}")
        return self.tool(
            "reassign-partitions", f"--reassignment-json-file {path} --{action} {flags}".strip()
        )

    def quietly(self, tool: str, words: str) -> ToolResult:
        """Run a tool without writing it down; raise if it fails."""
        return self.program.run(
            tool, "--bootstrap-server", self.bootstrap, *self.real(words).split()
        ).check()

    def produce(self, topic: str, partition: int, count: int, size_bytes: int = 100) -> None:
        """Write records of one size, and wait until they are acknowledged."""
        producer = Producer(settings(self, linger_ms=50, acks="all"))
        for _ in range(count):
            producer.produce(topic, bytes(size_bytes), partition=partition)
        waiting = producer.flush(_PRODUCE_LIMIT_S)
        assert not waiting, f"{waiting} records of {topic}-{partition} are not acknowledged"

    def place(self, topic: str, partition: int, **directories: str) -> None:
        """Put the replicas of a partition into directories: `n1="d2"`."""
        replicas = sorted(int(node[1:]) for node in directories)
        order = self.now().partition(topic, partition)["replicas"]
        assert sorted(order) == replicas
        move = {
            "topic": topic,
            "partition": partition,
            "replicas": order,
            "log_dirs": [f"<n{number}{directories[f'n{number}']}>" for number in order],
        }
        path = self.json_file("placement.json", {"version": 1, "partitions": [move]})
        self.quietly("reassign-partitions", f"--reassignment-json-file {path} --execute")
        wanted = [self.directory_id(number, directories[f"n{number}"]) for number in order]
        self.until(
            lambda state: state.partition(topic, partition)["directories"] == wanted,
            f"{topic}-{partition} in {directories}",
        )

    def directory_id(self, number: int, place: str) -> str:
        """Return the id in the `meta.properties` of a directory such as "d2"."""
        path = self.nodes[number].log_dirs[int(place[1:]) - 1] / "meta.properties"
        (line,) = [one for one in path.read_text().splitlines() if one.startswith("directory.id=")]
        return line.partition("=")[2]

    def create(self, topic: str, assignment: str, **directories: str) -> None:
        """Create a topic without writing it down; all its partitions in the same directories."""
        self.quietly("topics", f"--create --topic {topic} --replica-assignment {assignment}")
        count = len(assignment.split(","))
        self.until(lambda state: len([p for p in state.partitions if state.topics[p[0]] == topic])
                   == count)  # fmt: skip
        self.settle()
        if directories:
            for partition in range(count):
                self.place(topic, partition, **directories)

    def replace(self, number: int, place: int) -> None:
        """Put an empty directory in the place of one of a stopped node."""
        disk = self.disks.get((number, place))
        if disk is not None:
            disk.replace()
            return
        shutil.rmtree(self.nodes[number].log_dirs[place - 1])
        self.nodes[number].log_dirs[place - 1].mkdir()

    def fenced(self, *numbers: int) -> None:
        """Return when the controller has fenced these brokers."""
        self.until(
            lambda state: all(state.brokers[number]["fenced"] for number in numbers),
            f"{numbers} fenced",
        )

    @property
    def _metadata_folder(self) -> Path:
        default = str(self.controller.log_dirs[0])
        return Path(self.controller.overrides.get("metadata.log.dir", default), FOLDER)


def paragraphs(lines: Iterable[str]) -> str:
    """Return the text of a recording."""
    return "\n".join(lines).strip() + "\n"
