"""The coordinators of a broker: groups and transactions."""

from collections.abc import Mapping
from typing import Final

from spindle.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.broker.environment import BrokerEnvironment
from spindle.runtime.coordinator.group_coordinator import GroupCoordinator
from spindle.runtime.coordinator.replica_log import ReplicaCoordinatorLog
from spindle.runtime.coordinator.settings import (
    group_coordinator_config,
    shard_settings,
    transaction_shard_settings,
    transactions_config,
)
from spindle.runtime.coordinator.transaction_coordinator import TransactionCoordinator
from spindle.serving.producer_ids import ProducerIds


class Coordinators:
    """The group and the transaction coordinator, for the partitions that this broker leads."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        replicas: ReplicaManager,
        metadata: MetadataView,
        producer_ids: ProducerIds,
    ) -> None:
        env, config = environment, environment.config
        log = ReplicaCoordinatorLog(replicas, env.now_ms)
        self.groups: Final = GroupCoordinator(
            config.node_id,
            group_coordinator_config(config),
            log,
            metadata,
            env.now_ms,
            env.new_uuid,
            shard_settings(config),
        )
        self.transactions: Final = TransactionCoordinator(
            config.node_id,
            transactions_config(config),
            log,
            metadata,
            env.now_ms,
            transaction_shard_settings(config),
            producer_ids,
            config.inter_broker_listener_name,
            env.peers.broker_pool(f"broker-{config.node_id}-txn-marker-sender"),
        )
        self._by_topic: Mapping[str, GroupCoordinator | TransactionCoordinator] = {
            OFFSETS_TOPIC: self.groups,
            TRANSACTIONS_TOPIC: self.transactions,
        }
        replicas.on_leadership(self._on_leadership)

    def _on_leadership(self, partition: Partition, is_leader: bool) -> None:
        where = partition.topic_partition
        coordinator = self._by_topic.get(where.topic)
        if coordinator is None:
            return
        if is_leader:
            coordinator.on_elected(where.partition, partition.leader_epoch)
        else:
            coordinator.on_resigned(where.partition)

    async def close(self) -> None:
        """Answer the waiting requests and close all shards."""
        self.groups.close()
        await self.transactions.close()
