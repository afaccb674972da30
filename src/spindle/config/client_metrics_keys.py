"""The configuration keys of client metrics subscriptions (KIP-714)."""

from typing import Final

from spindle.config.definition import INT, LIST, WITH_RESOURCE, ConfigKey, key_table
from spindle.config.validators import ListOf

# fmt: off
_KEYS = (
    ConfigKey("interval.ms", INT, 300_000, None, WITH_RESOURCE,
              "Pause between two pushes of a client's metrics."),
    ConfigKey("match", LIST, (), ListOf(), WITH_RESOURCE,
              "Clients that the subscription is for, as property=pattern pairs; empty means all."),
    ConfigKey("metrics", LIST, (), ListOf(), WITH_RESOURCE,
              "Prefixes of the metrics that clients push; * means all."),
)
# fmt: on

CLIENT_METRICS_KEYS: Final = key_table(_KEYS)
"""Every key of a subscription by name."""
