"""Access to configuration values with the type that the table of keys gives them.

A wrong accessor is a programming error, so it fails an assertion.
"""

from abc import ABC, abstractmethod

from spindle.config.values import ConfigValue


class TypedValues(ABC):
    """Values by key; a subclass says where a value comes from."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: str) -> ConfigValue:
        """Return the value of a key of `BROKER_KEYS`.

        Raises:
            KeyError: there is no such key.
            ConfigError: the text of the value is refused.
        """

    def integer(self, key: str) -> int:
        value = self.get(key)
        assert isinstance(value, int), key
        return value

    def optional_integer(self, key: str) -> int | None:
        return None if self.get(key) is None else self.integer(key)

    def decimal(self, key: str) -> float:
        value = self.get(key)
        assert isinstance(value, float), key
        return value

    def flag(self, key: str) -> bool:
        value = self.get(key)
        assert isinstance(value, bool), key
        return value

    def text(self, key: str) -> str:
        value = self.get(key)
        assert isinstance(value, str), key
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.get(key) is None else self.text(key)

    def names(self, key: str) -> tuple[str, ...]:
        """Return the entries of a list key, in order; an unset list is empty."""
        value = self.get(key)
        assert value is None or isinstance(value, tuple), key
        return value or ()
