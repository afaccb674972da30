"""The groups of one shard by id: those of the classic and those of the consumer protocol."""

from collections.abc import Iterator

from spindle.coordinator.classic_group import ClassicGroup
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.records import ConsumerGroupRecord, RecordKind


class GroupTable:
    """The groups, in the order in which they were created. Iteration yields classic groups.

    While records that change a group's protocol are being appended, both groups are there; the
    classic one decides.

    Attributes:
        consumer: groups of the consumer protocol (KIP-848) by id.
    """

    __slots__ = ("_groups", "consumer")

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGroup] = {}
        self.consumer: dict[str, ConsumerGroup] = {}

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def create(self, group_id: str, now_ms: int | None) -> ClassicGroup:
        """Create an Empty group; there must be none with that id."""
        assert group_id not in self._groups, group_id
        group = ClassicGroup(group_id, now_ms)
        self._groups[group_id] = group
        return group

    def put(self, group: ClassicGroup) -> None:
        """Store a group that was read from a record, in place of an earlier one with its id."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> ClassicGroup | None:
        return self._groups.pop(group_id, None)

    def replay_consumer(self, record: ConsumerGroupRecord) -> None:
        """Apply a record of a consumer group; the first one creates the group."""
        group = self.consumer.get(record.group_id)
        if record.value is None:
            if group is None:
                return
            if record.kind is RecordKind.GROUP:
                del self.consumer[record.group_id]
                return
        elif group is None:
            group = self.consumer[record.group_id] = ConsumerGroup(record.group_id)
            classic = self._groups.get(record.group_id)
            if classic is not None and classic.is_simple:
                # It existed only for the offsets, whose records came first.
                del self._groups[record.group_id]
        group.replay(record)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups) + len(self.consumer)
