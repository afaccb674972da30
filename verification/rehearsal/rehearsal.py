"""One rehearsal: clients at work, a schedule of faults, and the verdict about the history."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spindle.client.errors import ClientError
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.local.errors import ClusterError
from spindle.testing.cluster.cluster import Cluster
from spindle.testing.histories.checker import check
from spindle.testing.histories.client_history import Copy
from spindle.testing.histories.findings import Findings
from verification.native_lanes import lane_properties
from verification.rehearsal.java_clients import JavaClient, JavaMember, JavaProducer
from verification.rehearsal.keyed_clients import COMPACTED, KeyedProducer
from verification.rehearsal.librdkafka_clients import (
    ClientThread,
    MemberThread,
    OffsetReader,
    ProducerThread,
    read_log,
)
from verification.rehearsal.recorder import Recorder
from verification.rehearsal.schedule import BROKERS, DIRECTORIES, PARTITIONS, FaultSchedule
from verification.rehearsal.schedule_runner import Conductor
from verification.rehearsal.transactional_clients import CopierThread, LedgerProducer

PROPERTIES: Final = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "replica.lag.time.max.ms": "5000",
    "spindle.log.dir.hang.timeout.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "300",
}
_STOP_S: Final = 90.0
_CAUGHT_UP_S: Final = 60.0
_CHECK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class JavaHome:
    """Where Java and the jars of Apache Kafka are."""

    java: str
    libs: Path


@dataclass(frozen=True, slots=True)
class RehearsalOutcome:
    """The result of one schedule.

    Attributes:
        troubles: errors of clients or of the cluster that must not happen.
        story: what was done, with times.
    """

    schedule: FaultSchedule
    findings: Findings
    troubles: tuple[str, ...]
    story: tuple[str, ...]
    took_s: float

    @property
    def is_fine(self) -> bool:
        return not self.findings.faults and not self.troubles

    @property
    def report(self) -> str:
        """The text from which a person can investigate the run."""
        return "\n".join(
            (
                self.schedule.text,
                "what happened:",
                *self.story,
                self.findings.text,
                *self.troubles,
                *self.findings.lines,
            )
        )


def new_cluster(folder: Path) -> Cluster:
    """Start a cluster for schedules; its files stay in the folder."""
    properties = {**PROPERTIES, **lane_properties()}
    return Cluster(BROKERS, DIRECTORIES, properties=properties, folder=folder)


def rehearse(
    schedule: FaultSchedule, cluster: Cluster, java: JavaHome | None, run: str
) -> RehearsalOutcome:
    """Play a schedule on a cluster that is well.

    Args:
        java: None to leave Java's clients out.
        run: a word that no other run on this cluster uses, for the names of topic and groups.
    """
    begun_s = time.monotonic()
    topic = f"rehearsal-{run}"
    table = f"{topic}-table"
    topics = (topic, f"{topic}-ledger", f"{topic}-copies", table)
    for name in topics:
        cluster.create_topic(name, PARTITIONS, configs=COMPACTED if name == table else None)
    recorder = Recorder()
    conductor = Conductor(cluster, topics)
    clients = _Clients(cluster.bootstrap_servers, topic, recorder)
    if java is not None and schedule.with_java:
        clients.add_java(java)
    try:
        clients.await_traffic()
        for episode in schedule.episodes:
            conductor.play(episode)
    except (TimeoutError, ClusterError, ClientError, ApiError) as trouble:
        recorder.record_error(str(trouble))
    clients.stop()
    if not recorder.troubles:
        for name in topics:
            cluster.delete_topic(name)
    return RehearsalOutcome(
        schedule,
        check(recorder.history),
        tuple(recorder.troubles),
        tuple(conductor.story),
        time.monotonic() - begun_s,
    )


class _Clients:
    """Clients of librdkafka: two producers with a group of two readers, two transactional producers
    with a group of two copiers, and a producer of a compacted topic. On demand, also a producer and
    a group of Java's."""

    def __init__(self, bootstrap: str, topic: str, recorder: Recorder) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._recorder = recorder
        where = (bootstrap, topic, recorder)
        self._producers: list[ClientThread | JavaClient] = [
            ProducerThread("1", *where),
            ProducerThread("2", *where),
        ]
        self._members: list[ClientThread | JavaClient] = []
        self._readers: list[OffsetReader] = []
        self._ledger = f"{topic}-ledger"
        self._copies = f"{topic}-copies"
        self._copiers = f"{topic}-copiers"
        recorder.history.copies.append(Copy(self._copiers, self._ledger, self._copies))
        ledger = (bootstrap, self._ledger, recorder)
        self._producers += [LedgerProducer(name, *ledger) for name in ("t1", "t2")]
        self._keyed = KeyedProducer("k", bootstrap, f"{topic}-table", recorder)
        self._producers.append(self._keyed)
        self._readers.append(OffsetReader(self._copiers, PARTITIONS, *ledger))
        self._copying = [
            CopierThread(self._copiers, self._copies, name, *ledger) for name in ("c1", "c2")
        ]
        self._add_group(f"{topic}-readers")
        self._members += [
            MemberThread(f"{topic}-readers", name, *where) for name in ("first", "second")
        ]

    def add_java(self, java: JavaHome) -> None:
        where = (java.java, java.libs, self._bootstrap, self._topic, self._recorder)
        self._producers.append(JavaProducer("9", *where))
        group = f"{self._topic}-java-readers"
        self._add_group(group)
        self._members.append(JavaMember(group, *where))

    def _add_group(self, group: str) -> None:
        self._recorder.history.must_read[group] = [self._topic]
        self._readers.append(
            OffsetReader(group, PARTITIONS, self._bootstrap, self._topic, self._recorder)
        )

    def await_traffic(self) -> None:
        """Wait until records are acknowledged, every group has got some, and some are copied.

        Raises:
            TimeoutError: it does not come to that.
        """
        groups = self._recorder.history.must_read
        self._await(
            lambda: (
                self._recorder.acknowledged > 20
                and all(map(self._has_begun, groups))
                and self._has_copied_some()
            ),
            "no traffic",
        )

    def _has_begun(self, group: str) -> bool:
        return any(
            self._recorder.next_offset(group, TopicPartition(self._topic, index))
            for index in range(PARTITIONS)
        )

    def stop(self) -> None:
        """Stop the producers, let the groups read and copy everything, stop them; read the logs."""
        recorder = self._recorder
        for producer in self._producers:
            producer.stop()
        for producer in self._producers:
            producer.join(_STOP_S)
        try:
            self._read(self._topic)
            self._await(self._have_read_all, "the groups have not read everything")
            self._read(self._ledger)
            self._await(self._have_copied_all, "the copiers have not copied everything")
            self._check_compacted()
        except TimeoutError as late:
            recorder.record_error(str(late))
        for reader in (*self._copying, *self._members, *self._readers):
            reader.stop()
        for reader in (*self._copying, *self._members, *self._readers):
            reader.join(_STOP_S)
        try:
            self._read(self._copies)
        except TimeoutError as late:
            recorder.record_error(str(late))

    def _check_compacted(self) -> None:
        stored = [
            record
            for index in range(PARTITIONS)
            for record in read_log(self._bootstrap, self._keyed.topic, index).values()
        ]
        for line in self._keyed.newest.lost(stored):
            self._recorder.record_error(line)

    def _read(self, topic: str) -> None:
        for index in range(PARTITIONS):
            log = read_log(self._bootstrap, topic, index)
            self._recorder.history.logs[TopicPartition(topic, index)] = log

    def _has_copied_some(self) -> bool:
        return any(
            self._recorder.committed(self._copiers, TopicPartition(self._ledger, index)) > 0
            for index in range(PARTITIONS)
        )

    def _have_copied_all(self) -> bool:
        # In an empty partition nothing is copied, so -1 (no committed offset) is enough there.
        return all(
            self._recorder.committed(self._copiers, partition) > max(log, default=-2)
            for partition, log in self._recorder.history.logs.items()
            if partition.topic == self._ledger
        )

    def _have_read_all(self) -> bool:
        return all(
            self._recorder.next_offset(group, partition) > max(log, default=-1)
            for group in self._recorder.history.must_read
            for partition, log in self._recorder.history.logs.items()
            if partition.topic == self._topic
        )

    def _await(self, is_so: Callable[[], bool], what_if_not: str) -> None:
        ends_s = time.monotonic() + _CAUGHT_UP_S
        while not is_so():
            if time.monotonic() > ends_s:
                raise TimeoutError(f"after {_CAUGHT_UP_S:.0f} s: {what_if_not}")
            time.sleep(_CHECK_S)
