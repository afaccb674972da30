"""Broker keys: principals and delegation tokens."""

from spindle.config.definition import (
    CLASS,
    LONG,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
)
from spindle.config.no_effect import NO_JAVA
from spindle.config.validators import Range

# fmt: off
SECURITY_KEYS = (
    ConfigKey("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, Range(1), READ_ONLY,
              "Pause between two searches for expired delegation tokens."),
    ConfigKey("delegation.token.expiry.time.ms", LONG, 86_400_000, Range(1), READ_ONLY,
              "Life of a delegation token until it must be renewed."),
    ConfigKey("delegation.token.max.lifetime.ms", LONG, 604_800_000, Range(1), READ_ONLY,
              "Longest life of a delegation token."),
    ConfigKey("delegation.token.secret.key", PASSWORD, None, None, READ_ONLY,
              "Secret that signs delegation tokens; the same on every node."),
    ConfigKey("principal.builder.class", CLASS,
              "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", None,
              PER_BROKER,
              "Java class that derives the principal of a connection.", no_effect=NO_JAVA),
    ConfigKey("security.providers", STRING, None, None, READ_ONLY,
              "Java security providers.", no_effect=NO_JAVA),
)
# fmt: on
