"""The groups of one shard by id, and what Apache Kafka left of groups that are not served.

A group of the consumer protocol (KIP-848) has no members here. It stays in the log until its id is
deleted, or until a classic member joins under it: then tombstones for its records go before the
classic group's first record, as Apache Kafka itself turns an empty group of one protocol into one
of the other.
"""

from collections.abc import Iterator

from spindle.coordinator.classic_group import ClassicGroup
from spindle.coordinator.records import BURIAL_ORDER, UnservedRecord


class GroupTable:
    """Groups in the order in which they came into being."""

    __slots__ = ("_groups", "_unserved")

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGroup] = {}
        self._unserved: dict[str, dict[bytes, None]] = {}

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def create(self, group_id: str, now_ms: int | None) -> ClassicGroup:
        """A new Empty group; there must be none of that id."""
        assert group_id not in self._groups, group_id
        group = ClassicGroup(group_id, now_ms)
        self._groups[group_id] = group
        return group

    def put(self, group: ClassicGroup) -> None:
        """Take in a group that a record describes, in place of an earlier one."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> ClassicGroup | None:
        return self._groups.pop(group_id, None)

    def replay_unserved(self, record: UnservedRecord) -> None:
        """Note or forget a record of a group that is not served."""
        keys = self._unserved.setdefault(record.group_id, {})
        if record.is_tombstone:
            keys.pop(record.key, None)
        else:
            keys[record.key] = None
        if not keys:
            del self._unserved[record.group_id]

    def is_unserved(self, group_id: str) -> bool:
        """True if the log has records of a group of another protocol under the id."""
        return group_id in self._unserved

    def unserved_tombstones(self, group_id: str) -> list[UnservedRecord]:
        """Tombstones for all that is left of the id's group of another protocol."""
        keys = sorted(
            self._unserved.get(group_id, {}),
            key=lambda key: BURIAL_ORDER.index(int.from_bytes(key[:2], "big")),
        )
        return [UnservedRecord(group_id, key, is_tombstone=True) for key in keys]

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)
