"""A text that must not be shown: a password, a key, a token."""

from dataclasses import dataclass
from typing import Final

HIDDEN: Final = "[hidden]"


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A text that is printed as `[hidden]`. A pickle has the text itself, because tasks need it."""

    text: str

    def __repr__(self) -> str:
        return HIDDEN
