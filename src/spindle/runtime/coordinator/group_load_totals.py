"""The size of the group coordinator shards that were loaded together."""

from typing import Final, NamedTuple

from spindle.coordinator.shard import GroupShard
from spindle.runtime.coordinator.shard_driver import ShardDriver


class GroupLoadTotals(NamedTuple):
    """Totals of the shards that were loaded together, for one line in the log."""

    partitions: int
    groups: int
    records: int

    def plus(self, shard: ShardDriver[GroupShard]) -> "GroupLoadTotals":
        """Return the totals with a shard that has just been loaded."""
        return GroupLoadTotals(
            self.partitions + 1,
            self.groups + len(shard.shard.groups),
            self.records + shard.loaded_records,
        )


NOTHING_LOADED: Final = GroupLoadTotals(0, 0, 0)
