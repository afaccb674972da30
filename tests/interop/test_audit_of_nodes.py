"""Audits of directories that running and stopped nodes of Kafka and Spindle have written."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from peers.clients import create, settings
from peers.node import KafkaNode, Node
from seeded_faults import flip
from test_segments_of_running_nodes import move

from spindle.audit.findings import FindingKind
from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit
from spindle.cli.audit.metadata import load_placement

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
    found = node_class(tmp_path / "node", overrides=dict(OVERRIDES))
    try:
        with found:
            yield found
    finally:
        found.remove()


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
            in_transactions.begin_transaction()
            for number in range(20):
                in_transactions.produce("transactional", b"." * 300, b"%d" % number, number % 2)
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


def audited(node: Node, **how: int) -> AuditReport:
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
            report = audited(node, second_look_ms=300)
            assert sentences(report) == []
            move(node, "plain")
        assert {each.state.value for each in report.directories} == {"in use"}
    finally:
        traffic.stop()
    node.kill()
    assert sentences(audited(node)) == []
    node.start()
    node.stop()
    report = audited(node)
    assert sentences(report) == []
    assert {each.state.value for each in report.directories} == {"closed"}
    assert report.batch_count > traffic.rounds
    assert len(report.replicas) > 8


def test_damage_under_a_running_node_is_found(node: Node) -> None:
    create(node, "plain", 1)
    producer = Producer(settings(node))
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
