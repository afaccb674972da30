"""The committed records of each partition, which every replica and consumer must have.

A record is committed when a leader's high watermark has passed it. Each record that the simulation
writes contains topic id, producer and number; so a record in the wrong topic, twice, or out of
order is found in any log or answer. An allowed unclean election begins a new lineage: the records
of the previous lineage that its leader has, and no others.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spindle.common.ids import TRANSACTIONS_TOPIC
from spindle.common.uuids import Uuid, uuid_text
from spindle.protocol.records.batch import BatchHeader, batches
from spindle.protocol.records.control import read_end_transaction
from spindle.protocol.records.record import Record, decode_records
from verification.simulation.decision_oracle import DecisionOracle
from verification.simulation.verdict import Verdict

_KEYS: Final = 5


class Payload(NamedTuple):
    """The value of a record: its number among those of a producer, counted from 0."""

    topic_id: str
    producer: str
    number: int

    @staticmethod
    def of(record: Record) -> "Payload":
        """Return the payload of a record; that of a tombstone is in its header."""
        data = record.headers[0][1] if record.value is None else record.value
        return Payload.decode(data or b"")

    @property
    def key(self) -> bytes:
        """Each producer has a few keys; compaction keeps the newest record of each.

        They do not come in turn, so that compaction may remove the last record of a batch alone.
        """
        return f"{self.producer} {self.number**2 % _KEYS}".encode()

    def encode(self) -> bytes:
        return f"{self.topic_id} {self.producer} {self.number}".encode()

    @staticmethod
    def decode(data: bytes) -> "Payload":
        topic_id, producer, number = data.decode().split(" ")
        return Payload(topic_id, producer, int(number))


class SeenBatch(NamedTuple):
    """First and last offset of a batch, the leader epoch that wrote it, and its checksum."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


@dataclass(slots=True)
class Lineage:
    """The records that were committed from one unclean election to the next.

    Attributes:
        first_epoch: the leader epoch of the election.
        fork_offset: below this offset, the lineage is equal to the previous one.
        end_offset: everything below is committed.
        payloads: committed records by offset.
        newest: the offset of each producer's last record.
        keys: the keys of the records by offset.
        newest_of_key: the highest offset of each key.
        open: offsets of each producer's open transaction.
        aborted: offsets of records whose transaction was aborted.
        removed_early: the broker that has removed the record of an open transaction, by offset. It
            may have read the marker of an abort in its log after a restart, before the marker was
            committed. The decision is committed before any marker is written.
        stays_until_s: the time until which a tombstone or a marker has to stay, by offset.
        committed_by: the offset up to which the leader of each epoch has committed.
    """

    first_epoch: int = 0
    fork_offset: int = 0
    end_offset: int = 0
    batches: dict[int, SeenBatch] = field(default_factory=dict)
    payloads: dict[int, Payload] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    newest_of_key: dict[bytes, int] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    aborted: dict[int, None] = field(default_factory=dict)
    removed_early: dict[int, str] = field(default_factory=dict)
    stays_until_s: dict[int, float] = field(default_factory=dict)
    committed_by: dict[int, int] = field(default_factory=dict)

    def committed_before(self, leader_epoch: int) -> int:
        """Return the offset up to which a leader of the epoch must have all records.

        Records that its successors committed do not count.
        """
        ends = [end for epoch, end in self.committed_by.items() if epoch <= leader_epoch]
        return max(ends, default=self.fork_offset)

    def may_be_removed(self, offset: int, now_s: float) -> bool:
        """Return whether compaction may have removed the record.

        It may if the key has a newer one, if the transaction was aborted, or if it is a tombstone
        or a marker whose time is over.
        """
        key = self.keys.get(offset)
        if offset in self.aborted or (key is not None and self.newest_of_key[key] > offset):
            return True
        return now_s >= self.stays_until_s.get(offset, 0.0 if key is None else math.inf)

    def is_open(self, offset: int) -> bool:
        """Return whether the record belongs to a transaction without a committed marker."""
        return any(offset in offsets for offsets in self.open.values())

    def fork(self, first_epoch: int, offset: int) -> "Lineage":
        """Return the start of this lineage, up to the offset where a leader's log ends.

        It has nothing that only compaction needs: no topic with unclean elections is compacted.
        """
        forked = Lineage(first_epoch, offset, offset)
        forked.batches = {at: b for at, b in self.batches.items() if b.next_offset <= offset}
        forked.payloads = {at: p for at, p in self.payloads.items() if at < offset}
        for at, payload in sorted(forked.payloads.items()):
            forked.newest[payload.producer] = at
        return forked


