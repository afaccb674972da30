"""The options of a source that begin with `kafka.`: properties of the client that asks brokers."""

from collections.abc import Mapping
from typing import Final

from spindle.client.wire.settings import ClientSettings, client_settings
from spindle.common.errors import ConfigError

KAFKA_PREFIX: Final = "kafka."


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the client properties among the options of a source, without their prefix."""
    return {
        key.removeprefix(KAFKA_PREFIX): value
        for key, value in options.items()
        if key.startswith(KAFKA_PREFIX)
    }


def broker_client(properties: Mapping[str, str]) -> ClientSettings:
    """Return the client of these properties.

    Raises:
        ValueError: names the option that is missing or has no usable value.
    """
    try:
        return client_settings(properties)
    except ConfigError as error:
        raise ValueError(f"option {KAFKA_PREFIX}{error}") from None
