"""A compacted topic under faults: the newest acknowledged record of each key has to stay."""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from spindle.testing.histories.events import NumberedRecord
from verification.rehearsal.librdkafka_clients import (
    QUIET,
    READ_S,
    ClientThread,
    acknowledgement,
)
from verification.rehearsal.recorder import Recorder

COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
}
"""The settings of a topic whose partitions are compacted all the time."""

_KEYS: Final = 12
_PACE_S: Final = 0.02


class NewestRecords:
    """The newest acknowledged record of each key of one producer."""

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._numbers: dict[int, int] = {}

    def key(self, number: int) -> str:
        """Return the key of the producer's record with this number."""
        return f"{self._producer}.{number % _KEYS}"

    def acknowledged(self, number: int) -> None:
        self._numbers[number % _KEYS] = max(number, self._numbers.get(number % _KEYS, -1))

    def lost(self, stored: Iterable[NumberedRecord]) -> list[str]:
        """Return a line for each key whose newest acknowledged record is not stored.

        Args:
            stored: the records of all partitions. A newer record, whose acknowledgement the
                producer never got, may have replaced the acknowledged one.
        """
        newest: dict[int, int] = {}
        for record in stored:
            if record.producer == self._producer:
                key = record.number % _KEYS
                newest[key] = max(record.number, newest.get(key, -1))
        return [
            f"record {number} of key {self.key(number)} was acknowledged, and the newest one in "
            f"the log is {newest.get(key, 'none')}"
            for key, number in sorted(self._numbers.items())
            if newest.get(key, -1) < number
        ]


class KeyedProducer(ClientThread):
    """An idempotent producer that writes a few keys in turn, each record with a higher number."""

    def __init__(self, name: str, bootstrap: str, topic: str, recorder: Recorder) -> None:
        self.newest = NewestRecords(name)
        super().__init__(name, bootstrap, topic, recorder)

    def work(self) -> None:
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
            }
        )
        number = 0
        while not self.is_over.wait(_PACE_S):
            record = str(NumberedRecord(self.name, number)).encode()
            key = self.newest.key(number).encode()
            producer.produce(self.topic, record, key, on_delivery=self._delivered)
            number += 1
            producer.poll(0)
        left = producer.flush(READ_S)
        if left:
            self.recorder.record_error(
                f"producer {self.name}: {left} records wait for their answers"
            )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.recorder.record_error(f"producer {self.name}: {error}")
            return
        self.newest.acknowledged(acknowledgement(message).record.number)
