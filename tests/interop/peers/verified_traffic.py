"""Kafka's VerifiableProducer beside a test, and the check that no acknowledged record was lost."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import defaultdict
from operator import not_
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from waiting import wait_for

from peers.clients import position_of
from peers.java_tools import QUICK_JVM, java_command, main_class

LIMIT_S = 60.0


class VerifiedTraffic:
    """An idempotent producer with acks=all that runs until the end of the `with` block.

    Its values count up from 0. It repeats a record until the record is acknowledged.
    """

    def __init__(self, folder: Path, bootstrap: str, topic: str, records_per_s: int = 300) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._records_per_s = records_per_s
        self._settings = folder / "producer.properties"
        self._settings.write_text(
            "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=120000\n"
            "request.timeout.ms=10000\nlinger.ms=0\nmax.in.flight.requests.per.connection=5\n"
        )
        self._output = folder / "producer.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VerifiedTraffic:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *java_command(*QUICK_JVM), main_class("verifiable-producer"),
                    "--bootstrap-server", self._bootstrap, "--topic", self._topic,
                    "--acks", "-1", "--throughput", str(self._records_per_s),
                    "--command-config", str(self._settings),
                ],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def acknowledged(self) -> dict[int, list[tuple[int, int]]]:
        """Return (offset, value) by partition, in the order of acknowledgement."""
        by_partition: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for event in self._events("producer_send_success"):
            by_partition[event["partition"]].append((event["offset"], int(event["value"])))
        return by_partition

    def refused(self) -> list[dict[str, Any]]:
        """Return the records that the producer gave up."""
        return self._events("producer_send_error")

    def _events(self, name: str) -> list[dict[str, Any]]:
        lines = self._output.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return [event for event in events if event["name"] == name]

    def check(self) -> int:
        """Assert that every acknowledged record is read once, at its offset, in order; return their
        number.

        Raises:
            AssertionError: a record is missing, has moved, or is there twice.
        """
        acknowledged = self.acknowledged()
        assert not self.refused(), self.refused()[:3]
        stored = read_all(self._bootstrap, self._topic)
        for partition, expected in acknowledged.items():
            values = [value for _, value in stored[partition]]
            missing = sorted(set(expected) - set(stored[partition]))
            assert not missing, f"partition {partition}: acknowledged and lost: {missing[:5]}"
            assert values == sorted(set(values)), f"partition {partition}: out of order or twice"
        return sum(map(len, acknowledged.values()))


def read_all(bootstrap: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Return (offset, value) of every record by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader of everything",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    stored: dict[int, list[tuple[int, int]]] = defaultdict(list)
    try:
        partitions = consumer.list_topics(topic, LIMIT_S).topics[topic].partitions
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), LIMIT_S)[1]
            for p in partitions
        }
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        unread = {p for p, end in ends.items() if end > 0}

        def unread_partitions() -> set[int]:
            # A short wait: the call returns earlier only if it has as many records as it asked for.
            for record in consumer.consume(1000, 0.2):
                assert record.error() is None, record.error()
                value = record.value()
                assert value is not None
                partition, offset = position_of(record)
                stored[partition].append((offset, int(value)))
                if offset + 1 >= ends[partition]:
                    unread.discard(partition)
            return unread

        if unread:
            wait_for(unread_partitions, not_, f"{topic} is read", limit_s=LIMIT_S, pause_s=0)
    finally:
        consumer.close()
    return stored
