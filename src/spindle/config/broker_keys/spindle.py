"""Broker keys that Kafka does not have. DescribeConfigs shows them only where they are set."""

from typing import Final

from spindle.config.definition import INT, LOW, STRING, ConfigKey
from spindle.config.endpoints import parse_servers
from spindle.config.validators import OneOf, Range
from spindle.config.values import ConfigValue, invalid_value

METRICS_LISTENER: Final = "spindle.metrics.listener"
LOG_FORMAT: Final = "spindle.log.format"
HANG_TIMEOUT: Final = "spindle.log.dir.hang.timeout.ms"


class HostAndPort:
    """Unset, or one `host:port`."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        if value is None:
            return
        if not isinstance(value, str):
            raise invalid_value(name, value)
        parse_servers(name, [value])

    def __str__(self) -> str:
        return "{host}:{port}"


SPINDLE_KEYS = (
    ConfigKey(
        METRICS_LISTENER,
        STRING,
        None,
        LOW,
        "Where /metrics (Prometheus), /health and /ready are served over HTTP, as {host}:{port}; "
        "port 0 takes a free one. Unset, nothing is served.",
        validator=HostAndPort(),
        is_internal=True,
    ),
    ConfigKey(
        LOG_FORMAT,
        STRING,
        "text",
        LOW,
        "Form of the log lines: text as Kafka lays them out, or json with one object a line.",
        validator=OneOf("text", "json"),
        is_internal=True,
    ),
    ConfigKey(
        HANG_TIMEOUT,
        INT,
        60_000,
        LOW,
        "A log directory whose disk has not answered for so long counts as failed, as one whose "
        "disk reports an error does. After 10 seconds the log says that it hangs.",
        validator=Range(1_000),
        is_internal=True,
    ),
)
