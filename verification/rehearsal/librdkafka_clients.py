"""Unmodified clients of librdkafka at work: producers, members of a group, a reader of offsets."""

import sys
import threading
import traceback
from abc import ABC, abstractmethod
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from spindle.common import ids
from spindle.testing.histories.events import (
    Acknowledged,
    Assigned,
    Delivered,
    NumberedRecord,
    OffsetCommitted,
    OffsetRead,
    OffsetsAsked,
    OffsetSent,
    RecordSent,
)
from verification.rehearsal.recorder import Recorder

_PACE_S: Final = 0.008
_POLL_S: Final = 0.1
_COMMIT_EVERY: Final = 40
_ASK_EVERY_S: Final = 0.3
READ_S: Final = 60.0
QUIET: Final = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 300}


def parsed(value: bytes) -> NumberedRecord:
    """Return the record that a client wrote as `producer.number`."""
    producer, _, number = value.decode().partition(".")
    return NumberedRecord(producer, int(number))


def acknowledgement(message: Message) -> Acknowledged:
    """Return what a delivery report without an error says.

    librdkafka gives no offset, or a negative one, for a batch that the broker had already.
    """
    value, offset = message.value(), message.offset()
    assert value is not None
    is_known = offset is not None and offset >= 0
    return Acknowledged(parsed(value), place(message), offset if is_known else None)


def place(message: Message) -> ids.TopicPartition:
    """Return the partition of a message that has been in one."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return ids.TopicPartition(topic, partition)


class ClientThread(ABC):
    """A client on a thread of its own. An exception that it does not expect is a trouble."""

    def __init__(self, name: str, bootstrap: str, topic: str, recorder: Recorder) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.topic = topic
        self.recorder = recorder
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end."""
        self.is_over.set()

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.recorder.record_error(
                f"{self.name} has not ended after {timeout_s:.0f} s: {self._position()}"
            )

    def _position(self) -> str:
        """Return the calls that the thread is in, so that a client that hangs can be found."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        calls = traceback.extract_stack(frame) if frame is not None else []
        return " > ".join(f"{call.name}, line {call.lineno}" for call in calls[-4:])

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the rehearsal reports it
            self.recorder.record_error(f"{self.name}: {error!r}")

    @abstractmethod
    def work(self) -> None:
        """Do the work of the client until `is_over` is set."""


class ProducerThread(ClientThread):
    """An idempotent producer with acks=all; it numbers its records."""

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
        while not self.is_over.is_set():
            record = NumberedRecord(self.name, number)
            self.recorder.note(RecordSent(record, self.topic))
            producer.produce(self.topic, str(record).encode(), on_delivery=self._delivered)
            number += 1
            producer.poll(0)
            self.is_over.wait(_PACE_S)
        left = producer.flush(READ_S)
        if left:
            self.recorder.record_error(
                f"producer {self.name}: {left} records wait for their answers"
            )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.recorder.record_error(f"producer {self.name}: {error}")
            return
        self.recorder.note(acknowledgement(message))


class MemberThread(ClientThread):
    """A member of a group, which commits what it has got."""

    def __init__(
        self, group: str, name: str, bootstrap: str, topic: str, recorder: Recorder
    ) -> None:
        self.group = group
        super().__init__(name, bootstrap, topic, recorder)

    def work(self) -> None:
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.subscribe([self.topic], on_assign=self._assigned)
        got = 0
        while not self.is_over.is_set():
            message = consumer.poll(_POLL_S)
            if message is None or message.error() is not None:
                continue
            value, partition, offset = message.value(), place(message), message.offset()
            assert value is not None
            assert offset is not None
            self.recorder.note(Delivered(self.group, self.name, partition, offset, parsed(value)))
            got += 1
            if got % _COMMIT_EVERY == 0:
                self._commit(consumer, partition, offset + 1)
        consumer.close()

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            where = ids.TopicPartition(partition.topic, partition.partition)
            self.recorder.note(Assigned(self.group, self.name, where))

    def _commit(self, consumer: Any, partition: ids.TopicPartition, offset: int) -> None:
        self.recorder.note(OffsetSent(self.group, partition, offset))
        try:
            answer = consumer.commit(
                offsets=[TopicPartition(*partition, offset)], asynchronous=False
            )
        except KafkaException:
            return  # whether it was committed is not known
        if answer and answer[0].error is None:
            self.recorder.note(OffsetCommitted(self.group, partition, offset))


class OffsetReader(ClientThread):
    """Asks again and again what a group has committed."""

    def __init__(
        self, group: str, partitions: int, bootstrap: str, topic: str, recorder: Recorder
    ) -> None:
        self.group = group
        self.partitions = partitions
        super().__init__(f"offsets of {group}", bootstrap, topic, recorder)

    def work(self) -> None:
        consumer = Consumer({**QUIET, "bootstrap.servers": self.bootstrap, "group.id": self.group})
        wanted = [TopicPartition(self.topic, index) for index in range(self.partitions)]
        while not self.is_over.wait(_ASK_EVERY_S):
            question = self.recorder.new_question()
            self.recorder.note(OffsetsAsked(self.group, question))
            try:
                answer = consumer.committed(wanted, timeout=3.0)
            except KafkaException:
                continue
            for row in answer:
                if row.error is None:
                    offset = max(row.offset, -1)
                    where = ids.TopicPartition(row.topic, row.partition)
                    self.recorder.note(OffsetRead(self.group, question, where, offset))
        consumer.close()


def read_log(bootstrap: str, topic: str, partition: int) -> dict[int, NumberedRecord]:
    """Return all records of a partition by offset, once its end is reached.

    Raises:
        TimeoutError: the end is not reached.
    """
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": f"audit of {topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        log: dict[int, NumberedRecord] = {}
        for message in iter(lambda: consumer.poll(READ_S), None):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return log
            if error is None:
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                log[offset] = parsed(value)
    finally:
        consumer.close()
    raise TimeoutError(f"the end of {topic}-{partition} was not reached in {READ_S:.0f} s")
