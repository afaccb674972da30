"""The definition of a configuration key: one row of a key table.

The tables themselves are `broker_keys`, `topic_keys`, `group_keys` and `client_metrics_keys`. They
share this format. Rules between several keys are not part of a row: see `node_checks` and
`validate`.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.validators import ListOf, Validator
from spindle.config.values import ConfigType, ConfigValue, parse_type, text_of


class UpdateMode(IntEnum):
    """The ways to change a key while the node runs, by Kafka's names (KIP-226)."""

    READ_ONLY = 0
    """A broker key that cannot be changed by request."""
    PER_BROKER = 1
    """A broker key that is changed for one broker at a time."""
    CLUSTER_WIDE = 2
    """A broker key that is changed for one broker or for all."""
    WITH_RESOURCE = 3
    """A key of a topic, group or subscription, which is changed with that resource."""


BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD
READ_ONLY: Final = UpdateMode.READ_ONLY
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE
WITH_RESOURCE: Final = UpdateMode.WITH_RESOURCE

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
MAX_ARRAY_BYTES: Final = 2**31 - 9
"""Length of the longest byte array in Java, which is no limit in practice."""
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
        validator: refuses values of the right type; None where every value of the type is allowed.
        is_internal: hidden by DescribeConfigs unless the key is set.
        no_effect: the reason from `spindle.config.no_effect` why the value changes nothing; None
            for a key that Spindle obeys.
        is_read_at_start: a dynamic value of this key is stored but has no effect, because the node
            reads the key from its property file when it starts.
    """

    __slots__ = (
        "_documentation",
        "default",
        "is_internal",
        "is_read_at_start",
        "name",
        "no_effect",
        "type",
        "update_mode",
        "validator",
    )

    def __init__(
        self,
        name: str,
        type: ConfigType,
        default: ConfigValue | _Required,
        validator: Validator | None,
        update_mode: UpdateMode,
        documentation: str,
        *,
        is_internal: bool = False,
        no_effect: str | None = None,
        is_read_at_start: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.validator = validator
        self.update_mode = update_mode
        self._documentation = documentation
        self.is_internal = is_internal
        self.no_effect = no_effect
        self.is_read_at_start = is_read_at_start

    def __repr__(self) -> str:
        return f"ConfigKey({self.name!r}, {self.type.name})"

    @property
    def documentation(self) -> str:
        """The text that DescribeConfigs shows, including whether Spindle obeys the key."""
        if self.no_effect is not None:
            return f"{self._documentation} This key has no effect in Spindle: {self.no_effect}."
        if self.is_read_at_start:
            return (
                f"{self._documentation} Spindle reads this key from the property file when the "
                "node starts; a dynamic value has no effect."
            )
        return self._documentation

    @property
    def is_sensitive(self) -> bool:
        """True when the value must never leave the node or reach a log."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """Return the checked value of `text`.

        Raises:
            ConfigError: the text is not of the key's type, or the validator refuses the value.
        """
        value = parse_type(self.name, text, self.type)
        if self.validator is not None:
            if isinstance(self.validator, ListOf) and isinstance(value, tuple):
                value = tuple(dict.fromkeys(value))
            self.validator.check(self.name, value)
        return value

    def default_value(self) -> ConfigValue:
        """Return the default.

        Raises:
            ConfigError: the key must be set.
        """
        if isinstance(self.default, _Required):
            raise ConfigError(
                f'Missing required configuration "{self.name}" which has no default value.'
            )
        return self.default

    def default_text(self) -> str | None:
        """Return the text of the default; None where there is none."""
        return None if isinstance(self.default, _Required) else text_of(self.default)


def key_table(*groups: tuple[ConfigKey, ...]) -> dict[str, ConfigKey]:
    """Return the keys by name, sorted by name."""
    return {key.name: key for key in sorted((k for g in groups for k in g), key=_name_of)}


def _name_of(key: ConfigKey) -> str:
    return key.name


def parse_all(keys: Mapping[str, ConfigKey], texts: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Return the value of every key of a table: parsed from `texts`, else the default.

    Names in `texts` that the table does not have are ignored.

    Raises:
        ConfigError: a value is refused or a required key is missing.
    """
    return {
        name: key.parse(texts[name]) if name in texts else key.default_value()
        for name, key in keys.items()
    }
