"""Transactional clients of librdkafka: a producer of the ledger, and its exactly-once copier."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from spindle.common import ids
from spindle.testing.histories.events import (
    Assigned,
    CommitAsked,
    Delivered,
    NumberedRecord,
    OffsetSent,
    RecordSent,
    TransactionEnded,
)
from verification.rehearsal.librdkafka_clients import (
    QUIET,
    ClientThread,
    parsed,
    place,
)
from verification.rehearsal.recorder import Recorder

_PAUSE_S: Final = 0.05
_POLL_S: Final = 0.1
_CALL_S: Final = 20.0
_BATCH: Final = 20
_ABORT_EVERY: Final = 5
_ENDED_S: Final = 60.0
_OFFSETS_S: Final = 12.0


class TransactionalThread(ClientThread):
    """A client with one transactional id; after an error a new instance takes its place."""

    def new_producer(self) -> Producer:
        """Return an instance that has fenced the earlier ones and ended their transactions."""
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"{self.topic}-{self.name}",
                "transaction.timeout.ms": 10_000,
                "linger.ms": 2,
            }
        )
        producer.init_transactions(_CALL_S)
        return producer

    def work(self) -> None:
        count = 0
        while not self.is_over.is_set():
            try:
                producer = self.new_instance()
                may_continue = True
                while may_continue and not self.is_over.wait(_PAUSE_S):
                    count += 1
                    is_abort = count % _ABORT_EVERY == 0
                    may_continue = self.transact(
                        producer, f"{self.name}/{count}", is_abort=is_abort
                    )
            except (KafkaException, TimeoutError):
                # The outcome is not known, or it is an abort: the next instance fences this one.
                self.is_over.wait(_PAUSE_S)
        self._end_all()

    def new_instance(self) -> Producer:
        """Begin anew with all clients that this one consists of."""
        return self.new_producer()

    def _end_all(self) -> None:
        """Wait until all transactions have ended in all partitions, so that logs can be read.

        A commit is answered before its markers are written, and the transaction of a commit that
        failed may still be open.
        """
        ends_s = time.monotonic() + _ENDED_S
        while True:
            try:
                self.new_producer()
            except KafkaException:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def transact(self, producer: Producer, name: str, *, is_abort: bool) -> bool:
        """Run one transaction; return False if a new instance must continue."""
        raise NotImplementedError

    def end(self, producer: Producer, name: str, *, is_abort: bool) -> None:
        """Commit or abort, and note the outcome once it is known."""
        if is_abort:
            producer.abort_transaction(_CALL_S)
        else:
            self.recorder.note(CommitAsked(name))
            producer.commit_transaction(_CALL_S)
        self.recorder.note(TransactionEnded(name, not is_abort))


class LedgerProducer(TransactionalThread):
    """Writes some numbered records in each transaction."""

    def __init__(self, name: str, bootstrap: str, topic: str, recorder: Recorder) -> None:
        self._number = 0
        super().__init__(name, bootstrap, topic, recorder)

    def transact(self, producer: Producer, name: str, *, is_abort: bool) -> bool:
        producer.begin_transaction()
        for _ in range(3):
            record = NumberedRecord(self.name, self._number)
            self._number += 1
            self.recorder.note(RecordSent(record, self.topic, name))
            producer.produce(self.topic, str(record).encode())
        self.end(producer, name, is_abort=is_abort)
        return True


class CopierThread(TransactionalThread):
    """A member of a group that copies the topic; its offsets are parts of its transactions."""

    def __init__(
        self, group: str, target: str, name: str, bootstrap: str, topic: str, recorder: Recorder
    ) -> None:
        self._group = group
        self._target = target
        self._consumer: Consumer | None = None
        self._membership: object = None
        self._batch: list[Message] = []
        super().__init__(name, bootstrap, topic, recorder)

    def work(self) -> None:
        try:
            super().work()
        finally:
            self._leave()

    def new_instance(self) -> Producer:
        self._leave()
        producer = self.new_producer()
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe(
            [self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        return producer

    def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        # Later, the consumer may have been removed from the group. Its metadata then name no
        # generation, and the coordinator would not refuse its offsets.
        self._membership = consumer.consumer_group_metadata()
        for partition in partitions:
            where = ids.TopicPartition(partition.topic, partition.partition)
            self.recorder.note(Assigned(self._group, self.name, where))

    def _revoked(self, _consumer: Any, _partitions: list[TopicPartition]) -> None:
        # The next owner of the partitions begins at the committed offsets.
        self._batch.clear()

    def _consume(self, consumer: Consumer) -> list[Message]:
        """Return the next records, all of the present assignment."""
        self._batch.clear()
        while len(self._batch) < _BATCH:
            message = consumer.poll(_POLL_S)
            if message is None:
                break
            if message.error() is None:
                self._batch.append(message)
        return self._batch

    def transact(self, producer: Producer, name: str, *, is_abort: bool) -> bool:
        assert self._consumer is not None
        messages = self._consume(self._consumer)
        if not messages:
            return True
        producer.begin_transaction()
        ends: dict[ids.TopicPartition, int] = {}
        for message in messages:
            value, offset = message.value(), message.offset()
            assert value is not None
            assert offset is not None
            where, record = place(message), parsed(value)
            self.recorder.note(Delivered(self._group, self.name, where, offset, record))
            self.recorder.note(RecordSent(record, self._target, name))
            producer.produce(self._target, value, partition=where.partition)
            ends[where] = offset + 1
        for where, end in ends.items():
            self.recorder.note(OffsetSent(self._group, where, end, name))
        offsets = [TopicPartition(*where, end) for where, end in ends.items()]
        within(
            _OFFSETS_S,
            lambda: producer.send_offsets_to_transaction(offsets, self._membership, _CALL_S),
        )
        self.end(producer, name, is_abort=is_abort)
        # After an abort the next instance begins at the committed offsets again.
        return not is_abort


def within(timeout_s: float, call: Callable[[], object]) -> None:
    """Make a call that may never return; give up after `timeout_s`, as if the client were killed.

    `send_offsets_to_transaction` ignores its timeout, and may wait forever for a coordinator that
    was restarted (https://github.com/confluentinc/librdkafka/issues/5456).

    Raises:
        TimeoutError: it has not returned.
        KafkaException: it has failed.
    """
    failures: list[KafkaException] = []

    def run() -> None:
        try:
            call()
        except KafkaException as failed:
            failures.append(failed)

    thread = threading.Thread(target=run, name="a call that may hang", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise TimeoutError
    if failures:
        raise failures[0]
