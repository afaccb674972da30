"""The configuration keys of groups (KIP-848, KIP-932, KIP-1071) and the broker keys behind them.

The broker key behind a group key has the same name with `group.` before it. It gives the default,
and other broker keys give the limits. A few group keys have no broker key.
"""

from collections.abc import Mapping
from typing import Final

from spindle.config.definition import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    STRING,
    WITH_RESOURCE,
    ConfigKey,
    key_table,
)
from spindle.config.no_effect import (
    ASSIGNS_AT_ONCE,
    NO_CLIENT_TAGS,
    NO_WARMUPS,
    ONE_STREAMS_ASSIGNOR,
)
from spindle.config.validators import ListOf, OneOf, Range, ShareOffsetReset

# fmt: off
_KEYS = (
    ConfigKey("consumer.assignment.interval.ms", INT, 1000, Range(0), WITH_RESOURCE,
              "Time between two assignments of a consumer group."),
    ConfigKey("consumer.assignor.offload.enable", BOOLEAN, True, None, WITH_RESOURCE,
              "Whether assignments of a consumer group are computed beside its requests.",
              is_internal=True, no_effect=ASSIGNS_AT_ONCE),
    ConfigKey("consumer.heartbeat.interval.ms", INT, 5000, Range(1), WITH_RESOURCE,
              "Heartbeat interval of the members of a consumer group."),
    ConfigKey("consumer.session.timeout.ms", INT, 45_000, Range(1), WITH_RESOURCE,
              "Session timeout of the members of a consumer group."),
    ConfigKey("errors.deadletterqueue.copy.record.enable", BOOLEAN, False, None, WITH_RESOURCE,
              "Whether the dead-letter topic of a share group gets key and value of the record."),
    ConfigKey("errors.deadletterqueue.topic.name", STRING, "", None, WITH_RESOURCE,
              "Dead-letter topic of a share group; empty for none."),
    ConfigKey("share.assignment.interval.ms", INT, 1000, Range(0), WITH_RESOURCE,
              "Pause between two assignments of a share group."),
    ConfigKey("share.assignor.offload.enable", BOOLEAN, True, None, WITH_RESOURCE,
              "Whether assignments of a share group are computed beside its requests.",
              is_internal=True, no_effect=ASSIGNS_AT_ONCE),
    ConfigKey("share.auto.offset.reset", STRING, "latest", ShareOffsetReset(), WITH_RESOURCE,
              "Position at which a share group without state begins: latest, earliest or "
              "by_duration:<ISO duration>."),
    ConfigKey("share.delivery.count.limit", INT, 5, Range(2), WITH_RESOURCE,
              "Number of delivery attempts of a record in a share group."),
    ConfigKey("share.heartbeat.interval.ms", INT, 5000, Range(1), WITH_RESOURCE,
              "Heartbeat interval of the members of a share group."),
    ConfigKey("share.isolation.level", STRING, "read_uncommitted", OneOf("read_committed",
              "read_uncommitted"), WITH_RESOURCE,
              "Whether a share group sees records of unfinished transactions."),
    ConfigKey("share.partition.max.record.locks", INT, 2000, Range(100), WITH_RESOURCE,
              "Number of records of a partition that a share group may hold at once."),
    ConfigKey("share.record.lock.duration.ms", INT, 30_000, Range(1000), WITH_RESOURCE,
              "Time that a share group member may hold a record."),
    ConfigKey("share.renew.acknowledge.enable", BOOLEAN, True, None, WITH_RESOURCE,
              "Whether members may renew the lock of a record."),
    ConfigKey("share.session.timeout.ms", INT, 45_000, Range(1), WITH_RESOURCE,
              "Session timeout of the members of a share group."),
    ConfigKey("streams.acceptable.recovery.lag", LONG, 10_000, Range(0), WITH_RESOURCE,
              "Offsets that a member may lag behind and still get an active task.",
              is_internal=True),
    ConfigKey("streams.assignment.interval.ms", INT, 1000, Range(0), WITH_RESOURCE,
              "Pause between two assignments of a streams group."),
    ConfigKey("streams.assignor.name", STRING, None, None, WITH_RESOURCE,
              "Assignor of a streams group; unset for the first of group.streams.assignors.",
              no_effect=ONE_STREAMS_ASSIGNOR),
    ConfigKey("streams.assignor.offload.enable", BOOLEAN, True, None, WITH_RESOURCE,
              "Whether assignments of a streams group are computed beside its requests.",
              is_internal=True, no_effect=ASSIGNS_AT_ONCE),
    ConfigKey("streams.heartbeat.interval.ms", INT, 5000, Range(1), WITH_RESOURCE,
              "Heartbeat interval of the members of a streams group."),
    ConfigKey("streams.initial.rebalance.delay.ms", INT, 3000, Range(0), WITH_RESOURCE,
              "Pause of a new streams group before its first assignment."),
    ConfigKey("streams.num.standby.replicas", INT, 0, Range(0), WITH_RESOURCE,
              "Number of standby replicas of each task of a streams group."),
    ConfigKey("streams.num.warmup.replicas", INT, 2, Range(0), WITH_RESOURCE,
              "Maximum number of warm-up tasks of a streams group.",
              is_internal=True, no_effect=NO_WARMUPS),
    ConfigKey("streams.rack.aware.assignment.tags", LIST, (), ListOf(), WITH_RESOURCE,
              "Client tags over which standby tasks are spread.", no_effect=NO_CLIENT_TAGS),
    ConfigKey("streams.session.timeout.ms", INT, 45_000, Range(1), WITH_RESOURCE,
              "Session timeout of the members of a streams group."),
    ConfigKey("streams.task.offset.interval.ms", INT, 60_000, Range(1), WITH_RESOURCE,
              "Time between two reports of the offsets of warm-up tasks.",
              is_internal=True),
)
# fmt: on

GROUP_KEYS: Final = key_table(_KEYS)
"""Every group key by name."""

_WITHOUT_BROKER_KEY: Final = (
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.topic.name",
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
)

GROUP_BROKER_KEYS: Final[Mapping[str, str]] = {
    name: "group.streams.assignors" if name == "streams.assignor.name" else f"group.{name}"
    for name in GROUP_KEYS
    if name not in _WITHOUT_BROKER_KEY
}
"""The broker key that gives the default, by group key."""
