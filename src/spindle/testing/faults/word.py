"""A word that an argument of a fault may be."""

from enum import StrEnum
from typing import Never


class Word(StrEnum):
    """A value of a fixed list; another value is refused with the whole list."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise ValueError(f"{value!r} is none of {', '.join(cls)}")
