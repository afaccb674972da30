"""Enum whose error lists the valid values."""

from enum import StrEnum
from typing import Never


class ChoiceEnum(StrEnum):
    """A value of a fixed list; another value is refused with the whole list."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise ValueError(f"{value!r} is none of {', '.join(cls)}")
