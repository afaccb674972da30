"""Replicas whose records cannot be read, as the broker met them in reads, moves and fetches.

Nothing is concluded from damage: a replica stays in the ISR and may be elected, as on Kafka. An
operator sees it in `spindle status` and copies the replica again from another one.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.log.log import Log
from spindle.replicas.partition import Partition


class Damage(NamedTuple):
    """Damage of one replica.

    Attributes:
        broker_id: the broker that has the replica.
        finding: file, byte and the error; for a leader of another broker, what it sent.
    """

    topic_partition: TopicPartition
    broker_id: int
    finding: str


class _Noted(NamedTuple):
    log: Log
    damage: CorruptLog | CorruptRecords


class DamagedReplicas:
    """The damage that this broker knows of.

    Damage of an own log is known as long as the log has the bytes; damage in what a leader sent,
    until an append from the leader succeeds.
    """

    def __init__(self) -> None:
        self._own: dict[Partition, _Noted] = {}
        self._sent: dict[Partition, Damage] = {}

    def note(self, partition: Partition, log: Log, damage: CorruptLog | CorruptRecords) -> None:
        """Note that bytes of an own log are damaged; the place is unknown for `CorruptRecords`."""
        self._own[partition] = _Noted(log, damage)

    def note_sent(self, partition: Partition, leader_id: int, finding: str) -> None:
        """Note that the leader sent records whose checksum or offsets are wrong."""
        where = partition.topic_partition
        self._sent[partition] = Damage(where, leader_id, f"it sent bad records: {finding}")

    def appended(self, partition: Partition) -> None:
        """Forget what a leader sent: an append has succeeded."""
        self._sent.pop(partition, None)

    def among(self, broker_id: int, partitions: Iterable[Partition]) -> Iterator[Damage]:
        """Yield the damage of hosted partitions; forget that of others and of former logs.

        Args:
            broker_id: this broker.
        """
        hosted = dict.fromkeys(partitions)
        self._own = {p: n for p, n in self._own.items() if p in hosted and _is_present(p, n)}
        self._sent = {p: d for p, d in self._sent.items() if p in hosted and p.leader is None}
        for partition in hosted:
            noted = self._own.get(partition)
            unread = partition.log.producers.unread
            if noted is not None:
                finding = str(noted.damage)
            elif unread is not None:
                first, end = unread
                finding = f"{partition.log.path}: damaged between offsets {first} and {end}"
            else:
                continue
            yield Damage(partition.topic_partition, broker_id, finding)
        yield from self._sent.values()


def _is_present(partition: Partition, noted: _Noted) -> bool:
    damage, log = noted.damage, noted.log
    if partition.log is not log or isinstance(damage, CorruptRecords):
        return partition.log is log
    return any(
        segment.path == damage.path and segment.size_bytes > damage.position
        for segment in log.segments
    )
