"""The same log compacted by Kafka and by Spindle: the same batches stay, and each goes on with the
other's.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from peers.clients import create, position_of, settings, watermarks
from peers.node import KafkaNode, Node
from waiting import wait_for

from spindle.protocol.records.batch import batches
from spindle.protocol.records.record import Record, decode_records

pytestmark = pytest.mark.timeout(240)

LIMIT_S = 60.0
TOPIC = "compacted"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "3600000",
}
QUIET = {"log.cleaner.enable": "false"}
CLEANING = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "100"}

_turns = count()


def start(
    node_class: type[Node], folder: Path, first: Node | None, overrides: dict[str, str]
) -> Node:
    node = node_class(
        folder / f"node-{next(_turns)}",
        directory_count=1,
        overrides=dict(overrides),
        log_dirs=[] if first is None else first.log_dirs,
        cluster_id=first.cluster_id if first else "4L6g3nShT-eMCtK--X86sw",
    )
    if first is None:
        node.format()
    node.start()
    return node


def copy_of(node: Node, folder: Path) -> list[Path]:
    shutil.copytree(node.log_dirs[0], folder)
    return [folder]


def fill(node: Node, seed: int) -> None:
    """Produce with and without transactions, with all codecs, tombstones, aborted records and old
    timestamps.
    """
    now_ms = int(time.time() * 1000)
    chosen = random.Random(seed)
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    plain = [
        Producer(
            settings(node, compression_type=codec, linger_ms=5, enable_idempotence=codec > "l")
        )
        for codec in codecs
    ]
    transactional = [
        Producer(settings(node, transactional_id=f"t-{seed}-{number}", linger_ms=5))
        for number in range(2)
    ]
    for item in transactional:
        item.init_transactions(LIMIT_S)
    for turn in range(40):
        number = chosen.randrange(len(plain) + len(transactional))
        producer = (plain + transactional)[number]
        is_transactional = number >= len(plain)
        if is_transactional:
            producer.begin_transaction()
        for _ in range(chosen.randrange(1, 60)):
            value = None if chosen.random() < 0.1 else chosen.randbytes(chosen.randrange(5000))
            key = b"key-%d" % chosen.randrange(200)
            age_ms = chosen.choice((0, 0, 0, 60_000, 3 * 86_400_000))
            producer.produce(
                TOPIC, value, key, 0, timestamp=now_ms - age_ms, headers={"t": str(turn)}
            )
        assert producer.flush(LIMIT_S) == 0
        if is_transactional and chosen.random() < 0.4:
            producer.abort_transaction(LIMIT_S)
        elif is_transactional:
            producer.commit_transaction(LIMIT_S)


def wait_until_clean(node: Node) -> None:
    """Wait until everything below the active segment is clean, and old files are gone."""
    folder = node.log_dirs[0] / f"{TOPIC}-0"
    checkpoint = node.log_dirs[0] / "cleaner-offset-checkpoint"

    def state() -> tuple[bool, list[Path], str]:
        active = max(int(path.stem) for path in folder.glob("*.log"))
        left = [*folder.glob("*.deleted"), *folder.glob("*.swap"), *folder.glob("*.cleaned")]
        checkpointed = checkpoint.read_text()
        return f"{TOPIC} 0 {active}" in checkpointed.splitlines(), left, checkpointed

    wait_for(state, lambda state: state[0] and not state[1], "all is clean", limit_s=LIMIT_S)


Batch = tuple[int, int, int, int, int, bool, list[Record]]


def content(directory: Path) -> list[Batch]:
    """All batches: offsets, flags, producer, whether there is a horizon, records."""
    content: list[Batch] = []
    for path in sorted((directory / f"{TOPIC}-0").glob("*.log")):
        data = path.read_bytes()
        for position, header in batches(data):
            content.append(
                (
                    header.base_offset,
                    header.last_offset,
                    header.attributes & 0x3F,
                    header.producer_id,
                    header.base_sequence,
                    header.delete_horizon_ms is not None,
                    decode_records(data, position, header),
                )
            )
    return content


def aborted(directory: Path) -> bytes:
    indexes = sorted((directory / f"{TOPIC}-0").glob("*.txnindex"))
    return b"".join(path.read_bytes() for path in indexes)


def read_all(node: Node, isolation: str) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer(
        settings(node, group_id="reader", isolation_level=isolation, enable_partition_eof=True)
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            break
        _, offset = position_of(message)
        yield offset, message.key(), message.value()
    consumer.close()


def ends(node: Node) -> tuple[int, int]:
    consumer = Consumer(settings(node, group_id="ends"))
    try:
        return watermarks(consumer, TopicPartition(TOPIC, 0))
    finally:
        consumer.close()


def test_both_leave_the_same_batches_and_continue_with_the_others(
    tmp_path: Path, candidate_class: type[Node]
) -> None:
    first = start(KafkaNode, tmp_path, None, QUIET)
    create(first, TOPIC, 1, CONFIG)
    for seed in (1, 2, 3):
        fill(first, seed)
    end = ends(first)
    committed = {key: value for _, key, value in read_all(first, "read_committed")}
    first.stop()
    copies = [copy_of(first, tmp_path / name) for name in ("kafka", "candidate")]
    by_kafka = start(KafkaNode, tmp_path, replace(first, log_dirs=copies[0]), CLEANING)
    by_spindle = start(candidate_class, tmp_path, replace(first, log_dirs=copies[1]), CLEANING)
    try:
        for node in (by_kafka, by_spindle):
            wait_until_clean(node)
            assert ends(node) == end
        assert content(by_spindle.log_dirs[0]) == content(by_kafka.log_dirs[0])
        assert aborted(by_spindle.log_dirs[0]) == aborted(by_kafka.log_dirs[0])
        for node in (by_kafka, by_spindle):
            values = {key: value for _, key, value in read_all(node, "read_committed")}
            assert values == committed
    finally:
        by_kafka.stop()
        by_spindle.stop()
    # Each continues on the other's directory.
    swapped = [
        start(candidate_class, tmp_path, by_kafka, CLEANING),
        start(KafkaNode, tmp_path, by_spindle, CLEANING),
    ]
    try:
        contents = []
        for node in swapped:
            producer = Producer(settings(node, linger_ms=5))
            for number in range(1500):
                producer.produce(TOPIC, b"%d" % number * 400, b"key-%d" % (number % 50), 0)
                if number % 50 == 49:
                    assert producer.flush(LIMIT_S) == 0
            wait_until_clean(node)
            values = {key: value for _, key, value in read_all(node, "read_committed")}
            newer = {b"key-%d" % (n % 50): b"%d" % n * 400 for n in range(1500)}
            assert values == committed | newer
            contents.append([(b[0], b[1], len(b[6])) for b in content(node.log_dirs[0])])
        assert contents[0] == contents[1]
    finally:
        for node in swapped:
            node.stop()