@dataclass(slots=True)
class PartitionOracle:
    """One partition of one topic id.

    Attributes:
        leaders: broker by leader epoch.
        may_lose: True if unclean elections were allowed at any time.
        is_compacted: True if only the newest record of each key has to stay.
        delete_retention_s: how long tombstones and markers stay, at least.
        start_offset: the highest log start of a leader; records below it may be deleted.
        lineages: the first one, and one more for each unclean election.
        unclean_epochs: epochs of unclean elections whose leaders have not begun to lead.
    """

    topic_id: Uuid
    topic: str
    index: int
    leaders: dict[int, int] = field(default_factory=dict)
    may_lose: bool = False
    is_compacted: bool = False
    delete_retention_s: float = 0.0
    start_offset: int = 0
    lineages: list[Lineage] = field(default_factory=lambda: [Lineage()])
    unclean_epochs: list[int] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.lineages[-1].end_offset

    @property
    def has_lost(self) -> bool:
        """True if there was an unclean election."""
        return len(self.lineages) > 1 or bool(self.unclean_epochs)

    def at(self, leader_epoch: int) -> Lineage:
        """Return the lineage of a leader of the epoch; a deposed leader may have an old one."""
        return next(n for n in reversed(self.lineages) if n.first_epoch <= leader_epoch)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index} of {uuid_text(self.topic_id)}"


