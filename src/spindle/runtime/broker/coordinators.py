"""The coordinators of a broker: groups, transactions and the states of share groups."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from spindle.common.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from spindle.common.uuids import Uuid
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.broker.environment import BrokerEnvironment
from spindle.runtime.coordinator.group_coordinator import GroupCoordinator
from spindle.runtime.coordinator.replica_log import ReplicaCoordinatorLog
from spindle.runtime.coordinator.settings import (
    group_coordinator_config,
    shard_settings,
    share_coordinator_config,
    share_shard_settings,
    transaction_shard_settings,
    transactions_config,
)
from spindle.runtime.coordinator.share_coordinator import ShareCoordinator
from spindle.runtime.coordinator.share_groups import ShareGroupCoordinator
from spindle.runtime.coordinator.share_state_client import ShareStateClient
from spindle.runtime.coordinator.transaction_coordinator import TransactionCoordinator
from spindle.runtime.peers.port import Peers
from spindle.runtime.share.dead_letter_writer import DeadLetterWriter
from spindle.runtime.share.latest_offsets import LatestOffsetsOfLeaders
from spindle.runtime.share.settings import delivery_config_of
from spindle.runtime.share.share_partitions import SharePartitions
from spindle.serving.producer_ids import ProducerIds


class Coordinators:
    """The coordinators of groups, transactions and share states, for the partitions of their topics
    that this broker leads."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        replicas: ReplicaManager,
        metadata: MetadataView,
        producer_ids: ProducerIds,
        ensure_topic: Callable[[str], Awaitable[None]],
        dead_letters: DeadLetterWriter,
    ) -> None:
        env, config = environment, environment.config
        listener = config.inter_broker_listener_name
        log = ReplicaCoordinatorLog(replicas, env.now_ms)

        def pool(purpose: str) -> Peers:
            return env.peers.broker_pool(f"broker-{config.node_id}-{purpose}")

        self.groups: Final = _group_coordinator(env, log, metadata)
        self.transactions: Final = TransactionCoordinator(
            config.node_id,
            transactions_config(config),
            log,
            metadata,
            env.now_ms,
            transaction_shard_settings(config),
            producer_ids,
            listener,
            pool("txn-marker-sender"),
        )
        self.share_states: Final = _share_coordinator(env, log, metadata)
        self._share_store: Final = ShareStateClient(
            config.node_id,
            self.share_states,
            metadata,
            listener,
            pool("share-persister"),
            ensure_topic,
        )
        self.share_groups: Final = ShareGroupCoordinator(self.groups, self._share_store)
        self.dead_letters: Final = dead_letters
        self.share_partitions: Final = SharePartitions(
            replicas,
            self._share_store,
            delivery_config_of(config, metadata),
            env.now_ms,
            config.integer("group.share.max.share.sessions"),
            dead_letters.write,
        )
        self.latest_offsets: Final = LatestOffsetsOfLeaders(
            config.node_id, metadata, replicas, listener, pool("latest-offsets")
        )
        self._by_topic: Mapping[
            str, GroupCoordinator | TransactionCoordinator | ShareCoordinator
        ] = {
            OFFSETS_TOPIC: self.groups,
            TRANSACTIONS_TOPIC: self.transactions,
            SHARE_STATE_TOPIC: self.share_states,
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

    def on_topics_deleted(self, topics: Sequence[tuple[Uuid, str]]) -> None:
        """Forget topics (id and name) that the cluster has deleted."""
        self.groups.on_topics_deleted(topics)
        topic_ids = [topic_id for topic_id, _ in topics]
        self.share_partitions.on_topics_deleted(topic_ids)
        self.share_states.on_topics_deleted(topic_ids)

    async def close(self) -> None:
        """Answer the waiting requests and close all shards."""
        self.share_partitions.close()
        await self.share_groups.close()
        await self.share_states.close()
        self._share_store.close()
        self.dead_letters.close()
        self.latest_offsets.close()
        self.groups.close()
        await self.transactions.close()


def _share_coordinator(
    env: BrokerEnvironment, log: ReplicaCoordinatorLog, metadata: MetadataView
) -> ShareCoordinator:
    config = env.config
    return ShareCoordinator(
        config.node_id,
        share_coordinator_config(config),
        log,
        metadata,
        env.now_ms,
        share_shard_settings(config),
        config.integer("share.coordinator.state.topic.prune.interval.ms"),
    )


def _group_coordinator(
    env: BrokerEnvironment, log: ReplicaCoordinatorLog, metadata: MetadataView
) -> GroupCoordinator:
    config = env.config
    return GroupCoordinator(
        config.node_id,
        group_coordinator_config(config),
        log,
        metadata,
        env.now_ms,
        env.new_uuid,
        shard_settings(config),
    )
