"""The size of the group coordinator shards that were loaded together."""

from typing import Final, NamedTuple

from spindle.coordinator.shard import GroupShard
from spindle.runtime.coordinator.shard_driver import ShardDriver


class LoadTotals(NamedTuple):
    """Totals of the shards that were loaded together, for one line in the log."""

    partitions: int
    groups: int
    records: int

    def plus(self, shard: ShardDriver[GroupShard]) -> "LoadTotals":
        """Return the totals with a shard that has just been loaded."""
        return LoadTotals(
            self.partitions + 1,
            self.groups + len(shard.shard.groups),
            self.records + shard.loaded_records,
        )


NOTHING_LOADED: Final = LoadTotals(0, 0, 0)
