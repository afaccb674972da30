"""Two programs on one set of log directories: each reads and continues the other's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, TopicMetadata
from peers.clients import create, settings, take, watermarks
from peers.committed_reader import committed_values
from peers.dumped_files import check_files
from peers.java_tools import JavaTools
from peers.node import TEST_DEFAULTS, KafkaNode, Node, random_uuid
from peers.samples import CODECS, samples, seen
from waiting import wait_for

pytestmark = pytest.mark.timeout(180)

OVERRIDES = {
    "log.segment.bytes": "1048576",
    # A killed node can register again when its session has expired; shorten the usual 9 seconds.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
LIMIT_S = 30.0
TRANSACTIONAL = "transactional"

Contents = dict[str, list[list[object]]]


class Disks:
    """Log directories that are handed from one program to the other."""

    def __init__(self, folder: Path, candidate_class: type[Node]) -> None:
        self.folder = folder
        self._classes: dict[str, type[Node]] = {
            "kafka": KafkaNode,
            "candidate": candidate_class,
        }
        self._first: Node | None = None
        self.running: Node | None = None
        self._turn = 0

    def start(self, who: str, address: tuple[int, int] | None = None) -> Node:
        """Start `who` ("kafka" or "candidate") on the directories; the first program formats them.

        `address` is the client and the controller port; without it, free ports are taken.
        """
        assert self.running is None
        self._turn += 1
        first = self._first
        node = self.make(self._classes[who], self.folder / f"{self._turn}-{who}", first)
        if address is not None:
            node.port, node.controller_port = address
            node.write_properties()
        if first is None:
            self._first = node
            self.format(node)
        node.start()
        self.running = node
        return node

    def make(self, kind: type[Node], folder: Path, first: Node | None) -> Node:
        """Return a node on new directories, or on those of `first`."""
        return kind(
            folder,
            directory_count=3,
            overrides=dict(OVERRIDES),
            log_dirs=[] if first is None else first.log_dirs,
            cluster_id=first.cluster_id if first else "4L6g3nShT-eMCtK--X86sw",
        )

    def format(self, node: Node) -> None:
        node.format()

    def stop(self, how: str) -> None:
        """End the running node: `how` is "clean" (SIGTERM) or "kill"."""
        node, self.running = self.running, None
        assert node is not None
        if how == "clean":
            assert node.stop() in (0, 143)
        else:
            node.kill()

    @property
    def log_dirs(self) -> list[Path]:
        assert self._first is not None
        return self._first.log_dirs


@pytest.fixture
def disks(tmp_path: Path, candidate_class: type[Node]) -> Iterator[Disks]:
    one = Disks(tmp_path, candidate_class)
    yield one
    if one.running is not None:
        one.running.kill()


def write_everything(node: Node, prefix: str) -> None:
    """Write topics with every codec, a compacted and a deleted one, configs, and group offsets."""
    client = AdminClient(settings(node))
    for codec in CODECS:
        create(node, f"{prefix}-{codec}", 2)
        send_samples(node, f"{prefix}-{codec}", codec)
    create(node, f"{prefix}-rolled", 1, {"segment.bytes": "1048576", "retention.ms": "-1"})
    send_bulk(node, f"{prefix}-rolled", 4_000)
    create(node, f"{prefix}-compacted", 3, {"cleanup.policy": "compact"})
    send_bulk(node, f"{prefix}-compacted", 100)
    create(node, f"{prefix}-gone", 3)
    for future in client.delete_topics([f"{prefix}-gone"]).values():
        future.result(LIMIT_S)
    commit(node, f"{prefix}-group", f"{prefix}-none", 17)


def send_samples(node: Node, topic: str, codec: str) -> None:
    producer = Producer(
        settings(node, compression_type=codec, linger_ms=20, enable_idempotence=True)
    )
    for number, sample in enumerate(samples()):
        producer.produce(
            topic, key=sample.key, value=sample.value, headers=[*sample.headers],
            timestamp=sample.timestamp_ms, partition=number % 2,
        )  # fmt: skip
    assert producer.flush(LIMIT_S) == 0


def send_bulk(node: Node, topic: str, count: int, flush_every: int = 1_000_000) -> None:
    producer = Producer(settings(node, linger_ms=5))
    for number in range(count):
        producer.produce(topic, b"%d" % number + b"." * 1000, b"key-%d" % (number % 10), 0)
        if number % flush_every == flush_every - 1:
            assert producer.flush(LIMIT_S) == 0
    assert producer.flush(LIMIT_S) == 0


def commit(node: Node, group: str, topic: str, offset: int) -> None:
    consumer = Consumer(settings(node, group_id=group))
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(node: Node, group: str, topic: str) -> int:
    consumer = Consumer(settings(node, group_id=group))
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset)
    finally:
        consumer.close()


def contents(node: Node) -> Contents:
    """Return every record of every topic without transactions, by partition."""
    consumer = Consumer(
        settings(node, group_id="reader", enable_auto_commit=False, check_crcs=True)
    )
    contents: Contents = {}
    try:
        topics = _topics_with_leaders(consumer)
        places = [
            TopicPartition(name, partition, OFFSET_BEGINNING)
            for name in sorted(topics)
            for partition in sorted(topics[name].partitions)
            if not name.startswith("__") and name != TRANSACTIONAL
        ]
        total = 0
        for place in places:
            low, high = watermarks(consumer, place)
            total += high - low
            contents[f"{place.topic}-{place.partition}"] = []
        consumer.assign(places)
        for one in take(consumer, total):
            contents[f"{one.topic()}-{one.partition()}"].append(
                [one.offset(), *seen(one.key(), one.value(), one.headers(), one.timestamp()[1])]
            )
    finally:
        consumer.close()
    return contents


def _topics_with_leaders(consumer: Consumer) -> dict[str, TopicMetadata]:
    """Return all topics when every partition has a leader (none has one just after a start)."""

    def leaders(topics: dict[str, TopicMetadata]) -> dict[str, int]:
        return {
            f"{name}-{partition.id}": partition.leader
            for name, topic in topics.items()
            for partition in topic.partitions.values()
        }

    return wait_for(
        lambda: dict(consumer.list_topics(timeout=LIMIT_S).topics),
        lambda topics: min(leaders(topics).values(), default=0) >= 0,
        "every partition has a leader",
        limit_s=LIMIT_S,
    )


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("order", [("candidate", "kafka"), ("kafka", "candidate")], ids="-".join)
def test_each_continues_what_the_other_wrote(
    disks: Disks, java_tools: JavaTools, order: tuple[str, str], how: str
) -> None:
    """Write, change the program, read and write, change back, read all; check files each time."""
    first, second = order
    node = disks.start(first)
    write_everything(node, "one")
    before = contents(node)
    disks.stop(how)
    if how == "clean":
        assert check_files(disks.log_dirs, java_tools)[".log"] >= 15

    node = disks.start(second)
    assert contents(node) == before
    assert committed(node, "one-group", "one-none") == 17
    commit(node, "one-group", "one-none", 23)
    write_everything(node, "two")
    for codec in CODECS:
        send_samples(node, f"one-{codec}", codec)
    both = contents(node)
    disks.stop(how)
    if how == "clean":
        check_files(disks.log_dirs, java_tools)

    node = disks.start(first)
    assert contents(node) == both
    assert committed(node, "one-group", "one-none") == 23
    assert committed(node, "two-group", "two-none") == 17
    send_samples(node, "two-zstd", "lz4")
    disks.stop("clean")
    assert check_files(disks.log_dirs, java_tools)[".log"] >= 25
    for earlier, later in pairwise([before, both]):
        assert all(later[place][: len(records)] == records for place, records in earlier.items())


class DefaultDisks(Disks):
    """Directories that `format --standalone` prepares: a dynamic quorum and the default levels.

    The property file has no key beyond those of Kafka's own example for one node.
    """

    def make(self, kind: type[Node], folder: Path, first: Node | None) -> Node:
        node = kind(
            folder,
            directory_count=2,
            log_dirs=[] if first is None else first.log_dirs,
            cluster_id=first.cluster_id if first else random_uuid(),
        )
        if first is not None:
            node.port, node.controller_port = first.port, first.controller_port
        replication = [key for key in TEST_DEFAULTS if key.endswith(("replication.factor", "isr"))]
        node.overrides = {
            **dict.fromkeys(TEST_DEFAULTS, ""),
            **dict.fromkeys(replication, "1"),
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": node.controller,
        }
        node.write_properties()
        return node

    def format(self, node: Node) -> None:
        node.format("--standalone")


@pytest.mark.parametrize("order", [("candidate", "kafka"), ("kafka", "candidate")], ids="-".join)
def test_disks_formatted_with_defaults_go_to_the_other_program_and_back(
    tmp_path: Path, candidate_class: type[Node], java_tools: JavaTools, order: tuple[str, str]
) -> None:
    first, second = order
    disks = DefaultDisks(tmp_path, candidate_class)
    try:
        node = disks.start(first)
        levels = finalized_levels(node, java_tools)
        write_everything(node, "one")
        send_in_transactions(node)
        before = contents(node)
        disks.stop("clean")

        node = disks.start(second)
        assert finalized_levels(node, java_tools) == levels
        assert contents(node) == before
        assert committed(node, "one-group", "one-none") == 17
        write_everything(node, "two")
        send_in_transactions(node)
        both = contents(node)
        disks.stop("clean")

        node = disks.start(first)
        assert finalized_levels(node, java_tools) == levels
        assert contents(node) == both
        assert committed(node, "two-group", "two-none") == 17
        send_in_transactions(node)
        assert committed_values(node.bootstrap, TRANSACTIONAL, 1) == {0: [b"kept"] * 3}
        disks.stop("clean")
        check_files(disks.log_dirs, java_tools)
    finally:
        if disks.running is not None:
            disks.running.kill()


def finalized_levels(node: Node, tools: JavaTools) -> list[str]:
    """Return name and finalized level of each feature; at least the level of the metadata."""
    described = tools.run("features", "--bootstrap-server", node.bootstrap, "describe").check()
    levels = re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", "\n".join(described.lines))
    assert "metadata.version" in dict(levels), described.lines
    return sorted(f"{name}={level}" for name, level in levels)


def send_in_transactions(node: Node) -> None:
    """Commit one record and abort another; one transactional id for all."""
    topic = TRANSACTIONAL
    if topic not in AdminClient(settings(node)).list_topics(timeout=LIMIT_S).topics:
        create(node, topic)
    producer = Producer(settings(node, transactional_id="one", transaction_timeout_ms=20_000))
    producer.init_transactions(LIMIT_S)
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(LIMIT_S) == 0
        end(LIMIT_S)


@pytest.mark.parametrize("writer", ["candidate", "kafka"])
def test_directory_identity_survives(disks: Disks, writer: str) -> None:
    """Directory ids, cluster id and topic ids stay as the first program wrote them."""
    other = {"candidate": "kafka", "kafka": "candidate"}[writer]
    node = disks.start(writer)
    create(node, "kept", 6)
    disks.stop("clean")
    identity = _identity(disks.log_dirs)
    disks.start(other)
    disks.stop("clean")
    assert _identity(disks.log_dirs) == identity
    disks.start(writer)
    disks.stop("clean")
    assert _identity(disks.log_dirs) == identity
    assert len(identity) == 3 + 6


def _identity(log_dirs: list[Path]) -> dict[str, list[str]]:
    """Return the lines of all meta.properties and partition.metadata files, without comments."""
    identity = {}
    for directory in log_dirs:
        for path in [directory / "meta.properties", *directory.glob("kept-*/partition.metadata")]:
            lines = path.read_text().splitlines()
            identity[str(path)] = sorted(line for line in lines if not line.startswith("#"))
    return identity


@pytest.mark.parametrize("damage", ["torn", "garbage"])
def test_a_damaged_tail_is_cut_alike(tmp_path: Path, candidate_class: type[Node],
                                     damage: str) -> None:  # fmt: skip
    """After kill -9 and damage at the end of the active segment, both keep the same records."""
    ends = []
    for reader in ("kafka", "candidate"):
        disks = Disks(tmp_path / reader, candidate_class)
        try:
            node = disks.start("kafka")
            create(node, "damaged", 1)
            send_bulk(node, "damaged", 100, flush_every=5)
            disks.stop("kill")
            (segment,) = [
                path
                for directory in disks.log_dirs
                for path in directory.glob("damaged-0/00000000000000000000.log")
            ]
            data = segment.read_bytes()
            segment.write_bytes(data[:-700] if damage == "torn" else data + b"\x00garbage" * 50)
            node = disks.start(reader)
            records = contents(node)["damaged-0"]
            offsets = [offset for offset, *_ in records]
            assert offsets == list(range(len(records)))
            ends.append(len(records))
        finally:
            if disks.running is not None:
                disks.running.kill()
    assert ends[0] == ends[1]
    assert ends[0] == (95 if damage == "torn" else 100)


def test_topic_configs_and_deletion_survive(disks: Disks, java_tools: JavaTools) -> None:
    node = disks.start("candidate")
    create(node, "configured", 1, {"retention.ms": "123456", "min.insync.replicas": "1"})
    create(node, "deleted", 3)
    create(node, "late", 1)
    client = AdminClient(settings(node))
    client.delete_topics(["deleted"])["deleted"].result(LIMIT_S)
    disks.stop("clean")
    described = []
    for who in ("kafka", "candidate"):
        node = disks.start(who)
        done = java_tools.run(
            "topics", "--bootstrap-server", node.bootstrap, "--describe", "--exclude-internal"
        ).check()
        described.append(sorted(_sorted_configs(line) for line in done.lines))
        disks.stop("clean")
    assert described[0] == described[1]
    assert any("retention.ms=123456" in line for line in described[0])
    assert not any("deleted" in line for line in described[0])


def _sorted_configs(line: str) -> str:
    head, separator, configs = line.partition("Configs: ")
    return head + separator + ",".join(sorted(configs.split(",")))


def test_an_idempotent_producer_continues_across_the_change(disks: Disks) -> None:
    """One producer goes on while the other program takes over its node's address, and back."""
    node = disks.start("candidate")
    address = node.port, node.controller_port
    create(node, "numbers")
    producer = Producer(
        settings(node)
        | {
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
        }
    )
    failed: list[str] = []
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            producer.produce(
                "numbers",
                str(sent),
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            sent += 1
            producer.poll(0)

    for who, how in (("kafka", "clean"), ("candidate", "kill"), ("kafka", "kill")):
        send(3_000)
        producer.poll(0.05)
        disks.stop(how)
        send(500)
        node = disks.start(who, address)
    send(3_000)
    assert producer.flush(60) == 0
    assert failed == []
    disks.stop("clean")
    node = disks.start("candidate", address)
    place = TopicPartition("numbers", 0, OFFSET_BEGINNING)
    consumer = Consumer(settings(node) | {"group.id": "reader"})
    try:
        consumer.assign([place])
        values = [message.value() for message in take(consumer, sent)]
        assert values == [str(number).encode() for number in range(sent)]
        assert watermarks(consumer, place) == (0, sent)
    finally:
        consumer.close()
