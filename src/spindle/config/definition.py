"""What a configuration key is: type, default, range, importance, and where it may be changed.

Holds no keys: those are in `broker_keys`, `topic_keys`, `group_keys` and `client_metrics_keys`.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.validators import ListOf, Validator
from spindle.config.values import ConfigType, ConfigValue, parse_type, text_of


class Importance(IntEnum):
    """How much a key matters to most users; order of documentation."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class UpdateMode(IntEnum):
    """Where a broker key may be changed while the node runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD
HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class _Required:
    __slots__ = ()

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""The default of a key that has none: it must be set."""


class ConfigKey:
    """One key.

    Attributes:
        default: the parsed default; None where unset has a meaning of its own; `REQUIRED`.
        is_internal: not shown by DescribeConfigs (but accepted).
        update_mode: meaningful for broker keys only.
    """

    __slots__ = (
        "default",
        "documentation",
        "importance",
        "is_internal",
        "name",
        "type",
        "update_mode",
        "validator",
    )

    def __init__(
        self,
        name: str,
        type: ConfigType,
        default: ConfigValue | _Required,
        importance: Importance,
        documentation: str,
        *,
        validator: Validator | None = None,
        update_mode: UpdateMode = UpdateMode.READ_ONLY,
        is_internal: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.importance = importance
        self.documentation = documentation
        self.validator = validator
        self.update_mode = update_mode
        self.is_internal = is_internal

    def __repr__(self) -> str:
        return f"ConfigKey({self.name!r}, {self.type.name})"

    @property
    def is_sensitive(self) -> bool:
        """True when the value must never leave the node or reach a log."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The checked value of `text`.

        Raises:
            ConfigError: not of the key's type, or outside its range.
        """
        value = parse_type(self.name, text, self.type)
        if self.validator is not None:
            if isinstance(self.validator, ListOf) and isinstance(value, tuple):
                value = tuple(dict.fromkeys(value))
            self.validator.check(self.name, value)
        return value

    def default_value(self) -> ConfigValue:
        """The default.

        Raises:
            ConfigError: the key must be set.
        """
        if isinstance(self.default, _Required):
            raise ConfigError(
                f'Missing required configuration "{self.name}" which has no default value.'
            )
        return self.default

    def default_text(self) -> str | None:
        """The text of the default; None where there is none."""
        return None if isinstance(self.default, _Required) else text_of(self.default)


def key_table(*groups: tuple[ConfigKey, ...]) -> dict[str, ConfigKey]:
    """Keys by name, sorted by name."""
    return {key.name: key for key in sorted((k for g in groups for k in g), key=_name_of)}


def _name_of(key: ConfigKey) -> str:
    return key.name


def parse_all(keys: Mapping[str, ConfigKey], texts: Mapping[str, str]) -> dict[str, ConfigValue]:
    """The value of every key: parsed where set, else its default. Unknown names are left out.

    Raises:
        ConfigError: a value is refused or a required key is missing.
    """
    return {
        name: key.parse(texts[name]) if name in texts else key.default_value()
        for name, key in keys.items()
    }
