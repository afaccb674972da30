"""Configuration values: conversion from text to value by type, and back.

The texts are those of Kafka's own configuration, as clients and tools show them.
"""

import re
from enum import IntEnum
from typing import TypeAlias

from spindle.common.errors import ConfigError
from spindle.common.java_text import java_double

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: SHORT, INT, LONG are int; STRING, CLASS, PASSWORD are str; LIST is a tuple."""


class ConfigType(IntEnum):
    """The type of a key, by its number in a DescribeConfigs response."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


def invalid_value(name: str, value: ConfigValue, reason: str | None = None) -> ConfigError:
    """Return the error for a value that is refused."""
    text = f"Invalid value {shown(value)} for configuration {name}"
    return ConfigError(f"{text}: {reason}" if reason else text)


# --- text to value ---

_BLANK = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)\Z"
)
_LIST_SEPARATOR = re.compile(r"\s*,\s*")
_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def parse_type(name: str, text: str, type: ConfigType) -> ConfigValue:
    """Return the value of `text` by type alone, without a check of its range.

    Raises:
        ConfigError: the text does not have that type.
    """
    trimmed = text.strip(_BLANK)
    if type is ConfigType.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid_value(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if type is ConfigType.LIST:
        return tuple(_LIST_SEPARATOR.split(trimmed)) if trimmed else ()
    if type is ConfigType.DOUBLE:
        if not _DOUBLE.match(trimmed):
            raise invalid_value(name, text, "Not a number of type DOUBLE")
        return float(trimmed.rstrip("fFdD") if trimmed[-1] in "fFdD" else trimmed)
    bits = _BITS.get(type)
    if bits is None:
        return trimmed
    if not _INTEGER.match(trimmed) or not -(1 << bits - 1) <= int(trimmed) < 1 << bits - 1:
        raise invalid_value(name, text, f"Not a number of type {type.name}")
    return int(trimmed)


# --- value to text ---


def text_of(value: ConfigValue) -> str | None:
    """Return the text of a value as DescribeConfigs shows it: a LIST is joined by commas."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return java_double(value) if isinstance(value, float) else str(value)


def shown(value: ConfigValue) -> str:
    """Return the text of a value for an error message: a LIST in brackets, None as `null`."""
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    text = text_of(value)
    return "null" if text is None else text
