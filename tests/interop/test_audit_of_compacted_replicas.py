"""Audits of a mixed cluster of Kafka and Spindle whose brokers compact at different times."""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from peers.clients import settings
from peers.cluster import QUICK_FAILOVER, Cluster
from waiting import wait_until

from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit
from spindle.cli.audit.metadata import load_placement
from spindle.protocol.records.batch import batches, computed_crc

pytestmark = pytest.mark.timeout(240)

LIMIT_S = 60.0
TOPIC = "states"
KEY = b"changed on one disk"
OVERRIDES = {
    **QUICK_FAILOVER,
    "log.cleaner.backoff.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.segment.delete.delay.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "300",
}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "300",
}


def audited(cluster: Cluster, recheck_ms: int = 1000) -> AuditReport:
    roots = [path for node in cluster.seats.values() for path in node.log_dirs]
    return run_audit(
        roots, jobs=2, load_placement=lambda: load_placement(roots), recheck_ms=recheck_ms
    )


def sentences(report: AuditReport) -> list[str]:
    return [f"{finding.kind.text} {finding.sentence}" for finding in report.findings]


def high_watermarks(cluster: Cluster) -> list[int]:
    """Return those of the topic in the checkpoints of all nodes; 0 where none is written yet."""
    high_watermarks = []
    for node in cluster.seats.values():
        files = [path / "replication-offset-checkpoint" for path in node.log_dirs]
        lines = [line.split() for file in files for line in file.read_text().splitlines()]
        high_watermarks.append(max((int(line[2]) for line in lines if line[0] == TOPIC), default=0))
    return high_watermarks


def write(cluster: Cluster, is_stopped: threading.Event) -> None:
    """Write, delete and abort records of few keys until it is told to stop."""
    rng = random.Random(5)
    plain = Producer(settings(cluster, compression_type="lz4"))
    in_transactions = Producer(settings(cluster, transactional_id="compacted"))
    in_transactions.init_transactions(LIMIT_S)
    number = 0
    while not is_stopped.wait(0.01):
        number += 1
        for _ in range(50):
            value = rng.randbytes(200) if rng.randrange(3) else None
            plain.produce(TOPIC, value, b"key-%d" % rng.randrange(60), 0)
        in_transactions.begin_transaction()
        for _ in range(10):
            in_transactions.produce(TOPIC, rng.randbytes(90), b"key-%d" % rng.randrange(60), 0)
        if number % 3:
            in_transactions.commit_transaction(LIMIT_S)
        else:
            in_transactions.abort_transaction(LIMIT_S)
    assert plain.flush(LIMIT_S) == 0


def test_compacted_replicas_are_equal_until_one_changes_on_its_disk(tmp_path: Path) -> None:
    with Cluster(tmp_path, ["kafka", "spindle", "kafka"], OVERRIDES) as cluster:
        admin = AdminClient(settings(cluster))
        # The replica that is changed below is not the leader's, which is taken for right.
        topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]], config=CONFIG)
        admin.create_topics([topic])[TOPIC].result(LIMIT_S)
        cluster.wait_in_sync([TOPIC])
        producer = Producer(settings(cluster))
        producer.produce(TOPIC, b"right" * 20, KEY, 0)
        assert producer.flush(LIMIT_S) == 0
        is_stopped = threading.Event()
        traffic = threading.Thread(target=write, args=(cluster, is_stopped), daemon=True)
        traffic.start()
        try:
            for _ in range(4):
                assert sentences(audited(cluster)) == []
        finally:
            is_stopped.set()
            traffic.join(LIMIT_S)
        cluster.wait_in_sync([TOPIC])
        wait_until(lambda: min(high_watermarks(cluster)) > 0, limit_s=LIMIT_S, pause_s=0.1)
        cluster.kill()
        report = audited(cluster)
        assert sentences(report) == []
        replicas = [
            replica for replica in report.replicas if replica.place.partition.topic == TOPIC
        ]
        assert len(replicas) == 3
        assert all(replica.is_compacted for replica in replicas)
        (follower,) = (p for d in cluster.seats[2].log_dirs for p in d.glob(f"{TOPIC}-0"))
        change(follower)
        (finding,) = audited(cluster).findings
        assert finding.kind.text == "replica-differs"
        assert finding.path == str(follower)
        assert "another value at offset 0" in finding.evidence


def change(replica: Path) -> None:
    """Change a value, and the checksum of its batch with it."""
    for path in sorted(replica.glob("*.log")):
        data = bytearray(path.read_bytes())
        for position, header in batches(data):
            at = data.find(b"rightright", position, position + header.size_bytes)
            if at >= 0:
                data[at] ^= 1
                struct.pack_into(">I", data, position + 17, computed_crc(data, position, header))
                path.write_bytes(data)
                return
    raise AssertionError("the record is gone")
