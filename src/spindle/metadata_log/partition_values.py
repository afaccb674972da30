"""The records of partitions in a snapshot, written without a message for each of them.

Partitions of a large cluster differ in numbers of fixed width, and share a few lists of replicas
and directories. So each shape is encoded once, as a message, and the numbers are put into its
bytes.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.protocol.metadata_frame import frame

_IDS: Final = Struct(">i16s")
_NUMBERS: Final = Struct(">iii")

_ONES: Final = b"\xff" * 16

_Shape: TypeAlias = tuple[object, ...]


class _Form(NamedTuple):
    """The bytes around the ids, and around leader, leader epoch and partition epoch."""

    layout: Struct
    head: bytes
    middle: bytes
    tail: bytes


class PartitionValues:
    """Encodes partitions as values of one record version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._forms: dict[_Shape, _Form] = {}

    def of_topic(self, topic: TopicImage) -> Iterator[bytes]:
        """Yield the framed records of the topic's partitions, in order."""
        topic_id, forms = topic.topic_id, self._forms
        for partition_id, partition in topic.partitions.items():
            shape = (
                partition.replicas,
                partition.directories,
                partition.isr,
                partition.removing_replicas,
                partition.adding_replicas,
                partition.elr,
                partition.last_known_elr,
                partition.leader_recovery_state,
            )
            form = forms.get(shape)
            if form is None:
                form = forms[shape] = self._form(partition)
            layout, head, middle, tail = form
            yield layout.pack(
                head,
                partition_id,
                topic_id,
                middle,
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                tail,
            )

    def _form(self, partition: PartitionRegistration) -> _Form:
        """Find the places of the numbers: the bytes that differ between all zeros and all ones."""
        zeros = self._encode(partition, ZERO_UUID, 0)
        ones = self._encode(partition, _ONES, -1)
        pairs = enumerate(zip(zeros, ones, strict=True))
        differing = [place for place, (zero, one) in pairs if zero != one]
        head = zeros[: differing[0]]
        tail = zeros[differing[-1] + 1 :]
        middle = zeros[len(head) + _IDS.size : len(zeros) - len(tail) - _NUMBERS.size]
        layout = Struct(f">{len(head)}si16s{len(middle)}siii{len(tail)}s")
        return _Form(layout, head, middle, tail)

    def _encode(self, partition: PartitionRegistration, topic_id: Uuid, number: int) -> bytes:
        record = partition.to_record(topic_id, number, self._version)
        record.leader = record.leader_epoch = record.partition_epoch = number
        return frame(record, self._version)