class RecordOracle:
    """All partitions, by topic id and index."""

    def __init__(self, verdict: Verdict, now_s: Callable[[], float]) -> None:
        self._verdict = verdict
        self._now_s = now_s
        self._decisions = DecisionOracle(verdict)
        self._partitions: dict[tuple[Uuid, int], PartitionOracle] = {}

    def of(self, topic_id: Uuid, topic: str, index: int) -> PartitionOracle:
        known = self._partitions.get((topic_id, index))
        if known is None:
            known = self._partitions[topic_id, index] = PartitionOracle(topic_id, topic, index)
        return known

    def find(self, topic_id: Uuid, index: int) -> PartitionOracle | None:
        return self._partitions.get((topic_id, index))

    def leads(
        self,
        oracle: PartitionOracle,
        broker_id: int,
        leader_epoch: int,
        end: int,
        read: Callable[[], Iterator[bytes]],
    ) -> None:
        """Check a broker that begins to lead; `read` yields its log from the beginning."""
        verdict = self._verdict
        leader = oracle.leaders.setdefault(leader_epoch, broker_id)
        verdict.check(
            leader == broker_id,
            f"brokers {leader} and {broker_id} both lead {oracle} in epoch {leader_epoch}",
        )
        unclean = [epoch for epoch in oracle.unclean_epochs if epoch <= leader_epoch]
        if unclean:
            oracle.unclean_epochs = oracle.unclean_epochs[len(unclean) :]
            parent = oracle.at(unclean[0] - 1)
            oracle.lineages.append(parent.fork(unclean[-1], common_offset(parent, read())))
        committed = oracle.at(leader_epoch).committed_before(leader_epoch)
        verdict.check(
            end >= committed,
            f"broker {broker_id} leads {oracle} in epoch {leader_epoch} with a log up to {end}, "
            "but "
            f"everything below {committed} was committed",
        )

    def seen(
        self,
        who: str,
        oracle: PartitionOracle,
        start_offset: int,
        data: bytes,
        *,
        leader_epoch: int,
        is_leader: bool,
    ) -> int:
        """Check whole batches that `who` counts as committed; return the offset after them.

        Only a leader commits further records. A follower (leader epoch -1) may still have records
        that an unclean election has removed.
        """
        next_offset = start_offset
        lineages = oracle.lineages if leader_epoch < 0 else [oracle.at(leader_epoch)]
        lineage = lineages[-1]
        for position, header in batches(data):
            at = header.base_offset
            batch = SeenBatch(at, header.next_offset, header.leader_epoch, header.crc)
            if not oracle.is_compacted and at < lineage.end_offset:
                self._verdict.check(
                    at <= next_offset,
                    f"{who} has no records from offset {next_offset} to {at - 1} of {oracle}, "
                    "which "
                    "are committed",
                )
            if oracle.is_compacted and header.next_offset <= lineage.end_offset:
                self._check_compacted(who, oracle, next_offset, data, position, header)
            elif not any(batch == other.batches.get(at) for other in lineages):
                known = lineage.batches.get(at)
                if known is not None:
                    self._verdict.violated(
                        f"{who} has {batch} in {oracle} where {known} was committed"
                    )
                elif at < lineage.end_offset or not is_leader:
                    self._verdict.violated(
                        f"{who} holds {batch} of {oracle} for committed, which nobody committed "
                        f"(everything below {lineage.end_offset} is)"
                    )
                else:
                    self._commit(who, oracle, lineage, batch, data, position, header)
                    lineage.committed_by[leader_epoch] = lineage.end_offset
            next_offset = header.next_offset
        return next_offset

    def _check_compacted(
        self,
        who: str,
        oracle: PartitionOracle,
        start_offset: int,
        data: bytes,
        position: int,
        header: BatchHeader,
    ) -> None:
        """Check a compacted log: a batch covers the same offsets, and no record is missing.

        Records with a newer one of their key, for instance, may be missing.
        """
        lineage = oracle.lineages[-1]
        known = lineage.batches.get(header.base_offset)
        self._verdict.check(
            known is not None
            and header.next_offset == known.next_offset
            and header.leader_epoch == known.leader_epoch,
            f"{who} has a batch for the offsets {header.base_offset} to {header.last_offset} of "
            f"{oracle}, which is compacted, where {known} was committed",
        )
        there = {record.offset: record for record in decode_records(data, position, header)}
        for offset, record in () if header.is_control else there.items():
            payload = lineage.payloads.get(offset)
            self._verdict.check(
                payload is not None and Payload.of(record) == payload,
                f"{who} has {record.value!r} at offset {offset} of {oracle}, which is compacted, "
                f"where {payload} was committed",
            )
        for offset in range(start_offset, header.next_offset):
            if offset in there or lineage.may_be_removed(offset, self._now_s()):
                continue
            self._verdict.check(
                lineage.is_open(offset),
                f"{who} lacks offset {offset} of {oracle}, which has to stay",
            )
            lineage.removed_early.setdefault(offset, who)

    def _commit(
        self,
        who: str,
        oracle: PartitionOracle,
        lineage: Lineage,
        batch: SeenBatch,
        data: bytes,
        position: int,
        header: BatchHeader,
    ) -> None:
        lineage.batches[batch.base_offset] = batch
        lineage.end_offset = batch.next_offset
        records = decode_records(data, position, header)
        if oracle.topic == TRANSACTIONS_TOPIC and not header.is_control:
            self._decisions.committed(records)
        if oracle.topic.startswith("__"):
            return
        stays_until_s = self._now_s() + oracle.delete_retention_s
        if header.is_control:
            lineage.stays_until_s[batch.base_offset] = stays_until_s
            self._end_transaction(oracle, lineage, header, records[0])
            return
        if header.is_transactional:
            offsets = range(batch.base_offset, batch.next_offset)
            lineage.open.setdefault(header.producer_id, []).extend(offsets)
        for delta, record in enumerate(records):
            payload = Payload.of(record)
            lineage.payloads[batch.base_offset + delta] = payload
            if record.value is None:
                lineage.stays_until_s[batch.base_offset + delta] = stays_until_s
            self._verdict.check(
                payload.topic_id == uuid_text(oracle.topic_id),
                f"{who} commits {payload} in {oracle}, where it does not belong",
            )
            last_offset = lineage.newest.get(payload.producer, -1)
            # A follower that starts over at its leader's log start forgets the producers whose
            # records are all below it, as Kafka's does: a batch may then come a second time.
            before = (
                lineage.payloads.get(last_offset) if last_offset >= oracle.start_offset else None
            )
            self._verdict.check(
                before is None or payload.number > before.number,
                f"{who} commits {payload} in {oracle} at offset {batch.base_offset + delta} after "
                f"{before} at offset {last_offset}",
            )
            lineage.newest[payload.producer] = batch.base_offset + delta
            key = lineage.keys[batch.base_offset + delta] = record.key or b""
            lineage.newest_of_key[key] = batch.base_offset + delta

    def _end_transaction(
        self, oracle: PartitionOracle, lineage: Lineage, header: BatchHeader, record: Record
    ) -> None:
        marker = read_end_transaction(record)
        if marker is None:
            return
        self._decisions.marked(str(oracle), header, marker)
        offsets = lineage.open.pop(header.producer_id, [])
        if not marker.is_commit:
            lineage.aborted.update(dict.fromkeys(offsets))
            return
        for offset in offsets:
            self._verdict.check(
                offset not in lineage.removed_early,
                f"{lineage.removed_early.get(offset)} removed offset {offset} of {oracle} before "
                "its transaction was committed",
            )

    def acknowledged(self, oracle: PartitionOracle, base_offset: int, sent: list[Payload]) -> None:
        """Note records that were acknowledged to a producer with acks=all."""
        for offset, payload in enumerate(sent, base_offset):
            payloads = [lineage.payloads.get(offset) for lineage in oracle.lineages]
            self._verdict.check(
                payload in payloads,
                f"{payload} was acknowledged at offset {offset} of {oracle}, where {payloads[-1]} "
                "is "
                f"committed (everything below {oracle.end_offset} is)",
            )


def common_offset(lineage: Lineage, log: Iterator[bytes]) -> int:
    """Return the offset up to which the log has the committed records."""
    end = 0
    for data in log:
        for _, header in batches(data):
            at = header.base_offset
            batch = SeenBatch(at, header.next_offset, header.leader_epoch, header.crc)
            if lineage.batches.get(at) != batch:
                return end
            end = header.next_offset
    return end
