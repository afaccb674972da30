"""The effective configuration of a topic, as one typed object.

The order of precedence is: the topic's own value, a dynamic value of the broker, a dynamic default
of all brokers, the property file, the default. `describe` shows the same order to clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.node_values import NodeValues
from spindle.config.topic_keys import BROKER_SYNONYMS, TOPIC_KEYS, Synonym
from spindle.config.values import ConfigValue

NO_CONFIG: Mapping[str, str] = {}

_LIBRARY_GZIP_LEVEL: Final = -1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Every value of a topic; a field has the key's name with underscores. -1 means unlimited."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    errors_deadletterqueue_group_enable: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_copy_lag_bytes: int
    remote_copy_lag_ms: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def effective_segment_bytes(self) -> int:
        """The segment size in bytes: `internal.segment.bytes` where set, else `segment.bytes`."""
        return (
            self.segment_bytes
            if self.internal_segment_bytes is None
            else self.internal_segment_bytes
        )

    @property
    def compression_level(self) -> int | None:
        """The level of the codec of `compression.type`; None for the library's own level."""
        if self.compression_type == "gzip":
            level = self.compression_gzip_level
            return None if level == _LIBRARY_GZIP_LEVEL else level
        return self.compression_zstd_level if self.compression_type == "zstd" else None

    @property
    def max_segment_ms(self) -> int:
        """The age in ms at which a segment is closed.

        In a compacted log `max.compaction.lag.ms` limits it, too.
        """
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


def topic_config(
    node: NodeValues,
    topic: Mapping[str, str] = NO_CONFIG,
    *,
    broker: Mapping[str, str] = NO_CONFIG,
    cluster: Mapping[str, str] = NO_CONFIG,
) -> TopicConfig:
    """Return the effective values of a topic.

    A stored value that no longer parses is skipped, so that a node can start with values that an
    older version stored.

    Args:
        topic: the topic's own configuration.
        broker: dynamic configuration of this broker.
        cluster: dynamic default configuration of all brokers.
    """
    fields: dict[str, ConfigValue] = {}
    for name in TOPIC_KEYS:
        value: ConfigValue = None
        if name in topic:
            value = _parsed_or_none(name, topic[name])
        if value is None:
            value = default_of(name, node, broker=broker, cluster=cluster)
        fields[name.replace(".", "_")] = value
    return TopicConfig(**fields)  # type: ignore[arg-type]


def default_of(
    name: str,
    node: NodeValues,
    *,
    broker: Mapping[str, str] = NO_CONFIG,
    cluster: Mapping[str, str] = NO_CONFIG,
) -> ConfigValue:
    """Return the value of a topic key that the topic itself does not set."""
    for source in (broker, cluster, node.static):
        for synonym in BROKER_SYNONYMS.get(name, ()):
            if synonym.name in source:
                value = _broker_value(synonym, source[synonym.name])
                if value is not None:
                    return value
    return TOPIC_KEYS[name].default_value()


def _broker_value(synonym: Synonym, text: str) -> ConfigValue:
    try:
        value = BROKER_KEYS[synonym.name].parse(text)
    except ConfigError:
        return None
    if synonym.name.startswith("log.retention.") and isinstance(value, int) and value < 0:
        return -1
    return value * synonym.factor if isinstance(value, int) and synonym.factor > 1 else value


def _parsed_or_none(name: str, text: str) -> ConfigValue:
    try:
        return TOPIC_KEYS[name].parse(text)
    except ConfigError:
        return None
