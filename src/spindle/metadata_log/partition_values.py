"""The records of partitions in a snapshot, written and read without a message for each of them.

Nearly all records of a snapshot are those of partitions. Their bytes are a few numbers of fixed
width between lists of replicas and directories; this module converts these directly. It reads the
common shape only, and leaves any other one (a reassignment, an ELR, a leader that recovers, a value
that does not parse) to the codec of messages, which also names what is wrong with it.
"""

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct, pack, unpack
from typing import Final

from spindle.common.uuids import Uuid
from spindle.metadata.partitions import RECOVERED, PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.protocol.codec import write_uvarint
from spindle.protocol.messages.metadata_records import PartitionRecord
from spindle.protocol.metadata_frame import frame

_IDS: Final = Struct(">i16s")
_NUMBERS: Final = Struct(">iii")
_NO_BROKERS: Final = b"\x01"
_NO_TAGS: Final = b"\x00"
_HEAD_BYTES: Final = 3
_REPLICAS_AT: Final = _HEAD_BYTES + _IDS.size
_MAX_SHORT_SIZE: Final = 0x80
"""A list has its length plus 1 as a varint; below this number it is a single byte."""
_MAX_CACHED_LISTS: Final = 65536


class PartitionValues:
    """Encodes partitions as values of one record version."""

    def __init__(self, version: int) -> None:
        self._version = version
        empty = frame(PartitionRecord(), version)
        self._head = empty[:_HEAD_BYTES]
        self._tail_at = len(empty) - len(_NO_TAGS)

    def of_topic(self, topic: TopicImage) -> Iterator[bytes]:
        """Yield the framed records of the topic's partitions, in order."""
        topic_id, head, has_directories = topic.topic_id, self._head, self._version >= 1
        for partition_id, partition in topic.partitions.items():
            replicas = _broker_list(partition.replicas)
            is_whole = partition.isr == partition.replicas
            removing, adding = partition.removing_replicas, partition.adding_replicas
            yield b"".join(
                (
                    head,
                    _IDS.pack(partition_id, topic_id),
                    replicas,
                    replicas if is_whole else _broker_list(partition.isr),
                    _broker_list(removing) if removing else _NO_BROKERS,
                    _broker_list(adding) if adding else _NO_BROKERS,
                    _NUMBERS.pack(
                        partition.leader, partition.leader_epoch, partition.partition_epoch
                    ),
                    _directory_list(partition.directories) if has_directories else b"",
                    self._tail(partition),
                )
            )

    def _tail(self, partition: PartitionRegistration) -> bytes:
        """Return the tagged fields: those that few partitions have."""
        elr, last_known = partition.elr, partition.last_known_elr
        if not elr and not last_known and partition.leader_recovery_state == RECOVERED:
            return _NO_TAGS
        has_elr = self._version >= 2
        record = PartitionRecord(
            leader_recovery_state=partition.leader_recovery_state,
            eligible_leader_replicas=list(elr) if has_elr and elr else None,
            last_known_elr=list(last_known) if has_elr and last_known else None,
        )
        return frame(record, self._version)[self._tail_at :]


@lru_cache(_MAX_CACHED_LISTS)
def _broker_list(broker_ids: tuple[int, ...]) -> bytes:
    out = bytearray()
    write_uvarint(out, len(broker_ids) + 1)
    return bytes(out) + pack(f">{len(broker_ids)}i", *broker_ids)


@lru_cache(_MAX_CACHED_LISTS)
def _directory_list(directories: tuple[Uuid, ...]) -> bytes:
    out = bytearray()
    write_uvarint(out, len(directories) + 1)
    return bytes(out) + b"".join(directories)


class PartitionValueReader:
    """Reads values of partitions; equal ids, and most equal lists, become one object."""

    def __init__(self) -> None:
        self._heads = {frame(PartitionRecord(), version)[:_HEAD_BYTES] for version in (1, 2)}
        self._brokers: dict[bytes, tuple[int, ...]] = {}
        self._directories: dict[bytes, tuple[Uuid, ...]] = {}
        self._ids: dict[int, int] = {}
        self._uuids: dict[Uuid, Uuid] = {}

    def read(self, value: bytes) -> tuple[Uuid, int, PartitionRegistration] | None:
        """Return topic id, partition id and registration; None for another record or shape."""
        if value[:_HEAD_BYTES] not in self._heads:
            return None
        try:
            size = value[_REPLICAS_AT]
            isr_at = _REPLICAS_AT - 3 + 4 * size
            isr_size = value[isr_at]
            changes_at = isr_at - 3 + 4 * isr_size
            directories_at = changes_at + 2 + _NUMBERS.size
            tail_at = directories_at - 15 + 16 * size
            is_common = (
                0 < size < _MAX_SHORT_SIZE
                and 0 < isr_size < _MAX_SHORT_SIZE
                and value[changes_at] == value[changes_at + 1] == 1  # neither removing nor adding
                and value[directories_at] == size
                and value[tail_at:] == _NO_TAGS
            )
        except IndexError:
            return None
        if not is_common:
            return None
        partition_id, topic_id = _IDS.unpack_from(value, _HEAD_BYTES)
        leader, leader_epoch, partition_epoch = _NUMBERS.unpack_from(value, changes_at + 2)
        brokers, members = value[_REPLICAS_AT + 1 : isr_at], value[isr_at + 1 : changes_at]
        replicas = self._brokers.get(brokers) or self._broker_ids(brokers)
        isr = replicas
        if members != brokers:
            isr = self._brokers.get(members) or self._broker_ids(members)
        directories = value[directories_at + 1 : tail_at]
        return (
            topic_id,
            partition_id,
            PartitionRegistration(
                replicas,
                self._directories.get(directories) or self._directory_ids(directories),
                isr,
                (),
                (),
                (),
                (),
                leader,
                RECOVERED,
                leader_epoch,
                partition_epoch,
            ),
        )

    def _broker_ids(self, data: bytes) -> tuple[int, ...]:
        ids: tuple[int, ...] = unpack(f">{len(data) // 4}i", data)
        known = self._ids.setdefault
        result = tuple(map(known, ids, ids))
        if len(self._brokers) < _MAX_CACHED_LISTS:
            self._brokers[data] = result
        return result

    def _directory_ids(self, data: bytes) -> tuple[Uuid, ...]:
        ids: tuple[Uuid, ...] = unpack("16s" * (len(data) // 16), data)
        known = self._uuids.setdefault
        result = tuple(map(known, ids, ids))
        if len(self._directories) < _MAX_CACHED_LISTS:
            self._directories[data] = result
        return result
