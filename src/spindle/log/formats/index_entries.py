"""Entries of `.index` and `.timeindex` (KIP-33): one size each, ascending by their first field.

Offsets are relative to the base offset of the segment. The file of an active segment has its full
size from the start; behind the last entry it holds zeros.
"""

from struct import Struct
from typing import Final

MAX_RELATIVE_OFFSET: Final = 2**31 - 1

OFFSET_ENTRY_FIELDS: Final = (("offset", ">i4"), ("position", ">i4"))
"""The last offset of a batch, and the byte at which the batch starts; in numpy's notation."""
TIME_ENTRY_FIELDS: Final = (("timestamp", ">i8"), ("offset", ">i4"))
"""The largest timestamp so far in ms, and the last offset of the batch that has it."""

_CODES: Final = {">i4": "i", ">i8": "q"}


def _struct(fields: tuple[tuple[str, str], ...]) -> Struct:
    return Struct(">" + "".join(_CODES[kind] for _, kind in fields))


OFFSET_ENTRY: Final = _struct(OFFSET_ENTRY_FIELDS)
TIME_ENTRY: Final = _struct(TIME_ENTRY_FIELDS)
OFFSET_ENTRY_KEY: Final = _struct(OFFSET_ENTRY_FIELDS[:1])
TIME_ENTRY_KEY: Final = _struct(TIME_ENTRY_FIELDS[:1])
