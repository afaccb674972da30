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
    MEDIUM,
    STRING,
    ConfigKey,
    key_table,
)
from spindle.config.validators import GzipLevel, ListOf, OneOf, Range, ThrottledReplicas

_KEYS = (
    ConfigKey(
        "cleanup.policy",
        LIST,
        ("delete",),
        MEDIUM,
        "What happens to old segments: delete, compact, or both; empty keeps everything.",
        validator=ListOf("compact", "delete"),
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        -1,
        MEDIUM,
        "Level for gzip, where compression.type is gzip.",
        validator=GzipLevel(),
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        9,
        MEDIUM,
        "Level for lz4, where compression.type is lz4.",
        validator=Range(1, 17),
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        MEDIUM,
        "Codec in which batches are stored; producer keeps the one they came in.",
        validator=OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        3,
        MEDIUM,
        "Level for zstd, where compression.type is zstd.",
        validator=Range(-131_072, 22),
    ),
    ConfigKey(
        "delete.retention.ms",
        LONG,
        86_400_000,
        MEDIUM,
        "How long tombstones stay after compaction has seen them.",
        validator=Range(0),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        LONG,
        60_000,
        MEDIUM,
        "Pause before a deleted segment file leaves the disk.",
        validator=Range(0),
    ),
    ConfigKey(
        "flush.messages",
        LONG,
        LONG_MAX,
        MEDIUM,
        "Records after which the log is forced to disk.",
        validator=Range(1),
    ),
    ConfigKey(
        "flush.ms",
        LONG,
        LONG_MAX,
        MEDIUM,
        "Longest time that a record stays unforced.",
        validator=Range(0),
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        LIST,
        (),
        MEDIUM,
        "Replicas whose fetching is throttled, as partition:broker pairs or *.",
        validator=ThrottledReplicas(),
    ),
    ConfigKey(
        "index.interval.bytes",
        INT,
        4096,
        MEDIUM,
        "Bytes of log between two index entries.",
        validator=Range(0),
    ),
    ConfigKey(
        "internal.segment.bytes",
        INT,
        None,
        MEDIUM,
        "Segment size without the usual lower bound; for tests.",
        is_internal=True,
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        LIST,
        (),
        MEDIUM,
        "Replicas to which sending is throttled, as partition:broker pairs or *.",
        validator=ThrottledReplicas(),
    ),
    ConfigKey(
        "local.retention.bytes",
        LONG,
        -2,
        MEDIUM,
        "Size above which segments that are also in remote storage leave the disk; -2 means "
        "retention.bytes.",
        validator=Range(-2),
    ),
    ConfigKey(
        "local.retention.ms",
        LONG,
        -2,
        MEDIUM,
        "Age above which segments that are also in remote storage leave the disk; -2 means "
        "retention.ms.",
        validator=Range(-2),
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        MEDIUM,
        "Records older than this are compacted whatever the ratio.",
        validator=Range(1),
    ),
    ConfigKey(
        "max.message.bytes",
        INT,
        1_048_588,
        MEDIUM,
        "Largest record batch that is taken.",
        validator=Range(0),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        MEDIUM,
        "How far a record's time may lie in the future.",
        validator=Range(0),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        MEDIUM,
        "How far a record's time may lie in the past.",
        validator=Range(0),
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        MEDIUM,
        "Whether records keep the producer's time or get the time of the append.",
        validator=OneOf("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        MEDIUM,
        "Share of uncompacted bytes above which the log is compacted.",
        validator=Range(0, 1),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        LONG,
        0,
        MEDIUM,
        "Records younger than this are not compacted.",
        validator=Range(0),
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        1,
        MEDIUM,
        "Replicas that must have a batch before a write with acks=all succeeds.",
        validator=Range(1),
    ),
    ConfigKey(
        "preallocate",
        BOOLEAN,
        False,
        MEDIUM,
        "Whether a new segment takes its full size on disk at once.",
    ),
    ConfigKey(
        "remote.log.copy.disable",
        BOOLEAN,
        False,
        MEDIUM,
        "Whether copying to remote storage stops while reading goes on.",
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        BOOLEAN,
        False,
        MEDIUM,
        "Whether remote data is deleted when remote storage is turned off.",
    ),
    ConfigKey(
        "remote.storage.enable",
        BOOLEAN,
        False,
        MEDIUM,
        "Whether segments are also kept in remote storage.",
    ),
    ConfigKey(
        "retention.bytes",
        LONG,
        -1,
        MEDIUM,
        "Size of a partition above which old segments are deleted; -1 means no limit.",
    ),
    ConfigKey(
        "retention.ms",
        LONG,
        604_800_000,
        MEDIUM,
        "Age above which segments are deleted; -1 means no limit.",
        validator=Range(-1),
    ),
    ConfigKey(
        "segment.bytes",
        INT,
        1_073_741_824,
        MEDIUM,
        "Size at which a segment is closed and a new one begins.",
        validator=Range(1_048_576),
    ),
    ConfigKey(
        "segment.index.bytes",
        INT,
        10_485_760,
        MEDIUM,
        "Largest size of an offset or time index.",
        validator=Range(4),
    ),
    ConfigKey(
        "segment.jitter.ms",
        LONG,
        0,
        MEDIUM,
        "Largest random amount by which a segment is closed earlier.",
        validator=Range(0),
    ),
    ConfigKey(
        "segment.ms",
        LONG,
        604_800_000,
        MEDIUM,
        "Age at which a segment is closed even if it is not full.",
        validator=Range(1),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        MEDIUM,
        "Whether a replica outside the in-sync set may lead, at the price of lost records.",
    ),
)

TOPIC_KEYS: Final = key_table(_KEYS)
"""Every topic key by name."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000


class Synonym(NamedTuple):
    """A broker key that sets the default of a topic key."""

    name: str
    factor: int = 1
    """What a value of the broker key is multiplied by (hours and minutes to ms); -1 stays -1."""


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
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
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
"""By topic key, the broker keys in order of precedence."""
