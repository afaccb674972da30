"""Audits of directories that running and stopped nodes of Kafka and Spindle have written."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from peers.clients import create, settings
from peers.node import KafkaNode, Node
from seeded_faults import flip, patch
from test_segments_of_running_nodes import move

from spindle.audit.findings import FindingKind
from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit
from spindle.cli.audit.metadata import load_placement
from spindle.protocol.records.batch import HEADER_BYTES, batches

pytestmark = pytest.mark.timeout(200)

LIMIT_S = 60.0
OVERRIDES = {
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "200",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "offsets.topic.replication.factor": "1",
}
TOPICS = {
    "plain": {},
    "short": {"retention.bytes": "2000000"},
    "compacted": {"cleanup.policy": "compact", "segment.ms": "500"},
    "transactional": {"segment.ms": "700"},
}


@pytest.fixture(params=["candidate", "kafka"])
def node(
    request: pytest.FixtureRequest, tmp_path: Path, candidate_class: type[Node]
) -> Iterator[Node]:
    node_class = candidate_class if request.param == "candidate" else KafkaNode
    started = node_class(tmp_path / "node", overrides=dict(OVERRIDES))
    try:
        with started:
            yield started
    finally:
        started.remove()


class Traffic(threading.Thread):
    """Writes to all topics until it is told to stop; every third transaction is aborted."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._stopped = threading.Event()
        self._random = random.Random(1)
        self.rounds = 0

    def run(self) -> None:
        plain = Producer(settings(self._node, linger_ms=5, enable_idempotence=True))
        in_transactions = Producer(settings(self._node, transactional_id="audited"))
        in_transactions.init_transactions(LIMIT_S)
        codecs = [
            Producer(settings(self._node, linger_ms=5, compression_type=codec))
            for codec in ("gzip", "lz4", "zstd", "snappy")
        ]
        while not self._stopped.is_set():
            self.rounds += 1
            for number in range(200):
                value = self._random.randbytes(self._random.randrange(2000))
                key = b"key-%d" % self._random.randrange(40)
                for topic in ("plain", "short", "compacted"):
                    plain.produce(topic, value, key, number % 2)
                codecs[number % 4].produce("plain", value, key, number % 2)
                plain.poll(0)
                codecs[number % 4].poll(0)
            in_transactions.begin_transaction()
            for number in range(20):
                in_transactions.produce("transactional", b"." * 300, b"%d" % number, number % 2)
            # An aborted transaction whose records are still in the queue would leave nothing.
            assert in_transactions.flush(LIMIT_S) == 0
            if self.rounds % 3:
                in_transactions.commit_transaction(LIMIT_S)
            else:
                in_transactions.abort_transaction(LIMIT_S)
        for producer in (plain, *codecs):
            assert producer.flush(LIMIT_S) == 0

    def stop(self) -> None:
        self._stopped.set()
        self.join(LIMIT_S)
        assert not self.is_alive()


def audited(node: Node, **how: Any) -> AuditReport:
    metadata = partial(load_placement, node.log_dirs)
    return run_audit(node.log_dirs, jobs=2, load_placement=metadata, **how)


def sentences(report: AuditReport) -> list[str]:
    return [f"{finding.kind.text} {finding.sentence}" for finding in report.findings]


def test_no_finding_while_a_node_works_stops_and_is_killed(node: Node) -> None:
    for topic, config in TOPICS.items():
        create(node, topic, 2, config=config)
    traffic = Traffic(node)
    traffic.start()
    try:
        for _ in range(6):
            report = audited(node, recheck_ms=300)
            assert sentences(report) == []
            move(node, "plain")
        assert {directory.state.value for directory in report.directories} == {"in use"}
    finally:
        traffic.stop()
    node.kill()
    assert sentences(audited(node)) == []
    node.start()
    node.stop()
    report = audited(node)
    assert sentences(report) == []
    assert {directory.state.value for directory in report.directories} == {"closed"}
    assert report.batch_count > traffic.rounds
    assert len(report.replicas) > 8


def finished_segments(node: Node, partition: str) -> list[Path]:
    """Return the segments of a partition that the node no longer writes."""
    log_dirs = [path for root in node.log_dirs for path in root.glob(f"{partition}/*.log")]
    return sorted(log_dirs)[:-1]


def seed_faults(segments: list[Path], aborted: Path) -> dict[FindingKind, Path]:
    """Damage files that a node no longer writes, each in another way.

    Args:
        segments: of a log with indexes, at least four.
        aborted: a transaction index with entries.
    """
    rng = random.Random(5)
    position, header = rng.choice(list(batches(segments[0].read_bytes())))
    flip(rng, segments[0], position + HEADER_BYTES, position + header.size_bytes)
    # Files that the node has mapped are changed in their place, and not cut.
    offset_index = max(
        (path.with_suffix(".index") for path in segments[1:]), key=lambda path: path.stat().st_size
    )
    position = offset_index.stat().st_size // 16 * 8 + 4
    old = struct.unpack_from(">i", offset_index.read_bytes(), position)[0]
    patch(offset_index, position, struct.pack(">i", old + 1))
    time_index = segments[0].with_name(offset_index.name).with_suffix(".timeindex")
    position = time_index.stat().st_size - 12
    old = struct.unpack_from(">q", time_index.read_bytes(), position)[0]
    patch(time_index, position, struct.pack(">q", old + 1))
    stable = struct.unpack_from(">q", aborted.read_bytes(), 26)[0]
    patch(aborted, 26, struct.pack(">q", stable - 1))
    root = segments[0].parent.parent
    (root / "photos").mkdir()
    return {
        FindingKind.BATCH_CHECKSUM: segments[0],
        FindingKind.OFFSET_INDEX_ENTRY: offset_index,
        FindingKind.TIME_INDEX_ENTRY: time_index,
        FindingKind.TRANSACTION_INDEX_ENTRY: aborted,
        FindingKind.DIRECTORY_NAME: root / "photos",
    }


def test_faults_of_several_kinds_under_traffic_are_found(node: Node) -> None:
    for topic, config in TOPICS.items():
        create(node, topic, 2, config=config)
    traffic = Traffic(node)
    traffic.start()
    try:
        aborted: list[Path] = []
        while len(finished_segments(node, "plain-0")) < 4 or not aborted:
            assert traffic.is_alive()
            assert sentences(audited(node, recheck_ms=300)) == []
            indexes = [
                path.with_suffix(".txnindex") for path in finished_segments(node, "transactional-0")
            ]
            aborted = [path for path in indexes if path.exists() and path.stat().st_size]
        expected = seed_faults(finished_segments(node, "plain-0"), aborted[0])
        for _ in range(3):
            report = audited(node, recheck_ms=300)
            paths = {finding.kind: Path(finding.path) for finding in report.findings}
            assert paths == expected, sentences(report)
    finally:
        traffic.stop()


def test_damage_under_a_running_node_is_found(node: Node) -> None:
    create(node, "plain", 1)
    # Small batches fill a segment; a large one that comes second begins the next.
    producer = Producer(settings(node, batch_size=100_000))
    for number in range(3000):
        producer.produce("plain", b"%d" % number + b"." * 1000)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    segment = sorted(
        next(d for d in node.log_dirs if (d / "plain-0").exists()).glob("plain-0/*.log")
    )[0]
    flip(random.Random(3), segment, 500_000, 500_001)
    report = audited(node)
    assert [finding.kind for finding in report.findings] == [FindingKind.BATCH_CHECKSUM]
    assert report.findings[0].path == str(segment)
