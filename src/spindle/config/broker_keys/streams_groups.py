"""Broker keys: streams groups (KIP-1071)."""

from spindle.config.definition import CLUSTER_WIDE, INT, INT_MAX, READ_ONLY, ConfigKey
from spindle.config.no_effect import NO_SHARE_GROUPS
from spindle.config.validators import Range

# fmt: off
STREAMS_GROUPS_KEYS = (
    ConfigKey("group.streams.assignment.interval.ms", INT, 1000, Range(0), CLUSTER_WIDE,
              "Pause between two assignments of a streams group.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.heartbeat.interval.ms", INT, 5000, Range(1), READ_ONLY,
              "Heartbeat interval of the members of a streams group.",
              no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.initial.rebalance.delay.ms", INT, 3000, Range(0), READ_ONLY,
              "Time for which a new streams group waits for more members before its first "
              "assignment.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.max.assignment.interval.ms", INT, 15_000, Range(0), READ_ONLY,
              "Upper limit of group.streams.assignment.interval.ms.",
              no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.max.heartbeat.interval.ms", INT, 15_000, Range(1), READ_ONLY,
              "Upper limit of group.streams.heartbeat.interval.ms.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.max.session.timeout.ms", INT, 60_000, Range(1), READ_ONLY,
              "Upper limit of group.streams.session.timeout.ms.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.max.size", INT, INT_MAX, Range(1), READ_ONLY,
              "Maximum number of members of a streams group.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.max.standby.replicas", INT, 2, Range(0), READ_ONLY,
              "Maximum number of standby replicas that a group may ask for.",
              no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.min.assignment.interval.ms", INT, 0, Range(0), READ_ONLY,
              "Lower limit of group.streams.assignment.interval.ms.",
              no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.min.heartbeat.interval.ms", INT, 5000, Range(1), READ_ONLY,
              "Lower limit of group.streams.heartbeat.interval.ms.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.min.session.timeout.ms", INT, 45_000, Range(1), READ_ONLY,
              "Lower limit of group.streams.session.timeout.ms.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.num.standby.replicas", INT, 0, Range(0), READ_ONLY,
              "Number of standby replicas of each task.", no_effect=NO_SHARE_GROUPS),
    ConfigKey("group.streams.session.timeout.ms", INT, 45_000, Range(1), READ_ONLY,
              "Session timeout of the members of a streams group.", no_effect=NO_SHARE_GROUPS),
)
# fmt: on
