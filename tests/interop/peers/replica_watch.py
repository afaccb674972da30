"""Looks at the replicas of a topic again and again, and keeps what should never be."""

from __future__ import annotations

import threading

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

_PAUSE_S = 0.1
_LIMIT_S = 180.0
_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.UNKNOWN,  # Kafka's answer to a fetch from a disk that dies while it is read
)


class ReplicaWatch:
    """Two threads, until the end of the `with` block: one looks at metadata, one consumes.

    Each partition must always have its replicas on so many different brokers, and in-sync ones.
    The values of a partition must count up from 0.

    Args:
        least_in_sync: by partition, at every look.
    """

    def __init__(
        self, bootstrap: str, topic: str, *, replication_factor: int, least_in_sync: int
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._replication_factor = replication_factor
        self._least_in_sync = least_in_sync
        self._must_stop = threading.Event()
        self._threads = [
            threading.Thread(target=function) for function in (self._look, self._consume)
        ]
        self.faults: list[str] = []
        self.looks = 0
        self.consumed: dict[int, int] = {}

    def __enter__(self) -> ReplicaWatch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._must_stop.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Assert that nothing was wrong, and that there was something to see."""
        assert not self.faults, self.faults[:5]
        assert self.looks > 5
        assert all(self.consumed.values())

    def _look(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        while not self._must_stop.wait(_PAUSE_S):
            try:
                known = admin.list_topics(self._topic, timeout=5).topics[self._topic].partitions
            except KafkaException:
                continue  # the broker that was asked is the one that was killed
            self.looks += 1
            for number, partition in known.items():
                if len(set(partition.replicas)) < self._replication_factor:
                    self.faults.append(f"partition {number} has replicas {partition.replicas}")
                if len(partition.isrs) < self._least_in_sync:
                    self.faults.append(f"partition {number} has ISR {partition.isrs}")

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "watch",
                "enable.auto.commit": False,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
            }
        )
        partitions = consumer.list_topics(self._topic, _LIMIT_S).topics[self._topic].partitions
        self.consumed = dict.fromkeys(partitions, 0)
        consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in partitions])
        while not self._must_stop.is_set():
            for record in consumer.consume(1000, 0.1):
                error, partition, value = record.error(), record.partition(), record.value()
                if error is not None:
                    if error.code() not in _PASSING and not error.retriable():
                        self.faults.append(str(error))
                    continue
                assert partition is not None
                assert value is not None
                if int(value) != self.consumed[partition]:
                    expected = self.consumed[partition]
                    self.faults.append(f"partition {partition}: {value!r} after {expected} records")
                self.consumed[partition] = int(value) + 1
        consumer.close()
