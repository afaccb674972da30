"""The configuration keys of client metrics subscriptions (KIP-714)."""

from typing import Final

from spindle.config.definition import INT, LIST, WITH_RESOURCE, ConfigKey, key_table
from spindle.config.no_effect import NO_TELEMETRY
from spindle.config.validators import ListOf

# fmt: off
_KEYS = (
    ConfigKey("interval.ms", INT, 300_000, None, WITH_RESOURCE,
              "Pause between two pushes of a client's metrics.", no_effect=NO_TELEMETRY),
    ConfigKey("match", LIST, (), ListOf(), WITH_RESOURCE,
              "Clients that the subscription is for, as property=pattern pairs; empty means all.",
              no_effect=NO_TELEMETRY),
    ConfigKey("metrics", LIST, (), ListOf(), WITH_RESOURCE,
              "Prefixes of the metrics that clients push; * means all.", no_effect=NO_TELEMETRY),
)
# fmt: on

CLIENT_METRICS_KEYS: Final = key_table(_KEYS)
"""Every key of a subscription by name."""
