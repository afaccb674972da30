"""The options that begin with `kafka.`: properties of the client that asks brokers."""

from collections.abc import Mapping
from typing import Final

from spindle.client.blocking.settings import ClientSettings, client_settings
from spindle.common.errors import ConfigError
from spindle.pipeline.options.values import choice

KAFKA_PREFIX: Final = "kafka."
_ISOLATION_LEVELS: Final = {"read_uncommitted": False, "read_committed": True}
_REFUSED_BY_SOURCES: Final = {
    "auto.offset.reset": "use the options startingOffsets and failOnDataLoss",
    "key.deserializer": "keys are returned as bytes; decode them with DataFrame functions",
    "value.deserializer": "values are returned as bytes; decode them with DataFrame functions",
    "enable.auto.commit": "a batch read commits no offsets",
    "interceptor.classes": "interceptors could change the records",
}


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the client properties among options, whose names are in lower case, unprefixed."""
    return {
        key.removeprefix(KAFKA_PREFIX): value
        for key, value in options.items()
        if key.startswith(KAFKA_PREFIX)
    }


def refuse_properties(properties: Mapping[str, str], refused: Mapping[str, str]) -> None:
    """Refuse some properties.

    Args:
        refused: By name, advice that helps instead.

    Raises:
        ValueError: one of them is there.
    """
    for name, advice in refused.items():
        if name in properties:
            raise ValueError(f"option {KAFKA_PREFIX}{name} is not supported: {advice}")


def source_client(options: Mapping[str, str]) -> ClientSettings | None:
    """Return the client of a source, None if the options name no brokers.

    Args:
        options: with names in lower case.

    Raises:
        ValueError: names the option that has no usable value.
    """
    properties = kafka_properties(options)
    refuse_properties(properties, _REFUSED_BY_SOURCES)
    if "bootstrap.servers" not in properties:
        return None
    level = "read_committed" if is_read_committed(options) else "read_uncommitted"
    return broker_client({**properties, "isolation.level": level})


def missing_servers() -> ValueError:
    """Return the error for options that name no brokers."""
    return ValueError("option kafka.bootstrap.servers is missing, want host:port[,host:port...]")


def broker_client(properties: Mapping[str, str]) -> ClientSettings:
    """Return the client of these properties.

    Raises:
        ValueError: names the option that is missing or has no usable value.
    """
    try:
        return client_settings(properties)
    except ConfigError as error:
        raise ValueError(f"option {KAFKA_PREFIX}{error}") from None


def is_read_committed(options: Mapping[str, str]) -> bool:
    """Return True if aborted transactions are left out and open ones are not read.

    Args:
        options: with names in lower case.

    Raises:
        ValueError: an unknown level, or two different ones.
    """
    names = ("isolationLevel", "kafka.isolation.level")
    given = [name for name in names if name.lower() in options]
    answers = {choice(options, name, _ISOLATION_LEVELS, False) for name in given}
    if len(answers) > 1:
        raise ValueError(f"options {' and '.join(given)} differ, want one of them")
    return True in answers
