"""The groups of one shard by id, and the records of groups that Spindle does not serve.

Apache Kafka may have left groups of the consumer protocol (KIP-848) in the log. Such a group has no
members here. Its records stay until the group is deleted, or until a classic member joins under the
same id: then tombstones for them are written before the classic group's first record. Apache Kafka
converts an empty group of one protocol to the other in the same way.
"""

from collections.abc import Iterator

from spindle.coordinator.classic_group import ClassicGroup
from spindle.coordinator.records import TOMBSTONE_ORDER, UnservedRecord


class GroupTable:
    """The groups, in the order in which they were created."""

    __slots__ = ("_groups", "_unserved")

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGroup] = {}
        self._unserved: dict[str, dict[bytes, None]] = {}

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

    def replay_unserved(self, record: UnservedRecord) -> None:
        """Add or, for a tombstone, remove a record of a group that is not served."""
        keys = self._unserved.setdefault(record.group_id, {})
        if record.is_tombstone:
            keys.pop(record.key, None)
        else:
            keys[record.key] = None
        if not keys:
            del self._unserved[record.group_id]

    def is_unserved(self, group_id: str) -> bool:
        """Return True if the log has records of a group of another protocol with this id."""
        return group_id in self._unserved

    def unserved_tombstones(self, group_id: str) -> list[UnservedRecord]:
        """Return tombstones for all records of the other protocol's group with this id."""
        keys = sorted(
            self._unserved.get(group_id, {}),
            key=lambda key: TOMBSTONE_ORDER.index(int.from_bytes(key[:2], "big")),
        )
        return [UnservedRecord(group_id, key, is_tombstone=True) for key in keys]

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)
