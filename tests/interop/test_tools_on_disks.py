"""Kafka's tools while replicas move between brokers and directories, and while a disk dies.

Each script is played on three nodes of Kafka and three of Spindle, and the answers are equal. The
third directory of node 3 is a disk of its own. The tests depend on their order: all use the same
two clusters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from peers.compare import Answer
from peers.dumped_files import check_files
from peers.failing_disk import FailingDisk, why_no_failing_disks
from peers.java_tools import JavaTools, ToolResult
from peers.metadata_shells import own_lines
from peers.node import KafkaNode, Node, NodeFailed
from peers.trio import STACK_FRAME, Trio, TrioPair, running
from waiting import wait_until

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(why_no_failing_disks() != "", reason=why_no_failing_disks() or "-"),
]
LIMIT_S = 60.0
OVERRIDES = {
    "log.segment.delete.delay.ms": "1000",
    "log.segment.bytes": "1048576",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}
SLOW = ("--throttle", "30000", "--replica-alter-log-dirs-throttle", "30000")
FAST = ("--throttle", "100000000", "--replica-alter-log-dirs-throttle", "100000000")
RECORDS = 1500
DISK = 2


class Places:
    """The directories of a trio, by names that do not depend on where a topic was created.

    `<2+0>` is the directory of broker 2 that had the topic when this object was made, `<2+1>` the
    next one in `log.dirs`.
    """

    def __init__(self, trio: Trio, topic: str) -> None:
        self.trio = trio
        self.topic = topic
        self._names: dict[str, str] = {}
        self._paths: dict[tuple[int, int], str] = {}
        for number, node in trio.nodes.items():
            held = [i for i, path in enumerate(node.log_dirs) if (path / f"{topic}-0").exists()]
            first = held[0] if held else 0
            for index, path in enumerate(node.log_dirs):
                distance = (index - first) % len(node.log_dirs)
                self._names[str(path)] = f"<{number}+{distance}>"
                self._paths[number, distance] = str(path)

    def path(self, broker: int, distance: int) -> str:
        return self._paths[broker, distance]

    def plain(self, text: str) -> str:
        """Return a text with names for what is particular to this cluster."""
        for path in sorted(self._names, key=len, reverse=True):
            text = text.replace(path, self._names[path])
        return self.trio.plain(text)

    def answer(self, tool: str, *words: str) -> Answer:
        """Return exit code and lines of a tool, with names for directories."""
        done = self.trio.run(tool, *words)
        lines = [self.plain(line.rstrip()) for line in done.stdout.splitlines()]
        return done.exit_code, [line for line in lines if not STACK_FRAME.match(line)]

    def plan(self, folder: Path, *moves: tuple[int, list[int], list[str]]) -> tuple[str, ...]:
        """Write a plan of (partition, brokers, directories) and return the words for it."""
        path = folder / f"{self.trio.nodes[1].kind}-{self.topic}.json"
        partitions = [
            {"topic": self.topic, "partition": number, "replicas": brokers, "log_dirs": paths}
            for number, brokers, paths in moves
        ]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return ("--reassignment-json-file", str(path))

    def view(self, *words: str) -> list[list[Any]]:
        """Return broker, directory, error, and (partition, is future, lags) of its replicas."""
        _, lines = self.answer("log-dirs", "--describe", *(words or ("--topic-list", self.topic)))
        document = json.loads(lines[-1])
        return sorted(
            [
                broker["broker"],
                directory["logDir"],
                directory["error"],
                sorted(
                    [partition["partition"], partition["isFuture"], partition["offsetLag"] > 0]
                    for partition in directory["partitions"]
                ),
            ]
            for broker in document["brokers"]
            for directory in broker["logDirs"]
        )

    def until(self, is_so: Callable[[list[str]], bool], tool: str, *words: str) -> list[str]:
        lines: list[str] = []

        def answered() -> bool:
            lines[:] = self.answer(tool, *words)[1]
            return is_so(lines)

        wait_until(answered, lambda: lines, limit_s=LIMIT_S, pause_s=0.1)
        return lines

    def configs(self) -> Answer:
        """Return the throttles that are set."""
        return [
            self.answer("configs", "--describe", "--entity-type", "brokers"),
            self.answer(
                "configs", "--describe", "--entity-type", "topics", "--entity-name", self.topic
            ),
        ]

    def described(self) -> Answer:
        return self.answer("topics", "--describe", "--topic", self.topic)


def create(trio: Trio, topic: str, assignment: str, records: int = RECORDS) -> Places:
    """Create a topic, write records of 1 KB to each partition, and look where it lies."""
    words = ("--create", "--topic", topic, "--replica-assignment", assignment)
    trio.run("topics", *words).check()
    partitions = len(assignment.split(","))
    trio.until(
        lambda lines: len(lines) > partitions and not any("Leader: none" in li for li in lines),
        *("topics", "--describe", "--topic", topic),
    )
    producer = Producer({"bootstrap.servers": trio.bootstrap, "linger.ms": 5, "acks": "all"})
    for number in range(records):
        for partition in range(partitions):
            producer.produce(topic, b"%04d" % number + bytes(1000), partition=partition)
    assert producer.flush(LIMIT_S) == 0
    return Places(trio, topic)


@pytest.fixture(scope="module")
def disks(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, FailingDisk]]:
    folder = tmp_path_factory.mktemp("disks")
    made = {name: FailingDisk(folder / name) for name in ("reference", "candidate")}
    try:
        yield made
    finally:
        for disk in made.values():
            disk.remove()


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
    java_tools: JavaTools,
    disks: dict[str, FailingDisk],
) -> Iterator[TrioPair]:
    folder = tmp_path_factory.mktemp("trios")
    trios = [
        Trio(kind, folder / name, java_tools, OVERRIDES, {3: disks[name].path})
        for name, kind in (("reference", KafkaNode), ("candidate", candidate_class))
    ]
    with running(trios, folder) as pair:
        yield pair


def _unsettled(answers: Answer, replica: str) -> Answer:
    """Hide where a new replica is.

    It is created in its directory at once if the broker hears of the directory first; otherwise it
    moves there. In both programs this depends on the moment.
    """
    broker = replica.rpartition("-")[2]
    text = json.dumps(answers)
    text = re.sub(rf"{replica} (is still in progress|completed successfully)", replica, text)
    return json.loads(re.sub(rf"<{broker}\+\d>", f"<{broker}>", text))


def test_moves_between_brokers_and_directories_at_once(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        places = create(trio, "both", "1:2,2:1")
        plan = places.plan(
            clusters.folder,
            (0, [2, 3], ["any", places.path(3, 1)]),
            (1, [2, 1], [places.path(2, 0), "any"]),
        )
        first = [place for place in places.view() if place[0] == 2 and place[3]]
        reassign = ("reassign-partitions", *plan)
        answers = [
            places.answer(*reassign, "--execute", *SLOW),
            places.answer("reassign-partitions", "--list"),
            places.described(),
            places.configs(),
            places.answer(*reassign, "--execute", *SLOW),
            places.answer(*reassign, "--verify", "--preserve-throttles"),
            places.configs(),
            places.answer(*reassign, "--execute", "--additional", *FAST),
        ]
        places.until(
            lambda lines: not any("in progress" in line for line in lines),
            *(*reassign, "--verify", "--preserve-throttles"),
        )
        return [
            first,
            _unsettled(answers, "both-0-3"),
            places.answer(*reassign, "--verify"),
            places.configs(),
            places.described(),
            places.view(),
        ]

    clusters.compare(script)


def test_moves_of_both_kinds_are_cancelled(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        places = create(trio, "cancelled", "1:2,2:1")
        plan = places.plan(
            clusters.folder,
            (0, [2, 3], [places.path(2, 1), "any"]),
            (1, [2, 1], ["any", places.path(1, 1)]),
        )
        reassign = ("reassign-partitions", *plan)
        return [
            places.answer(*reassign, "--execute", *SLOW),
            places.view(),
            places.answer(*reassign, "--cancel", "--preserve-throttles"),
            places.configs(),
            places.answer(*reassign, "--cancel"),
            places.answer(*reassign, "--verify"),
            places.configs(),
            places.described(),
            places.view(),
        ]

    clusters.compare(script)


@pytest.mark.parametrize(
    ("replicas", "paths"),
    [
        ([1, 2], ["any"]),
        ([1, 2], ["/nowhere", "any"]),
        ([1, 2], ["n1/d1", "any"]),
        ([1, 2], ["<2+0>", "any"]),
        ([1, 2], ["<1+1>/", "any"]),
        ([1, 2], ["", "any"]),
        ([1, 9], ["any", "any"]),
        ([1, 1], ["any", "any"]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_refused_plans(clusters: TrioPair, replicas: list[int], paths: list[str]) -> None:
    def script(trio: Trio) -> Answer:
        places = Places(trio, "cancelled")
        words = [
            re.sub(r"<(\d)\+(\d)>", lambda m: places.path(int(m[1]), int(m[2])), path)
            for path in paths
        ]
        plan = places.plan(clusters.folder, (0, replicas, words))
        reassign = ("reassign-partitions", *plan, "--timeout", "1000")
        return [places.answer(*reassign, "--execute"), places.answer(*reassign, "--verify")]

    clusters.compare(script)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--broker-list", "3,1", "--topic-list", "cancelled"),
        ("--topic-list", "missing"),
        ("--topic-list", "cancelled,both", "--broker-list", "2"),
        ("--broker-list", "1,9"),
        ("--broker-list", "9"),
        ("--broker-list", "x"),
        ("--broker-list", ""),
        ("--topic-list", ""),
    ],
    ids=" ".join,
)
def test_described_directories(clusters: TrioPair, words: tuple[str, ...]) -> None:
    def script(trio: Trio) -> Answer:
        places = Places(trio, "cancelled")
        code, lines = places.answer("log-dirs", "--describe", *words)
        if code != 0 or not lines or not lines[-1].startswith("{"):
            return [code, lines]
        return [code, lines[:-1], _without_sizes(places.view(*words))]

    clusters.compare(script)


def _without_sizes(view: list[list[Any]]) -> Answer:
    """Count the replicas of a directory: the other topics lie where chance has put them."""
    rows = [(broker, error, len(replicas)) for broker, _, error, replicas in view]
    return [
        sorted({(broker, error) for broker, error, _ in rows}, key=repr),
        {broker: sum(n for b, _, n in rows if b == broker) for broker, _, _ in rows},
    ]


def _cordons(places: Places, entity: tuple[str, ...], *how: str) -> Answer:
    words = ("--entity-type", "brokers", *entity)
    if how:
        return places.answer("configs", *words, "--alter", *how)
    return places.answer("configs", *words, "--describe")


def _described(places: Places, entity: tuple[str, ...], value: str | None) -> Answer:
    """Describe the cordons of a broker when it knows that they were set to a value or deleted."""
    describe = ("configs", "--entity-type", "brokers", *entity, "--describe")
    setting = "  cordoned.log.dirs="

    def is_known(lines: list[str]) -> bool:
        if value is None:
            return not any(setting in line for line in lines)
        return any(line.startswith(f"{setting}{value} ") for line in lines)

    places.trio.until(is_known, *describe)
    return places.answer(*describe)


TWO = ("--entity-name", "2")


def test_a_directory_is_cordoned_and_uncordoned(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        places = Places(trio, "cancelled")
        first, both = places.path(2, 1), f"{places.path(2, 1)},{places.path(2, 0)}"
        answers = [
            _cordons(places, TWO, "--add-config", f"cordoned.log.dirs={first}"),
            _described(places, TWO, first),
            _cordoned_line(places),
        ]
        create(trio, "beside", "2,2,2,2", records=1)
        used = {row[1] for row in places.view("--topic-list", "beside") if row[3]}
        plan = Places(trio, "beside").plan(clusters.folder, (0, [2], [places.path(2, 1)]))
        answers += [
            sorted(used),
            places.answer("reassign-partitions", *plan, "--execute", "--timeout", "1000"),
            _cordons(places, TWO, "--add-config", f"cordoned.log.dirs=[{both}]"),
            _described(places, TWO, both),
            _cordons(places, TWO, "--add-config", "cordoned.log.dirs=*"),
            _described(places, TWO, "*"),
            _cordons(places, TWO, "--add-config", "cordoned.log.dirs="),
            _described(places, TWO, ""),
            _cordons(places, TWO, "--delete-config", "cordoned.log.dirs"),
            _cordons(places, TWO, "--delete-config", "cordoned.log.dirs"),
            _described(places, TWO, None),
            _cordoned_line(places),
        ]
        return answers

    answers = clusters.compare(script)
    assert "<2+1>" not in answers[3]


def _cordoned_line(places: Places) -> list[str]:
    _, lines = places.answer("configs", "--broker", "2", "--describe", "--all")
    return [line for line in lines if "cordoned.log.dirs" in line]


@pytest.mark.parametrize(
    ("entity", "value"),
    [
        (TWO, "/nowhere"),
        (TWO, "n2/d1"),
        (TWO, "<1+0>"),
        (TWO, "[<2+0>,*]"),
        (TWO, "[<2+0>,/nowhere]"),
        (("--entity-default",), "*"),
        (("--entity-default",), "<2+0>"),
        (("--entity-default",), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-1].lstrip("-"),
)
def test_refused_cordons(clusters: TrioPair, entity: tuple[str, ...], value: str) -> None:
    def script(trio: Trio) -> Answer:
        places = Places(trio, "cancelled")
        word = re.sub(r"<(\d)\+(\d)>", lambda m: places.path(int(m[1]), int(m[2])), value)
        how = ("--add-config", f"cordoned.log.dirs={word}")
        done = trio.run("configs", "--entity-type", "brokers", *entity, "--alter", *how)
        return [_error(places, done), _cordons(places, entity)]

    clusters.compare(script)


def _error(places: Places, done: ToolResult) -> Answer:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "xception" in line]
    return done.exit_code, [places.plain(line) for line in lines]


def _pin(trio: Trio, *indexes: int) -> None:
    """Cordon all directories of node 3 but one: an example of a placement by hand."""
    node = trio.nodes[3]
    paths = ",".join(str(node.log_dirs[index]) for index in indexes)
    how = (
        ("--add-config", f"cordoned.log.dirs=[{paths}]")
        if indexes
        else ("--delete-config", "cordoned.log.dirs")
    )
    trio.run("configs", "--broker", "3", "--alter", *how).check()


def test_a_disk_that_dies(clusters: TrioPair, disks: dict[str, FailingDisk]) -> None:
    def script(trio: Trio) -> Answer:
        _pin(trio, 0, 1)
        places = create(trio, "hit", "3:1,1:3", records=100)
        _pin(trio, DISK)
        create(trio, "spared", "3:1,1:3", records=100)
        _pin(trio)
        disks[trio.nodes[3].folder.parent.name].fail()
        places.until(
            lambda lines: not any(re.search(r"Isr: (\d,)?3", line) for line in lines[1:]),
            *("topics", "--describe", "--topic", "hit"),
        )
        plan = places.plan(clusters.folder, (0, [3, 1], [places.path(3, 1), "any"]))
        here = places.plan(clusters.folder, (0, [3, 1], [places.path(3, 0), "any"]))
        offline = f"cordoned.log.dirs={places.path(3, 0)}"
        three = ("--entity-name", "3")
        trio.run("topics", "--create", "--topic", "late", "--replica-assignment", "3,3").check()
        return [
            places.described(),
            places.answer("topics", "--describe", "--topic", "spared"),
            places.answer("topics", "--describe", "--under-replicated-partitions"),
            [[row[1], row[2]] for row in places.view("--broker-list", "3")],
            places.view(),
            places.answer("reassign-partitions", *plan, "--execute", "--timeout", "1000"),
            places.answer("reassign-partitions", *plan, "--verify"),
            places.answer("reassign-partitions", *here, "--execute", "--timeout", "1000"),
            places.answer("reassign-partitions", *here, "--verify"),
            places.answer("leader-election", "--election-type", "preferred", "--topic", "hit",
                          "--partition", "0"),
            _cordons(places, three, "--add-config", offline),
            _described(places, three, places.path(3, 0)),
            _cordons(places, three, "--delete-config", "cordoned.log.dirs"),
            places.answer("topics", "--describe", "--topic", "late"),
        ]  # fmt: skip

    answers = clusters.compare(script)
    failed = [row for row in answers[3] if row[1] is not None]
    assert failed == [["<3+0>", "org.apache.kafka.common.errors.KafkaStorageException"]]


def test_a_disk_that_is_replaced(
    clusters: TrioPair, disks: dict[str, FailingDisk], java_tools: JavaTools
) -> None:
    def script(trio: Trio) -> Answer:
        node = trio.nodes[3]
        assert node.stop() == 143
        disks[node.folder.parent.name].replace()
        with pytest.raises(NodeFailed, match=r"meta\.properties"):
            node.start()
        node.format("--ignore-formatted")
        node.start()
        trio.until(lambda lines: not lines, "topics", "--describe", "--under-replicated-partitions")
        places = Places(trio, "hit")
        answers = [
            [row[1:3] for row in places.view("--broker-list", "3")],
            [row for row in places.view() if row[3]],
            re.sub(r"Leader: \d|Isr: [\d,]+", "", json.dumps(places.described())),
        ]
        node.stop()
        check_files(node.log_dirs, java_tools)
        return answers

    clusters.compare(script)


def test_the_shell_shows_the_metadata_of_all_this(clusters: TrioPair) -> None:
    """Kafka's newest published shell is of 4.3.1: it stops at the first record of a later level."""
    for trio in clusters.both:
        segment = trio.nodes[3].log_dirs[0] / "__cluster_metadata-0" / "00000000000000000000.log"
        lines = own_lines(segment, "tree", "/image/cluster", "/image/topics/byName/hit")
        assert any("BrokerRegistration(id=3" in line for line in lines)
        assert sum("PartitionRegistration(replicas=" in line for line in lines) == 2
