"""Texts of log lines: names that clients chose, and lists that may be long."""

from collections.abc import Collection
from itertools import islice
from typing import Final

_SHOWN_CHARACTERS: Final = 100
MAX_NAMED: Final = 20
"""Up to this many things of one kind are named in the log at once; the rest is a number."""


def quoted(text: str) -> str:
    """Return a text of a client in quotation marks, on one line and of bounded length."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


def listed(names: Collection[str]) -> str:
    """Return the names in quotation marks: the first 20, and the number of the others."""
    shown = ", ".join(quoted(name) for name in islice(names, MAX_NAMED))
    more = len(names) - MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
