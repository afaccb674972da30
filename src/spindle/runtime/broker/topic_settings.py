"""The effective settings of topics that their replicas need."""

from collections.abc import Mapping

from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.config.topic_config import TopicConfig, topic_config
from spindle.log.log_config import LogConfig
from spindle.metadata.image import MetadataImage
from spindle.replicas.topic_settings import TopicSettings
from spindle.replication.throttling import throttled_partitions


class SettingsOfTopics:
    """Topic configuration over dynamic and static broker defaults.

    Topics with the same configuration share one object. Most clusters have only a few different
    configurations, and computing one takes longer than creating a log.
    """

    def __init__(self, node: NodeConfig) -> None:
        self._node = node
        self._known: dict[tuple[tuple[str, str], ...], TopicSettings] = {}

    def of(self, image: MetadataImage, topic: str) -> TopicSettings:
        """Return the settings of a topic in this image."""
        own = image.configs.topic(topic)
        key = tuple(sorted(own.items())) if own else ()
        settings = self._known.get(key)
        if settings is None:
            settings = self._known[key] = self._make(image, own)
        return settings

    def forget(self) -> None:
        """Drop all computed settings, because defaults of the broker have changed."""
        self._known.clear()

    def _make(self, image: MetadataImage, own: Mapping[str, str]) -> TopicSettings:
        node = self._node
        broker, cluster = image.configs.broker(node.node_id), image.configs.default_broker()
        settings = topic_config(node, own, broker=broker, cluster=cluster)
        values = BrokerValues(node, broker, cluster)
        return TopicSettings(
            log_config(
                settings,
                producer_id_expiration_ms=values.integer("producer.id.expiration.ms"),
                verifies_transactions=values.flag("transaction.partition.verification.enable"),
            ),
            settings.min_insync_replicas,
            throttled_partitions(settings.leader_replication_throttled_replicas, node.node_id),
            throttled_partitions(settings.follower_replication_throttled_replicas, node.node_id),
            accepts_dead_letters=settings.errors_deadletterqueue_group_enable,
        )


def log_config(
    settings: TopicConfig, *, producer_id_expiration_ms: int, verifies_transactions: bool
) -> LogConfig:
    """Return the settings of a topic as its logs use them."""
    return LogConfig(
        segment_bytes=settings.effective_segment_bytes,
        segment_ms=settings.max_segment_ms,
        segment_jitter_ms=settings.segment_jitter_ms,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        max_message_bytes=settings.max_message_bytes,
        max_decompressed_message_bytes=settings.max_decompressed_message_bytes,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.retention_bytes,
        cleanup_policy=settings.cleanup_policy,
        delete_retention_ms=settings.delete_retention_ms,
        min_cleanable_dirty_ratio=settings.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=settings.min_compaction_lag_ms,
        max_compaction_lag_ms=settings.max_compaction_lag_ms,
        file_delete_delay_ms=settings.file_delete_delay_ms,
        flush_messages=settings.flush_messages,
        flush_ms=settings.flush_ms,
        compression_type=settings.compression_type,
        compression_level=settings.compression_level,
        message_timestamp_type=settings.message_timestamp_type,
        message_timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
        producer_id_expiration_ms=producer_id_expiration_ms,
        verifies_transactions=verifies_transactions,
    )
