"""The groups of one shard by id."""

from collections.abc import Iterator

from spindle.coordinator.classic_group import ClassicGroup


class GroupTable:
    """Groups in the order in which they came into being."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGroup] = {}

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

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)
