"""Replicas whose records cannot be read, as the broker met them in reads, moves and fetches.

Nothing is concluded from damage: a replica stays in the ISR and may be elected, as on Kafka. An
operator sees it in `spindle status` and copies the replica again from another one.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.log.log import Log


class Damage(NamedTuple):
    """Damage of one replica.

    Attributes:
        broker_id: the broker that has the replica.
        finding: file, byte and the error; for a leader of another broker, what it sent.
    """

    topic_partition: TopicPartition
    broker_id: int
    finding: str


class DamagedReplicas:
    """The damage that this broker knows of.

    Damage of an own log is known as long as the log has the bytes; damage in what a leader sent,
    until an append from the leader succeeds.
    """

    def __init__(self) -> None:
        self._own: dict[Log, CorruptLog | CorruptRecords] = {}
        self._sent: dict[Log, Damage] = {}

    def note(self, log: Log, damage: CorruptLog | CorruptRecords) -> None:
        """Note that bytes of an own log are damaged; the place is unknown for `CorruptRecords`."""
        self._own[log] = damage

    def note_sent(self, log: Log, leader_id: int, finding: str) -> None:
        """Note that the leader sent records for a log whose checksum or offsets are wrong."""
        sent = f"it sent bad records: {finding}"
        self._sent[log] = Damage(log.topic_partition, leader_id, sent)

    def appended(self, log: Log) -> None:
        """Forget what a leader sent: an append has succeeded."""
        self._sent.pop(log, None)

    def among(self, broker_id: int, is_leader: Mapping[Log, bool]) -> Iterator[Damage]:
        """Yield the damage of hosted replicas; forget that of others and of former logs.

        Args:
            broker_id: this broker.
            is_leader: whether this broker leads, by the log of each hosted replica.
        """
        self._own = {log: d for log, d in self._own.items() if log in is_leader and _has(log, d)}
        self._sent = {log: d for log, d in self._sent.items() if not is_leader.get(log, True)}
        for log in is_leader:
            damage, unread = self._own.get(log), log.producers.unread
            if damage is not None:
                finding = str(damage)
            elif unread is not None:
                first, end = unread
                finding = f"{log.path}: damaged between offsets {first} and {end}"
            else:
                continue
            yield Damage(log.topic_partition, broker_id, finding)
        yield from self._sent.values()


def _has(log: Log, damage: CorruptLog | CorruptRecords) -> bool:
    """Return whether the log still has the damaged bytes."""
    return isinstance(damage, CorruptRecords) or any(
        segment.path == damage.path and segment.size_bytes > damage.position
        for segment in log.segments
    )
