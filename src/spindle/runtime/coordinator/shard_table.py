"""The shards of one kind of coordinator on this broker, by partition of the internal topic."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.partitioning import partition_for
from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.metadata_view import MetadataView
from spindle.runtime.coordinator.shard_driver import ShardDriver, ShardState, ShardT


class ShardTable(Generic[ShardT]):
    """A shard for each partition of the topic that this broker leads."""

    def __init__(
        self, node_id: int, topic: str, metadata: MetadataView, wait_s: Callable[[], float]
    ) -> None:
        """Create an empty table; requests wait up to `wait_s` for a shard that is about to load."""
        self.by_partition: dict[int, ShardDriver[ShardT]] = {}
        self._node_id = node_id
        self._topic = topic
        self._metadata = metadata
        self._wait_s = wait_s

    def __iter__(self) -> Iterator[ShardDriver[ShardT]]:
        return iter(list(self.by_partition.values()))

    @property
    def is_loading(self) -> bool:
        """True while a shard is being loaded."""
        return any(shard.state is ShardState.LOADING for shard in self)

    def close(self, partition: int) -> None:
        """Close the shard of a partition, if there is one."""
        shard = self.by_partition.pop(partition, None)
        if shard is not None:
            shard.close()

    async def wait_loaded(self) -> None:
        """Return when no shard is loading."""
        await asyncio.gather(*[shard.wait_loaded() for shard in self])

    def of(self, key: str) -> ShardDriver[ShardT]:
        """Return the shard of a key, which may be loading.

        Raises:
            ApiError: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS if it is about to load.
        """
        topic = self._metadata.image.topics.by_name.get(self._topic)
        if topic is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self._topic} does not exist")
        at = partition_for(key, len(topic.partitions))
        shard = self.by_partition.get(at)
        if shard is None:
            raise ApiError(self._missing_error(topic.partitions.get(at)))
        return shard

    async def wait_for(self, key: str) -> ShardDriver[ShardT]:
        """Return the shard of a key; wait if this broker is about to lead its partition."""
        try:
            return self.of(key)
        except ApiError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
        await self._metadata.catch_up(self._wait_s())
        return self.of(key)

    def _missing_error(self, partition: PartitionRegistration | None) -> ErrorCode:
        is_ours = partition is not None and partition.leader == self._node_id
        if is_ours and self._metadata.is_behind:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR
