"""`spindle audit --bootstrap-server` on three nodes of either program: reports, files, and fetches.

The tests depend on their order: each leaves its damage behind.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from peers.clients import settings
from peers.java_tools import JavaTools
from peers.node import KafkaNode, Node, SpindleNode
from peers.trio import Trio

from spindle.cli.main import run
from spindle.protocol.records.batch import batches, computed_crc

pytestmark = pytest.mark.timeout(200)

TOPIC = "audited"
PARTITIONS = 6
LIMIT_S = 60.0


@pytest.fixture(scope="module", params=[SpindleNode, KafkaNode], ids=["spindle", "kafka"])
def trio(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools
) -> Iterator[Trio]:
    kind: type[Node] = request.param
    cluster = Trio(kind, tmp_path_factory.mktemp("audited"), java_tools)
    try:
        cluster.start()
        cluster.wait_ready()
        # Node 1 leads all partitions, so the replicas of the others are those in the wrong.
        assignment = ("--replica-assignment", ",".join(["1:2:3"] * PARTITIONS))
        cluster.run("topics", "--create", "--topic", TOPIC, *assignment).check()
        producer = Producer(
            settings(cluster.nodes[1], acks="all", linger_ms=5, batch_num_messages=50)
        )
        for number in range(6000):
            producer.produce(TOPIC, b"%0500d" % number, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(LIMIT_S) == 0
        yield cluster
    finally:
        cluster.remove()


def audit(
    trio: Trio, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the JSON document of an audit."""
    capsys.readouterr()
    code = run(("audit", "-b", trio.bootstrap, "--json", *words))
    shown = capsys.readouterr()
    assert shown.out, shown.err
    return code, json.loads(shown.out)


def kinds(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["kind"], finding["path"]) for finding in document["findings"]]


def segment(node: Node, partition: int) -> Path:
    (path,) = (
        path
        for directory in node.log_dirs
        for path in directory.glob(f"{TOPIC}-{partition}/*0.log")
    )
    return path


def rewrite_a_batch(path: Path, *, fixes_checksum: bool) -> None:
    """Change the last byte of a batch, and perhaps the checksum, under a running broker."""
    data = bytearray(path.read_bytes())
    position, header = list(batches(data))[2]
    end = position + header.size_bytes
    data[end - 2] ^= 1
    if fixes_checksum:
        struct.pack_into(">I", data, position + 17, computed_crc(data, position, header))
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data[position:end])


def test_a_sound_cluster_has_no_findings_also_where_no_disk_is_seen(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = audit(trio, capsys, "--fetch")
    while code == 0 and report["bytes"] <= 3 * 6000 * 500:
        # A follower sends what is below the high watermark that it has heard of.
        code, report = audit(trio, capsys, "--fetch")
    assert (code, kinds(report)) == (0, [])
    assert report["replicas"] == 3 * PARTITIONS
    assert [broker["id"] for broker in report["brokers"]] == [1, 2, 3]
    paths = map(str, trio.nodes[2].log_dirs)
    code, report = audit(trio, capsys, "--fetch", *paths)
    assert (code, kinds(report)) == (0, [])
    assert report["bytes"] > 3 * 6000 * 500


def test_a_quota_makes_fetches_slow_and_is_no_finding(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    quota = ("--alter", "--entity-type", "clients", "--entity-default")
    trio.run("configs", *quota, "--add-config", "consumer_byte_rate=300000").check()
    try:
        code, report = audit(trio, capsys, "--fetch")
    finally:
        trio.run("configs", *quota, "--delete-config", "consumer_byte_rate").check()
    assert (code, kinds(report)) == (0, [])
    assert report["bytes"] > 3 * 6000 * 500


def test_damage_on_a_disk_that_is_not_seen_is_found_in_what_its_broker_sends(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, differing = segment(trio.nodes[2], 0), segment(trio.nodes[3], 1)
    rewrite_a_batch(damaged, fixes_checksum=False)
    rewrite_a_batch(differing, fixes_checksum=True)
    code, report = audit(trio, capsys, "--fetch")
    assert code == 1
    assert sorted(kinds(report)) == [
        ("batch-checksum", f"broker 2:{damaged.parent}"),
        ("replica-differs", f"broker 3:{differing.parent}"),
    ]
    # Tasks of Spark fetch ranges of offsets, and find the same.
    code, report = audit(trio, capsys, "--fetch", "--spark", "local[2]")
    assert code == 1
    assert sorted(kinds(report)) == [
        ("batch-checksum", f"broker 2:{damaged.parent}"),
        ("replica-differs", f"broker 3:{differing.parent}"),
    ]
    # One disk is seen now: its file is compared with what the other brokers send.
    code, report = audit(trio, capsys, "--fetch", *map(str, trio.nodes[3].log_dirs))
    assert code == 1
    assert sorted(kinds(report)) == [
        ("batch-checksum", f"broker 2:{damaged.parent}"),
        ("replica-differs", str(differing.parent)),
    ]


def test_a_replica_that_its_broker_believes_longer_than_its_files_is_found(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(trio.nodes[3], 2)
    cut = list(batches(path.read_bytes()))[-1][0]
    os.truncate(path, cut)
    code, report = audit(trio, capsys, *map(str, trio.nodes[3].log_dirs))
    assert code == 1
    assert ("replica-size", str(path.parent)) in kinds(report)


def test_a_broker_that_hangs_is_named_and_the_audit_ends(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    os.kill(trio.nodes[2].pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        code, report = audit(trio, capsys)
        assert time.monotonic() - started < 2 * LIMIT_S
    finally:
        os.kill(trio.nodes[2].pid, signal.SIGCONT)
    assert code == 2
    assert ("broker-silent", "broker 2") in kinds(report)
    silent = next(broker for broker in report["brokers"] if broker["id"] == 2)
    assert silent["error"]
