"""The configuration keys of client metrics subscriptions (KIP-714)."""

from typing import Final

from spindle.config.definition import INT, LIST, MEDIUM, ConfigKey, key_table
from spindle.config.validators import ListOf

CLIENT_METRICS_KEYS: Final = key_table(
    (
        ConfigKey(
            "interval.ms", INT, 300_000, MEDIUM, "Pause between two pushes of a client's metrics."
        ),
        ConfigKey(
            "match",
            LIST,
            (),
            MEDIUM,
            "Which clients are meant, as property=pattern pairs; empty means all.",
            validator=ListOf(),
        ),
        ConfigKey(
            "metrics",
            LIST,
            (),
            MEDIUM,
            "Prefixes of the metrics that are wanted; * means all.",
            validator=ListOf(),
        ),
    )
)
"""Every key of a subscription by name."""

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000

MATCH_PROPERTIES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern of `match` may look at."""
