"""Validators: limits on the values of a key, beyond its type. The error messages are Kafka's."""

import re
from typing import Final, Protocol

from spindle.common.errors import ConfigError
from spindle.config.values import ConfigValue, invalid_value, shown


class Validator(Protocol):
    """Refuses values of the right type. `str()` describes the values that are allowed."""

    def check(self, name: str, value: ConfigValue, /) -> None:
        """Check the value of the key `name`.

        Raises:
            ConfigError: the value is not allowed.
        """
        ...


class Range:
    """A number between `low` and `high`, both inclusive; None is refused."""

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
    """A text from a fixed set."""

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
    """A text from a fixed set, in upper or lower case."""

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
    """A list without empty entries, from the set `values` if that is given.

    Repeated entries are dropped before the check.
    """

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
