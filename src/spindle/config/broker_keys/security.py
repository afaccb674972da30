"""Broker keys: principals and delegation tokens."""

from spindle.config.definition import (
    CLASS,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    STRING,
    ConfigKey,
)
from spindle.config.validators import Range

SECURITY_KEYS = (
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3_600_000,
        LOW,
        "Pause between two searches for expired delegation tokens.",
        validator=Range(1),
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        LONG,
        86_400_000,
        MEDIUM,
        "Life of a delegation token until it must be renewed.",
        validator=Range(1),
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        LONG,
        604_800_000,
        MEDIUM,
        "Longest life of a delegation token.",
        validator=Range(1),
    ),
    ConfigKey(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        MEDIUM,
        "Secret that signs delegation tokens; the same on every node.",
    ),
    ConfigKey(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        MEDIUM,
        "Java class that derives the principal of a connection; only the default is known.",
        update_mode=PER_BROKER,
    ),
    ConfigKey("security.providers", STRING, None, LOW, "Java security providers; only accepted."),
)
