"""Records that are written beside a test, in a known order."""

from __future__ import annotations

import threading
from collections import defaultdict
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

LIMIT_S = 60.0
KEYS = 40


class SteadyInput(threading.Thread):
    """An idempotent producer that writes numbered values until the end of the `with` block.

    Its values are "partition-number"; `written` has those that were acknowledged, in order. There
    are `KEYS` keys, each in one partition.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, records_per_s: int = 400
    ) -> None:
        super().__init__()
        assert KEYS % partitions == 0
        self.written: dict[int, list[bytes]] = defaultdict(list)
        self.refused: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._records_per_s = records_per_s
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def __enter__(self) -> SteadyInput:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._is_over.set()
        self.join()
        if kind is None:
            assert not self.refused, self.refused[:3]

    def run(self) -> None:
        number = 0
        while not self._is_over.wait(0.1):
            for _ in range(self._records_per_s // 10):
                partition = number % self._partitions
                value = f"{partition}-{number}".encode()
                self._producer.produce(
                    self._topic,
                    value,
                    f"key{number % KEYS}",
                    partition=partition,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0)
        if self._producer.flush(LIMIT_S):
            self.refused.append("records were not acknowledged in time")

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        partition, value = record.partition(), record.value()
        if error is not None:
            self.refused.append(str(error))
        elif partition is not None and value is not None:
            self.written[partition].append(value)
