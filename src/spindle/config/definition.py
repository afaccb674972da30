"""What a configuration key is: its type, default, range and text forms.

Decides how a text becomes a value, which values are refused, and the words of the refusal (the form
is Kafka's, clients and tools show it). Holds no keys: those are in `broker_keys`, `topic_keys`,
`group_keys` and `client_metrics_keys`.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from spindle.common.errors import ConfigError

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


class Validator(Protocol):
    """Refuses values that have the right type but no meaning. `str()` describes what is allowed."""

    def check(self, name: str, value: ConfigValue, /) -> None:
        """Raise `ConfigError` when `value` may not be set for the key `name`."""
        ...


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


def invalid_value(name: str, value: ConfigValue, reason: str | None = None) -> ConfigError:
    """The refusal of a value."""
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
    """The value of `text` by type alone (no range is checked).

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
    """The text of a value as DescribeConfigs shows it (a LIST joined by commas)."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _double_text(value) if isinstance(value, float) else str(value)


def shown(value: ConfigValue) -> str:
    """The text of a value inside an error message (a LIST in brackets, None as `null`)."""
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    text = text_of(value)
    return "null" if text is None else text


def _double_text(value: float) -> str:
    """Java's form of a double: always a fraction; an exponent outside 10^-3 .. 10^7."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    for digits in range(1, 18):
        text = f"{value:.{digits}e}"
        if float(text) == value:
            break
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}E{int(exponent)}"


# --- validators ---


class Range:
    """A number within bounds, both inclusive; None is refused."""

    __slots__ = ("high", "low")

    def __init__(self, low: float, high: float | None = None) -> None:
        self.low = low
        self.high = high

    def check(self, name: str, value: ConfigValue, /) -> None:
        if not isinstance(value, int | float):
            raise invalid_value(name, None, "Value must be non-null")
        if value < self.low:
            raise invalid_value(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid_value(name, value, f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        return f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"


class OneOf:
    """One of the named texts."""

    __slots__ = ("values",)

    def __init__(self, *values: str) -> None:
        self.values = values

    def check(self, name: str, value: ConfigValue, /) -> None:
        if value not in self.values:
            allowed = ", ".join(self.values)
            raise invalid_value(name, value, f"String must be one of: {allowed}")

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]"


class OneOfIgnoringCase:
    """One of the named texts in any case."""

    __slots__ = ("values",)

    def __init__(self, *values: str) -> None:
        self.values = values

    def check(self, name: str, value: ConfigValue, /) -> None:
        if not isinstance(value, str) or value.upper() not in self.values:
            allowed = ", ".join(self.values)
            raise invalid_value(name, value, f"String must be one of (case insensitive): {allowed}")

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.values)}]"


class ListOf:
    """A list without empty entries; with `values` only those entries. Repeats are dropped first."""

    __slots__ = ("may_be_empty", "may_be_null", "values")

    def __init__(self, *values: str, may_be_empty: bool = True, may_be_null: bool = False) -> None:
        self.values = values
        self.may_be_empty = may_be_empty
        self.may_be_null = may_be_null

    def check(self, name: str, value: ConfigValue, /) -> None:
        if not isinstance(value, tuple):
            if self.may_be_null:
                return
            raise ConfigError(f"Configuration '{name}' values must not be null.")
        if not value and not self.may_be_empty:
            allowed = str(self) or "any non-empty value"
            raise ConfigError(
                f"Configuration '{name}' must not be empty. Valid values include: {allowed}"
            )
        for entry in value:
            if not entry:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self.values and entry not in self.values:
                allowed = ", ".join(self.values)
                raise invalid_value(name, entry, f"String must be one of: {allowed}")

    def __str__(self) -> str:
        return f"[{', '.join(self.values)}]" if self.values else ""


class NonEmptyText:
    """Unset, or a text that is not empty."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        if value == "":
            raise invalid_value(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


class GzipLevel:
    """A gzip level: 1 to 9, or -1 for the library's own choice."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue, /) -> None:
        if not isinstance(value, int) or not (1 <= value <= 9 or value == -1):
            raise invalid_value(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


class ThrottledReplicas:
    """`*`, empty, or `partition:broker` pairs (KIP-73)."""

    __slots__ = ()

    _PAIR: Final = re.compile(r"[0-9]+:[0-9]+\Z")

    def check(self, name: str, value: ConfigValue, /) -> None:
        entries = value if isinstance(value, tuple) else ()
        if entries != ("*",) and not all(not e or self._PAIR.match(e) for e in entries):
            raise invalid_value(
                name,
                value,
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class ShareOffsetReset:
    """latest, earliest, or `by_duration:` with an ISO-8601 duration of at least zero (KIP-932)."""

    __slots__ = ()

    _DURATION: Final = re.compile(
        r"by_duration:P(?=[0-9T])(?:[0-9]+D)?"
        r"(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]{1,9})?S)?)?\Z",
        re.IGNORECASE,
    )

    def check(self, name: str, value: ConfigValue, /) -> None:
        if value in ("latest", "earliest"):
            return
        if not isinstance(value, str) or not self._DURATION.match(value):
            raise invalid_value(
                name,
                value,
                f"Invalid value `{shown(value)}` for configuration {name}. The value must be "
                "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
            )

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


def parse_all(keys: Mapping[str, ConfigKey], texts: Mapping[str, str]) -> dict[str, ConfigValue]:
    """The value of every key: parsed where set, else its default. Unknown names are left out.

    Raises:
        ConfigError: a value is refused or a required key is missing.
    """
    return {
        name: key.parse(texts[name]) if name in texts else key.default_value()
        for name, key in keys.items()
    }
