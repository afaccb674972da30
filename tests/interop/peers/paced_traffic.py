"""An idempotent producer with acks=all that notes when each record is acknowledged."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import cycle, pairwise

from confluent_kafka import Message, Producer
from waiting import wait_for

from peers.verified_traffic import read_all

LIMIT_S = 180.0
_LAST_LIMIT_S = 60.0
"""For the last acknowledgements."""
_MAX_UNACKNOWLEDGED = 100
"""Records of a partition; a partition that stalls for long has then little to make up for."""


class PacedTraffic:
    """One producer that writes to all partitions in turn, until the end of the `with` block.

    The values of a partition count up. All partitions share one producer, and with it the requests
    to a broker, so that a partition that stalls can hold up others. A partition with many records
    that are not acknowledged is left out.

    Args:
        value_bytes: the least size of a value, which ends with blanks.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        records_per_s: int = 500,
        value_bytes: int = 0,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / records_per_s
        self._value_bytes = value_bytes
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._acks: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
        self.refused: list[str] = []

    def __enter__(self) -> PacedTraffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more, and wait for the last acknowledgements."""
        self._must_stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                # With batches of one record, librdkafka has none to put together again for a retry:
                # after a long stall that can fail, and it is the end of the producer.
                "batch.num.messages": 1,
                "message.timeout.ms": 600_000,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        written = [0] * self._partitions
        for partition in cycle(range(self._partitions)):
            if self._must_stop.wait(self._pause_s):
                break
            producer.poll(0)
            value = written[partition]
            if value - len(self._acks[partition]) >= _MAX_UNACKNOWLEDGED:
                continue
            producer.produce(
                self._topic,
                (b"%d" % value).ljust(self._value_bytes),
                partition=partition,
                on_delivery=self._delivered,
            )
            written[partition] += 1
        producer.flush(_LAST_LIMIT_S)

    def _delivered(self, error: object, record: Message) -> None:
        partition, offset, value = record.partition(), record.offset(), record.value()
        if error is not None:
            self.refused.append(str(error))
            return
        assert partition is not None
        assert value is not None
        # A new leader of Kafka knows that a record is a duplicate, but not always of which offset.
        known = -1 if offset is None else offset
        self._acks[partition].append((time.monotonic(), known, int(value)))

    def count(self) -> int:
        """Return the number of acknowledged records."""
        return sum(map(len, self._acks.values()))

    def wait_for_more(self, per_partition: int = 20) -> None:
        """Return when each partition has so many more acknowledged records than now."""
        wanted = {p: len(self._acks[p]) + per_partition for p in range(self._partitions)}
        wait_for(
            lambda: [p for p, count in wanted.items() if len(self._acks[p]) < count],
            lambda lagging: not lagging,
            "each partition has more acknowledgements",
            limit_s=LIMIT_S,
            pause_s=0.01,
        )

    def longest_gap_s(self, partition: int, since_s: float) -> float:
        """Return the longest time between two acknowledgements that ended after `since_s`."""
        times = [at for at, _, _ in self._acks[partition]]
        return max((end - start for start, end in pairwise(times) if end > since_s), default=0.0)

    def check(self) -> None:
        """Assert that every acknowledged record is read once, at its offset, in order."""
        assert not self.refused, self.refused[:3]
        stored = read_all(self._bootstrap, self._topic)
        for partition, acks in self._acks.items():
            read = {*stored[partition], *((-1, value) for _, value in stored[partition])}
            lost = {(offset, value) for _, offset, value in acks} - read
            assert not lost, f"partition {partition}: acknowledged and lost: {sorted(lost)[:5]}"
            values = [value for _, value in stored[partition]]
            assert values == sorted(set(values)), f"partition {partition}: out of order or twice"
