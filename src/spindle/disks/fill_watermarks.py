"""Which log directories are nearly full: above a high watermark until below a low one."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

Space: TypeAlias = tuple[int, int]
"""Total and usable bytes of a file system."""


class Watermarks(NamedTuple):
    """Used shares of a file system, from 0 to 1. With `high` = 1 no directory is nearly full."""

    high: float
    low: float


def used_share(space: Space) -> float:
    """Return the share of the file system that is used or reserved; 0 if its size is not known."""
    total_bytes, usable_bytes = space
    return 1.0 - usable_bytes / total_bytes if total_bytes > 0 else 0.0


def nearly_full(
    before: Collection[str], spaces: Mapping[str, Space], watermarks: Watermarks
) -> tuple[str, ...]:
    """Return the directories that are nearly full, by path.

    Args:
        before: those that were nearly full at the last look.
        spaces: by path; a directory whose space is not known now stays as it was.
    """
    if watermarks.high >= 1.0:
        return ()
    low = min(watermarks)
    return tuple(
        path
        for path in dict.fromkeys((*spaces, *before))
        if (
            path in before
            if path not in spaces or spaces[path][0] <= 0
            else used_share(spaces[path]) > (low if path in before else watermarks.high)
        )
    )
