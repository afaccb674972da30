"""The configuration keys of topics, and the broker keys that give their defaults.

A topic's value comes from its own configuration, else from the first broker key of
`BROKER_SYNONYMS` that is set (dynamic before static), else from the default here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spindle.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    MAX_ARRAY_BYTES,
    STRING,
    WITH_RESOURCE,
    ConfigKey,
    key_table,
)
from spindle.config.no_effect import (
    NO_PREALLOCATION,
    NO_TIERED_STORAGE,
    ONE_LZ4_LEVEL,
)
from spindle.config.validators import GzipLevel, ListOf, OneOf, Range, ThrottledReplicas

# fmt: off
_KEYS = (
    ConfigKey("cleanup.policy", LIST, ("delete",), ListOf("compact", "delete"), WITH_RESOURCE,
              "Policy for old segments: delete, compact, or both; empty keeps everything."),
    ConfigKey("compression.gzip.level", INT, -1, GzipLevel(), WITH_RESOURCE,
              "Level of gzip where compression.type is gzip and the broker compresses."),
    ConfigKey("compression.lz4.level", INT, 9, Range(1, 17), WITH_RESOURCE,
              "Level of lz4 where compression.type is lz4 and the broker compresses.",
              no_effect=ONE_LZ4_LEVEL),
    ConfigKey("compression.type", STRING, "producer", OneOf("uncompressed", "zstd", "lz4", "snappy",
              "gzip", "producer"), WITH_RESOURCE,
              "Codec in which batches are stored; producer keeps the codec of the producer."),
    ConfigKey("compression.zstd.level", INT, 3, Range(-131_072, 22), WITH_RESOURCE,
              "Level of zstd where compression.type is zstd and the broker compresses."),
    ConfigKey("delete.retention.ms", LONG, 86_400_000, Range(0), WITH_RESOURCE,
              "Time for which compaction keeps tombstones."),
    ConfigKey("errors.deadletterqueue.group.enable", BOOLEAN, False, None, WITH_RESOURCE,
              "Whether share groups may use the topic as their dead-letter topic."),
    ConfigKey("file.delete.delay.ms", LONG, 60_000, Range(0), WITH_RESOURCE,
              "Pause before the files of a deleted segment are removed."),
    ConfigKey("flush.messages", LONG, LONG_MAX, Range(1), WITH_RESOURCE,
              "Number of records after which a partition is flushed to disk."),
    ConfigKey("flush.ms", LONG, LONG_MAX, Range(0), WITH_RESOURCE,
              "Time after which a record must be flushed; checked every "
              "log.flush.scheduler.interval.ms."),
    ConfigKey("follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(),
              WITH_RESOURCE,
              "Replicas whose fetching is throttled, as partition:broker pairs or *."),
    ConfigKey("index.interval.bytes", INT, 4096, Range(0), WITH_RESOURCE,
              "Bytes of log between two index entries."),
    ConfigKey("internal.segment.bytes", INT, None, None, WITH_RESOURCE,
              "Segment size without the usual lower bound; for tests.", is_internal=True),
    ConfigKey("leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), WITH_RESOURCE,
              "Replicas to which sending is throttled, as partition:broker pairs or *."),
    ConfigKey("local.retention.bytes", LONG, -2, Range(-2), WITH_RESOURCE,
              "Size above which segments that are also in remote storage leave the disk; -2 means"
              " retention.bytes.", no_effect=NO_TIERED_STORAGE),
    ConfigKey("local.retention.ms", LONG, -2, Range(-2), WITH_RESOURCE,
              "Age above which segments that are also in remote storage leave the disk; -2 means "
              "retention.ms.", no_effect=NO_TIERED_STORAGE),
    ConfigKey("max.compaction.lag.ms", LONG, LONG_MAX, Range(1), WITH_RESOURCE,
              "Age from which on a record is compacted whatever the ratio."),
    ConfigKey("max.decompressed.message.bytes", INT, MAX_ARRAY_BYTES, Range(1, MAX_ARRAY_BYTES),
              WITH_RESOURCE,
              "Largest record that is accepted in a compressed batch, in bytes after "
              "decompression."),
    ConfigKey("max.message.bytes", INT, 1_048_588, Range(0), WITH_RESOURCE,
              "Largest record batch that is accepted, in bytes."),
    ConfigKey("message.timestamp.after.max.ms", LONG, 3_600_000, Range(0), WITH_RESOURCE,
              "Maximum time by which the timestamp of a record may lie in the future."),
    ConfigKey("message.timestamp.before.max.ms", LONG, LONG_MAX, Range(0), WITH_RESOURCE,
              "Maximum time by which the timestamp of a record may lie in the past."),
    ConfigKey("message.timestamp.type", STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime"),
              WITH_RESOURCE,
              "Whether records keep the producer's timestamp or get the time of the append."),
    ConfigKey("min.cleanable.dirty.ratio", DOUBLE, 0.5, Range(0, 1), WITH_RESOURCE,
              "Share of uncompacted bytes above which the log is compacted."),
    ConfigKey("min.compaction.lag.ms", LONG, 0, Range(0), WITH_RESOURCE,
              "Age up to which a record is not compacted."),
    ConfigKey("min.insync.replicas", INT, 1, Range(1), WITH_RESOURCE,
              "Number of in-sync replicas that must have a batch before a write with acks=all "
              "succeeds."),
    ConfigKey("preallocate", BOOLEAN, False, None, WITH_RESOURCE,
              "Whether a new segment takes its full size on disk at once.",
              no_effect=NO_PREALLOCATION),
    ConfigKey("remote.copy.lag.bytes", LONG, -1, Range(-1), WITH_RESOURCE,
              "Bytes of newer records after which a segment may be copied to remote storage.",
              no_effect=NO_TIERED_STORAGE),
    ConfigKey("remote.copy.lag.ms", LONG, 0, Range(-1), WITH_RESOURCE,
              "Age from which on a segment may be copied to remote storage.",
              no_effect=NO_TIERED_STORAGE),
    ConfigKey("remote.log.copy.disable", BOOLEAN, False, None, WITH_RESOURCE,
              "Whether copying to remote storage stops while reading goes on.",
              no_effect=NO_TIERED_STORAGE),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, False, None, WITH_RESOURCE,
              "Whether remote data is deleted when remote storage is turned off.",
              no_effect=NO_TIERED_STORAGE),
    ConfigKey("remote.storage.enable", BOOLEAN, False, None, WITH_RESOURCE,
              "Whether segments are also kept in remote storage.", no_effect=NO_TIERED_STORAGE),
    ConfigKey("retention.bytes", LONG, -1, None, WITH_RESOURCE,
              "Size of a partition above which its oldest segments are deleted; -1 means no "
              "limit."),
    ConfigKey("retention.ms", LONG, 604_800_000, Range(-1), WITH_RESOURCE,
              "Age from which on a segment is deleted; -1 means no limit."),
    ConfigKey("segment.bytes", INT, 1_073_741_824, Range(1_048_576), WITH_RESOURCE,
              "Size at which a segment is closed and a new one begins."),
    ConfigKey("segment.index.bytes", INT, 10_485_760, Range(4), WITH_RESOURCE,
              "Largest size of an offset or time index."),
    ConfigKey("segment.jitter.ms", LONG, 0, Range(0), WITH_RESOURCE,
              "Maximum time by which a segment is closed earlier, different for each segment."),
    ConfigKey("segment.ms", LONG, 604_800_000, Range(1), WITH_RESOURCE,
              "Age at which a segment is closed even if it is not full."),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, None, WITH_RESOURCE,
              "Whether a replica that is not in sync may become leader, at the price of lost "
              "records."),
)
# fmt: on

TOPIC_KEYS: Final = key_table(_KEYS)
"""Every topic key by name."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


class Synonym(NamedTuple):
    """A broker key that gives a topic key its default."""

    name: str
    factor: int = 1
    """Factor from the broker key's unit to ms; a value of -1 stays -1."""


BROKER_SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.decompressed.message.bytes": (Synonym("max.decompressed.message.bytes"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "remote.copy.lag.bytes": (Synonym("log.remote.copy.lag.bytes"),),
    "remote.copy.lag.ms": (Synonym("log.remote.copy.lag.ms"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}
"""The broker keys that give the default, in order of precedence, by topic key."""
