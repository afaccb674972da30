"""The configuration keys of groups (KIP-848, KIP-932, KIP-1071) and the broker keys behind them.

The names are those of the broker keys without the leading `group.`; each has a default and bounds
that the broker sets. A few keys have no broker key.
"""

from collections.abc import Mapping
from typing import Final

from spindle.config.definition import BOOLEAN, INT, MEDIUM, STRING, ConfigKey, key_table
from spindle.config.validators import OneOf, Range, ShareOffsetReset

_KEYS = (
    ConfigKey(
        "consumer.assignment.interval.ms",
        INT,
        1000,
        MEDIUM,
        "Pause between two assignments of a consumer group.",
        validator=Range(0),
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms",
        INT,
        5000,
        MEDIUM,
        "Heartbeat interval of the members of a consumer group.",
        validator=Range(1),
    ),
    ConfigKey(
        "consumer.session.timeout.ms",
        INT,
        45_000,
        MEDIUM,
        "Session timeout of the members of a consumer group.",
        validator=Range(1),
    ),
    ConfigKey(
        "share.assignment.interval.ms",
        INT,
        1000,
        MEDIUM,
        "Pause between two assignments of a share group.",
        validator=Range(0),
    ),
    ConfigKey(
        "share.auto.offset.reset",
        STRING,
        "latest",
        MEDIUM,
        "Where a share group without state begins: latest, earliest or by_duration:<ISO duration>.",
        validator=ShareOffsetReset(),
    ),
    ConfigKey(
        "share.delivery.count.limit",
        INT,
        5,
        MEDIUM,
        "Number of delivery attempts of a record in a share group.",
        validator=Range(2),
    ),
    ConfigKey(
        "share.heartbeat.interval.ms",
        INT,
        5000,
        MEDIUM,
        "Heartbeat interval of the members of a share group.",
        validator=Range(1),
    ),
    ConfigKey(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        MEDIUM,
        "Whether a share group sees records of unfinished transactions.",
        validator=OneOf("read_committed", "read_uncommitted"),
    ),
    ConfigKey(
        "share.partition.max.record.locks",
        INT,
        2000,
        MEDIUM,
        "Number of records of a partition that a share group may hold at once.",
        validator=Range(100),
    ),
    ConfigKey(
        "share.record.lock.duration.ms",
        INT,
        30_000,
        MEDIUM,
        "Time that a share group member may hold a record.",
        validator=Range(1000),
    ),
    ConfigKey(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        True,
        MEDIUM,
        "Whether members may renew the lock of a record.",
    ),
    ConfigKey(
        "share.session.timeout.ms",
        INT,
        45_000,
        MEDIUM,
        "Session timeout of the members of a share group.",
        validator=Range(1),
    ),
    ConfigKey(
        "streams.assignment.interval.ms",
        INT,
        1000,
        MEDIUM,
        "Pause between two assignments of a streams group.",
        validator=Range(0),
    ),
    ConfigKey(
        "streams.heartbeat.interval.ms",
        INT,
        5000,
        MEDIUM,
        "Heartbeat interval of the members of a streams group.",
        validator=Range(1),
    ),
    ConfigKey(
        "streams.initial.rebalance.delay.ms",
        INT,
        3000,
        MEDIUM,
        "Pause of a new streams group before its first assignment.",
        validator=Range(0),
    ),
    ConfigKey(
        "streams.num.standby.replicas",
        INT,
        0,
        MEDIUM,
        "Number of standby replicas of each task of a streams group.",
        validator=Range(0),
    ),
    ConfigKey(
        "streams.session.timeout.ms",
        INT,
        45_000,
        MEDIUM,
        "Session timeout of the members of a streams group.",
        validator=Range(1),
    ),
)

GROUP_KEYS: Final = key_table(_KEYS)
"""Every group key by name."""

_WITHOUT_BROKER_KEY: Final = (
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
)

GROUP_BROKER_KEYS: Final[Mapping[str, str]] = {
    name: f"group.{name}" for name in GROUP_KEYS if name not in _WITHOUT_BROKER_KEY
}
"""By group key, the broker key that sets its default."""
