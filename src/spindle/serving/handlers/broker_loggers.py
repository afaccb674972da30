"""Levels of a broker's loggers (KIP-412), in Kafka's names of levels.

They are not stored: a restart resets them.
"""

import logging
from collections.abc import Sequence
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.config.describe import DescribedConfig
from spindle.config.resources import ConfigSource

ROOT: Final = "root"
"""The name that Kafka gives the root logger."""

_ROOT_LOGGER: Final = "spindle"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {level: name for name, level in _LEVELS.items()}
_SET, _DELETE = 0, 1
_OTHER_OPERATIONS: Final = {2: "APPEND", 3: "SUBTRACT"}


def describe_loggers(names: Sequence[str] | None = None) -> list[DescribedConfig]:
    """Describe every logger with its effective level, sorted by name."""
    return [
        DescribedConfig(
            name,
            _NAMES.get(_logger(name).getEffectiveLevel(), "INFO"),
            ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            is_read_only=False,
        )
        for name in _logger_names()
        if not names or name in names
    ]


def change_logger_levels(
    operations: Sequence[tuple[str, int, str | None]], *, validate_only: bool
) -> None:
    """Set (operation 0) or remove (1) levels, given as (logger, operation, level).

    Raises:
        ApiError: INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for another
            operation. Nothing has been changed then.
    """
    known = _logger_names()
    for name, operation, level in operations:
        if operation not in (_SET, _DELETE):
            verb = _OTHER_OPERATIONS.get(operation, str(operation))
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{verb} operation is not allowed for the BROKER_LOGGER resource",
            )
        if name not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == _SET and level not in _LEVELS:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level} as it is not a supported log "
                f"level. Valid log levels are {', '.join(sorted(_LEVELS))}",
            )
        if operation == _DELETE and name == ROOT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Removing the log level of the root logger is not allowed",
            )
    if validate_only:
        return
    for name, operation, level in operations:
        wanted = logging.NOTSET if operation == _DELETE else _LEVELS[level or ""]
        _logger(name).setLevel(wanted)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_ROOT_LOGGER if name == ROOT else name)


def _logger_names() -> list[str]:
    below = f"{_ROOT_LOGGER}."
    names = [
        name
        for name, logger in logging.Logger.manager.loggerDict.items()
        if name.startswith(below) and isinstance(logger, logging.Logger)
    ]
    return [ROOT, *sorted(names)]
