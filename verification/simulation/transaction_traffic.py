"""Transactional producers, exactly-once copiers, and readers with both isolation levels.

Producers write to the ledger, copiers copy it. Producers hang in the middle of a transaction, and
continue after a newer instance has replaced them. The history of all of them is checked at the end.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from spindle.common.ids import OFFSETS_TOPIC, TopicPartition
from spindle.coordinator.partitioning import partition_for
from spindle.metadata.features import TRANSACTION_VERSION
from spindle.protocol.sentinels import READ_COMMITTED, READ_UNCOMMITTED
from spindle.testing.histories.checker import check
from spindle.testing.histories.client_history import ClientHistory, Copy
from spindle.testing.histories.events import (
    Assigned,
    Delivered,
    NumberedRecord,
    OffsetRead,
    OffsetsAsked,
)
from verification.simulation.admin import Admin
from verification.simulation.client import SimulatedClient
from verification.simulation.coordinator_link import OF_GROUPS, CoordinatorLink
from verification.simulation.copier import Copier, stable_offset
from verification.simulation.metadata_oracle import MetadataOracle
from verification.simulation.partition_reader import PartitionReader
from verification.simulation.record_oracle import RecordOracle
from verification.simulation.scenario import Scenario
from verification.simulation.topic import Topic
from verification.simulation.transactional_producer import (
    ProducerFenced,
    TransactionalProducer,
    TransactionFailed,
    payload_of,
)
from verification.simulation.verdict import Verdict

LEDGER: Final = "ledger"
COPIES: Final = "copies"
_COPIERS: Final = "copiers"
_READERS: Final = "readers"
_PARTITIONS: Final = 2
_MARKER_RETENTION_MS: Final = 10_000
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(_MARKER_RETENTION_MS),
}


class TransactionTraffic:
    """All of these clients.

    Args:
        spawn: runs a client as a task of the clients' host.
        new_client: makes its connections.
    """

    def __init__(
        self,
        scenario: Scenario,
        metadata: MetadataOracle,
        verdict: Verdict,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        new_client: Callable[[str], SimulatedClient],
    ) -> None:
        self.history = ClientHistory(must_read={_READERS: [LEDGER, COPIES]})
        self.topics: list[Topic] = []
        self._scenario = scenario
        self._random = Random(f"transactions of {scenario.seed}")
        self._metadata = metadata
        self._verdict = verdict
        self._spawn = spawn
        self._new_client = new_client
        self._note = self.history.events.append
        self._writers: list[tuple[str, asyncio.Task[None]]] = []
        self._working: dict[str, TransactionalProducer] = {}
        self._readers: list[PartitionReader] = []
        self._committed: dict[TopicPartition, int] = {}
        self._copiers: list[Copier] = []
        self._zombies: list[asyncio.Task[None]] = []
        self._stage = 0
        self._is_writing = True
        self._instances = 0
        self._questions = 0

    async def create(self, admin: Admin, replication_factor: int, records: RecordOracle) -> None:
        """Create the topics, which are compacted in some runs.

        Their keys are unique, so that compaction removes only records of aborted transactions. A
        replica that is behind for longer than `delete.retention.ms` may miss markers.
        """
        is_compacted = self._scenario.deeds.compacts
        configs = _COMPACTED if is_compacted else {}
        for name in (LEDGER, COPIES):
            topic = await admin.create(name, _PARTITIONS, replication_factor, configs)
            for index in range(topic.partitions):
                oracle = records.of(topic.topic_id, topic.name, index)
                oracle.is_compacted = is_compacted
                if self._scenario.are_clocks_right:
                    oracle.delete_retention_s = _MARKER_RETENTION_MS / 1000
            self.topics.append(topic)

    def open(self) -> None:
        """Start all clients."""
        ledger, copies = self.topics
        self.history.copies.append(Copy(_COPIERS, LEDGER, COPIES))
        for name in ("writer1", "writer2"):
            self._writers.append((name, self._spawn(self._write(name, ledger))))
        for topic in self.topics:
            for index in range(_PARTITIONS):
                for level in (READ_COMMITTED, READ_UNCOMMITTED):
                    self._spawn(self._read(topic, index, level))
        for name in ("copier1", "copier2"):
            copier = Copier(
                name,
                _COPIERS,
                self._new_client(name),
                ledger,
                copies,
                lambda name=name: self._new_producer(name),  # type: ignore[misc]
                self._note,
                Random(self._random.randbytes(8)),
            )
            self._copiers.append(copier)
            self._spawn(copier.run(lambda: self._is_writing))
        self._spawn(self._ask_offsets(ledger))

    def finish(self) -> None:
        """Begin nothing new but copies."""
        self._is_writing = False

    @property
    def unfinished(self) -> str | None:
        """The work that clients still wait for; None if they have finished."""
        for name, task in self._writers:
            if not task.done():
                return f"{name}: {self._working[name].waits_for}"
        if not all(task.done() for task in self._zombies):
            return "a zombie"
        # An end that a reader saw earlier may not be the end any more.
        self._look_again(stage=1)
        ends: dict[TopicPartition, int] = {}
        for reader in self._readers:
            if not reader.is_at_end:
                return reader.waits_for
            if reader.position:
                ends[reader.where] = reader.position
        for where, end in ends.items():
            if where.topic == LEDGER and self._committed.get(where, -1) < end:
                waits = "; ".join(copier.waits_for for copier in self._copiers)
                return f"the copiers of {where}: at {self._committed.get(where)} of {end}: {waits}"
        self._look_again(stage=2)
        return next((reader.waits_for for reader in self._readers if not reader.is_at_end), None)

    def _look_again(self, *, stage: int) -> None:
        """Let all readers find the end of their logs again, once in each stage of the end."""
        if self._stage < stage:
            self._stage = stage
            for reader in self._readers:
                reader.is_at_end = False

    async def audit(self) -> None:
        """Read all logs once more from their beginning, and check the history."""
        if not self.topics:
            return
        client = self._new_client("auditor")
        for topic in self.topics:
            for index in range(_PARTITIONS):
                reader = PartitionReader(client, topic, index, isolation_level=READ_COMMITTED)
                log = self.history.logs.setdefault(reader.where, {})
                while not reader.is_at_end:
                    log.update(await reader.poll())
        findings = check(self.history)
        self._verdict.check(not findings.faults, "\n".join(findings.lines))

    # -- the clients

    def _new_producer(self, transactional_id: str) -> TransactionalProducer:
        self._instances += 1
        is_old = self._version() >= 2 and self._random.random() >= 0.75
        return TransactionalProducer(
            f"{transactional_id}.{self._instances}",
            transactional_id,
            self._new_client(transactional_id),
            self._note,
            timeout_ms=self._random.choice((2_000, 3_000, 6_000)),
            speaks_version_2=lambda: not is_old and self._version() >= 2,
        )

    def _version(self) -> int:
        return self._metadata.newest.features.levels.get(TRANSACTION_VERSION, 0)

    async def _write(self, name: str, topic: Topic) -> None:
        random = Random(self._random.randbytes(8))
        while self._is_writing:
            producer = self._working[name] = self._new_producer(name)
            try:
                await producer.start()
                number = 0
                while self._is_writing:
                    number = await self._fill(producer, topic, number, random)
                    chance = random.random()
                    if chance < 0.08:
                        break  # the process hangs, and a new one takes its place
                    if chance < 0.15:
                        zombie = self._go_on(producer, topic, number, random)
                        self._zombies.append(self._spawn(zombie))
                        break
                    await (producer.abort() if chance < 0.3 else producer.commit())
                    await asyncio.sleep(random.uniform(0.0, 0.4))
            except (ProducerFenced, TransactionFailed):
                # A failed transaction is left to the next instance, which aborts it.
                await asyncio.sleep(random.uniform(0.0, 0.3))
            if random.random() < 0.3:
                await asyncio.sleep(random.uniform(0.0, 6.0))
        if not self._scenario.are_clocks_right:
            # A transaction takes long to time out if its coordinator's clock was set back, or is
            # behind that of the coordinator under which it began.
            producer = self._working[name] = self._new_producer(name)
            await producer.start()

    async def _fill(
        self, producer: TransactionalProducer, topic: Topic, number: int, random: Random
    ) -> int:
        """Begin a transaction and write some records; return the next number."""
        producer.begin()
        for _ in range(random.randint(1, 5)):
            record = NumberedRecord(producer.name, number)
            number += 1
            await producer.send(
                topic, random.randrange(topic.partitions), record, payload_of(topic, record)
            )
            await asyncio.sleep(random.choice((0.0, 0.0, random.uniform(0.0, 0.5))))
            if random.random() < 0.02:
                # The process hangs, maybe for longer than its transaction may take.
                await asyncio.sleep(random.uniform(1.0, 7.0))
        return number

    async def _go_on(
        self, zombie: TransactionalProducer, topic: Topic, number: int, random: Random
    ) -> None:
        """Let an old instance write and commit beside the new one."""
        newest = self._instances
        await asyncio.sleep(random.uniform(0.0, 3.0))
        successors = [
            producer
            for name, producer in self._working.items()
            if zombie.name.startswith(f"{name}.") and producer is not zombie and producer.is_started
        ]
        try:
            if random.random() < 0.5:
                record = NumberedRecord(zombie.name, number)
                await zombie.send(topic, 0, record, payload_of(topic, record))
            await zombie.commit()
        except (ProducerFenced, TransactionFailed):
            return
        self._verdict.check(
            not successors,
            f"{zombie.name} has committed after {[producer.name for producer in successors]} had "
            "begun "
            f"(instance {newest})",
        )

    async def _read(self, topic: Topic, index: int, level: int) -> None:
        reader = PartitionReader(self._new_client("reader"), topic, index, isolation_level=level)
        is_committed = level == READ_COMMITTED
        group = _READERS if is_committed else "loose readers"
        if is_committed:
            self._readers.append(reader)
        self._note(Assigned(group, "reader", reader.where))
        while True:
            for offset, record in await reader.poll():
                self._note(Delivered(group, "reader", reader.where, offset, record, is_committed))
            await asyncio.sleep(self._random.uniform(0.0, 0.3))

    async def _ask_offsets(self, ledger: Topic) -> None:
        link = CoordinatorLink(self._new_client("asker"), _COPIERS, OF_GROUPS)
        while True:
            for index in range(_PARTITIONS):
                where = TopicPartition(LEDGER, index)
                self._questions += 1
                question = self._questions
                self._note(OffsetsAsked(_COPIERS, question))
                offset = await stable_offset(link, _COPIERS, where, ledger)
                if link.broker_id != self._coordinator_of_copiers():
                    # As in Kafka, a former coordinator answers until it has read the metadata.
                    link.forget()
                elif offset is not None:
                    self._note(OffsetRead(_COPIERS, question, where, offset))
                    self._committed[where] = offset
            await asyncio.sleep(self._random.uniform(0.1, 0.5))

    def _coordinator_of_copiers(self) -> int | None:
        topic = self._metadata.newest.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        return topic.partitions[partition_for(_COPIERS, len(topic.partitions))].leader
