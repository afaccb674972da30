"""All shards of the share coordinator on this broker (KIP-932).

A shard exists for each partition of `__share_group_state` that this broker leads. Requests for
share partitions of other partitions get NOT_COORDINATOR. Records that newer snapshots have made
redundant are deleted from time to time: the topic is not compacted.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from spindle.common.errors import ApiError, LogDirectoryFailed
from spindle.common.ids import SHARE_STATE_TOPIC, TopicPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.coordinator_result import Token
from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.coordinator.share.state_shard import (
    SHARE_STATE_RECORDS,
    ShareCoordinatorConfig,
    ShareStateShard,
    StateResult,
    WrittenState,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.write_share_group_state import WriteShareGroupStateResponse
from spindle.replicas.metadata_view import MetadataView
from spindle.runtime import background
from spindle.runtime.coordinator.replica_log import ReplicaCoordinatorLog
from spindle.runtime.coordinator.shard_driver import ShardDriver, ShardState
from spindle.runtime.coordinator.shard_table import ShardTable
from spindle.runtime.coordinator.shard_writer import Clock, ShardSettings
from spindle.runtime.metrics.durations import Durations

log = logging.getLogger(__name__)

_DONE: Final = WriteShareGroupStateResponse()


class ShareCoordinator:
    """Implements `ShareStateStore` for the share partitions whose state this broker has.

    All calls must come from one event loop.

    Attributes:
        pruned_offsets: the offset below which records were deleted last, by partition.
        writes: times of writes, for the metrics.
    """

    def __init__(
        self,
        node_id: int,
        config: ShareCoordinatorConfig,
        coordinator_log: ReplicaCoordinatorLog,
        metadata: MetadataView,
        clock: Clock,
        settings: ShardSettings,
        prune_interval_ms: int,
    ) -> None:
        """Create a coordinator without shards."""
        self.shards: ShardTable[ShareStateShard] = ShardTable(
            node_id, SHARE_STATE_TOPIC, metadata, lambda: settings.commit_timeout_ms / 1000
        )
        self._config = config
        self._log = coordinator_log
        self._metadata = metadata
        self._clock = clock
        self._settings = settings
        self._prune_interval_s = prune_interval_ms / 1000
        self.pruned_offsets: dict[int, int] = {}
        self.writes = Durations()
        self._pruning: Any = None

    # ------------------------------------------------------------ leadership

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of `__share_group_state` that this broker now leads.

        A shard of an earlier epoch is loaded again, because an append of that epoch may have failed
        although its record stays in the log.
        """
        shard = self.shards.by_partition.get(partition)
        if shard is not None and leader_epoch <= shard.leader_epoch:
            return
        self.shards.close(partition)
        self.shards.by_partition[partition] = ShardDriver(
            TopicPartition(SHARE_STATE_TOPIC, partition),
            leader_epoch,
            ShareStateShard(self._config, self._partition_exists),
            SHARE_STATE_RECORDS,
            self._log,
            self._clock,
            self._settings,
            self._on_loaded,
        )
        if self._pruning is None:
            self._pruning = background.run_forever(
                self._prune_after_pause, "deletion of redundant share state"
            )

    def _on_loaded(self, shard: ShardDriver[ShareStateShard]) -> None:
        if shard.state is not ShardState.ACTIVE:
            return
        log.log(
            logging.INFO if shard.loaded_records else logging.DEBUG,
            "Loaded %d share partitions of %s (%d records)",
            len(shard.shard.states),
            shard.partition,
            shard.loaded_records,
        )
        # Topics may have been deleted while no broker coordinated these share partitions.
        topics = self._metadata.image.topics.by_id
        gone = {key.topic_id for key in shard.shard.states if key.topic_id not in topics}
        if gone:
            shard.submit_background(_delete_topics(shard.shard, gone))

    def on_resigned(self, partition: int) -> None:
        """Close the shard of a partition that this broker no longer leads."""
        self.shards.close(partition)
        self.pruned_offsets.pop(partition, None)

    def on_topics_deleted(self, topic_ids: Collection[Uuid]) -> None:
        """Delete the states of topics that the cluster has deleted."""
        for shard in self.shards:
            if shard.state in (ShardState.LOADING, ShardState.ACTIVE):
                shard.submit_background(_delete_topics(shard.shard, topic_ids))

    async def close(self) -> None:
        """Close all shards."""
        await background.end(self._pruning)
        for shard in self.shards:
            self.on_resigned(shard.partition.partition)

    def _partition_exists(self, topic_id: Uuid, index: int) -> bool:
        topic = self._metadata.image.topics.by_id.get(topic_id)
        return topic is not None and index in topic.partitions

    # ------------------------------------------------------------ states

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin or reset a state."""
        await self._submit(
            key, lambda core, out: core.initialize(key, state_epoch, start_offset, out)
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> Snapshot:
        """Return a state for the leader in this epoch."""
        read: list[Snapshot] = []
        await self._submit(key, lambda core, out: read.append(core.read(key, leader_epoch, out)))
        return read[0]

    async def write(self, key: ShareKey, written: WrittenState) -> None:
        """Store a change."""
        start_s = asyncio.get_running_loop().time()
        await self._submit(key, lambda core, out: core.write(key, written, out))
        self.writes.observe(asyncio.get_running_loop().time() - start_s)

    async def delete(self, key: ShareKey) -> None:
        """Delete a state."""
        await self._submit(key, lambda core, out: core.delete(key, out))

    async def summary(self, key: ShareKey) -> Snapshot | None:
        """Return a state; None if there is none."""
        shard = await self.shards.wait_for(key.coordinator_key)
        shard.check_active()
        return shard.shard.summary(key)

    async def _submit(
        self, key: ShareKey, decide: Callable[[ShareStateShard, StateResult], None]
    ) -> None:
        """Run an operation; return when its record is committed."""
        shard = await self.shards.wait_for(key.coordinator_key)
        core = shard.shard

        def operation(_: Token, out: StateResult) -> Message:
            decide(core, out)
            return _DONE

        await shard.submit(operation, is_exclusive=lambda: core.is_busy(key))

    # ------------------------------------------------------------ redundant records

    async def _prune_after_pause(self) -> None:
        await asyncio.sleep(self._prune_interval_s)
        await self.prune()

    async def prune(self) -> None:
        """Write snapshots of states that have only old ones, and delete redundant records."""
        for shard in self.shards:
            if shard.state is not ShardState.ACTIVE:
                continue
            core = shard.shard
            try:
                await shard.submit(_snapshot(core), is_exclusive=True)
                offset = core.redundant_offset()
                index = shard.partition.partition
                if offset > self.pruned_offsets.get(index, 0):
                    await self._log.delete_below(shard.partition, offset)
                    self.pruned_offsets[index] = offset
            except (ApiError, LogDirectoryFailed) as error:
                log.info("Redundant records of %s stay for now: %s", shard.partition, error)


def _delete_topics(core: ShareStateShard, topic_ids: Collection[Uuid]) -> Callable[..., Message]:
    def operation(_: Token, out: StateResult) -> Message:
        core.delete_topics(topic_ids, out)
        return _DONE

    return operation


def _snapshot(core: ShareStateShard) -> Callable[..., Message]:
    def operation(_: Token, out: StateResult) -> Message:
        core.snapshot_cold_states(out)
        return _DONE

    return operation
