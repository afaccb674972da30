"""The settings of a topic that its logs obey."""

from dataclasses import dataclass, field
from typing import Final

from spindle.protocol.records.compression import CODEC_NAMES
from spindle.protocol.records.validation import NO_LIMIT_BYTES, NO_LIMIT_MS, AppendRules

_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Values of one topic, with Kafka's defaults. -1 means no limit where a limit may be absent.

    Names are those of the topic settings (`retention.ms` is `retention_ms`); sizes are in bytes,
    times in ms. `compression_type` is `producer` or the name of a codec, `compression_level` the
    level of that codec, None for the library's own; `message_timestamp_type`
    is `CreateTime` or `LogAppendTime`; `cleanup_policy` holds `delete`, `compact` or both.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    max_decompressed_message_bytes: int = NO_LIMIT_BYTES
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NO_LIMIT_MS
    flush_ms: int = NO_LIMIT_MS
    compression_type: str = "producer"
    compression_level: int | None = None
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = NO_LIMIT_MS
    message_timestamp_after_max_ms: int = 3_600_000
    producer_id_expiration_ms: int = _DAY_MS
    verifies_transactions: bool = True
    append_rules: AppendRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        codec = None if self.compression_type == "producer" else CODEC_NAMES[self.compression_type]
        rules = AppendRules(
            max_batch_bytes=self.max_message_bytes,
            codec=codec,
            compression_level=self.compression_level,
            is_compacted=self.is_compacted,
            uses_log_append_time=self.message_timestamp_type == "LogAppendTime",
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            max_decompressed_record_bytes=self.max_decompressed_message_bytes,
        )
        object.__setattr__(self, "append_rules", rules)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy
