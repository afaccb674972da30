"""What each partition has committed: every replica and every consumer has to come to the same.

A record is committed when a leader's high watermark has passed it. Each record that the simulation
writes says where it belongs: topic id, producer and number; so a record in the wrong topic, twice,
or out of order is seen whoever finds it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from spindle.common.uuids import Uuid, uuid_text
from spindle.protocol.records.batch import BatchHeader, batches
from spindle.protocol.records.record import decode_records
from spindle.testing.simulation.verdict import Verdict


class Payload(NamedTuple):
    """The value of a record: its number among those of a producer, counted from 0."""

    topic_id: str
    producer: str
    number: int

    def encode(self) -> bytes:
        return f"{self.topic_id} {self.producer} {self.number}".encode()

    @staticmethod
    def decode(data: bytes) -> "Payload":
        topic_id, producer, number = data.decode().split(" ")
        return Payload(topic_id, producer, int(number))


class CommittedBatch(NamedTuple):
    """Where a batch begins and ends, the leader epoch that wrote it, and its checksum."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


@dataclass(slots=True)
class PartitionTruth:
    """One partition of one topic id.

    Attributes:
        end_offset: everything below is committed.
        payloads: committed records by offset.
        newest: the highest number of each producer.
        leaders: broker by leader epoch.
    """

    topic_id: Uuid
    topic: str
    index: int
    end_offset: int = 0
    batches: dict[int, CommittedBatch] = field(default_factory=dict)
    payloads: dict[int, Payload] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index} of {uuid_text(self.topic_id)}"


class RecordTruth:
    """All partitions, by topic id and index."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._partitions: dict[tuple[Uuid, int], PartitionTruth] = {}

    def of(self, topic_id: Uuid, topic: str, index: int) -> PartitionTruth:
        known = self._partitions.get((topic_id, index))
        if known is None:
            known = self._partitions[topic_id, index] = PartitionTruth(topic_id, topic, index)
        return known

    def find(self, topic_id: Uuid, index: int) -> PartitionTruth | None:
        return self._partitions.get((topic_id, index))

    def leads(self, truth: PartitionTruth, broker_id: int, leader_epoch: int, end: int) -> None:
        """A broker begins to lead."""
        verdict = self._verdict
        leader = truth.leaders.setdefault(leader_epoch, broker_id)
        verdict.check(
            leader == broker_id,
            f"brokers {leader} and {broker_id} both lead {truth} in epoch {leader_epoch}",
        )
        verdict.check(
            end >= truth.end_offset,
            f"broker {broker_id} leads {truth} in epoch {leader_epoch} with a log up to {end}, but "
            f"everything below {truth.end_offset} was committed",
        )

    def seen(self, who: str, truth: PartitionTruth, data: bytes, *, is_leader: bool) -> int:
        """Whole batches that `who` holds for committed; the offset behind them.

        Only a leader commits what was not before.
        """
        next_offset = -1
        for position, header in batches(data):
            found = CommittedBatch(
                header.base_offset, header.next_offset, header.leader_epoch, header.crc
            )
            known = truth.batches.get(header.base_offset)
            if known is None:
                if header.base_offset < truth.end_offset or not is_leader:
                    self._verdict.violated(
                        f"{who} holds {found} of {truth} for committed, which nobody committed "
                        f"(everything below {truth.end_offset} is)"
                    )
                    return header.next_offset
                self._commit(who, truth, found, data, position, header)
            elif known != found:
                self._verdict.violated(f"{who} has {found} in {truth} where {known} was committed")
            next_offset = header.next_offset
        return next_offset

    def _commit(
        self,
        who: str,
        truth: PartitionTruth,
        batch: CommittedBatch,
        data: bytes,
        position: int,
        header: BatchHeader,
    ) -> None:
        truth.batches[batch.base_offset] = batch
        truth.end_offset = batch.next_offset
        if truth.topic.startswith("__"):
            return
        for delta, record in enumerate(decode_records(data, position, header)):
            payload = Payload.decode(record.value or b"")
            truth.payloads[batch.base_offset + delta] = payload
            self._verdict.check(
                payload.topic_id == uuid_text(truth.topic_id),
                f"{who} commits {payload} in {truth}, where it does not belong",
            )
            before = truth.newest.get(payload.producer, -1)
            self._verdict.check(
                payload.number > before,
                f"{who} commits number {payload.number} of {payload.producer} in {truth} at offset "
                f"{batch.base_offset + delta} after number {before}",
            )
            truth.newest[payload.producer] = payload.number

    def acknowledged(self, truth: PartitionTruth, base_offset: int, sent: list[Payload]) -> None:
        """A producer was told (acks=all) that its records stand there."""
        for offset, payload in enumerate(sent, base_offset):
            found = truth.payloads.get(offset)
            self._verdict.check(
                found == payload,
                f"{payload} was acknowledged at offset {offset} of {truth}, where {found} is "
                f"committed (everything below {truth.end_offset} is)",
            )
