"""The key tables of a node: Kafka 4.4's keys and Spindle's own, one module per subject.

Names, types, defaults, ranges and update modes are Kafka's. A row whose value changes nothing in
Spindle has a `no_effect` reason.
"""

from typing import Final

from spindle.config.broker_keys.groups import GROUPS_KEYS
from spindle.config.broker_keys.log import LOG_KEYS
from spindle.config.broker_keys.network import NETWORK_KEYS
from spindle.config.broker_keys.node import NODE_KEYS
from spindle.config.broker_keys.quorum import QUORUM_KEYS
from spindle.config.broker_keys.quotas import QUOTAS_KEYS
from spindle.config.broker_keys.remote import REMOTE_KEYS
from spindle.config.broker_keys.replication import REPLICATION_KEYS
from spindle.config.broker_keys.sasl import SASL_KEYS
from spindle.config.broker_keys.security import SECURITY_KEYS
from spindle.config.broker_keys.share_groups import SHARE_GROUPS_KEYS
from spindle.config.broker_keys.spindle import CORDON_NOTES, SPINDLE_KEYS
from spindle.config.broker_keys.streams_groups import STREAMS_GROUPS_KEYS
from spindle.config.broker_keys.tls import TLS_KEYS
from spindle.config.broker_keys.transactions import TRANSACTIONS_KEYS
from spindle.config.definition import key_table

DYNAMIC_ONLY: Final = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    CORDON_NOTES,
)
"""Keys that can only be set by request; in a property file they have no effect."""

DYNAMIC_KEYS: Final = key_table(
    NODE_KEYS,
    QUORUM_KEYS,
    NETWORK_KEYS,
    LOG_KEYS,
    REPLICATION_KEYS,
    GROUPS_KEYS,
    SHARE_GROUPS_KEYS,
    STREAMS_GROUPS_KEYS,
    TRANSACTIONS_KEYS,
    QUOTAS_KEYS,
    REMOTE_KEYS,
    SECURITY_KEYS,
    SASL_KEYS,
    TLS_KEYS,
    SPINDLE_KEYS,
)
"""Every key that a broker resource can have, by name, including `DYNAMIC_ONLY`."""

BROKER_KEYS: Final = {name: key for name, key in DYNAMIC_KEYS.items() if name not in DYNAMIC_ONLY}
"""Every key that a property file can have, by name."""
