"""Waiting in a cluster whose nodes may end meanwhile."""

import time
from collections.abc import Callable
from typing import Any, Final

from spindle.testing.cluster.errors import NodeGone

_ENDING_S: Final = 0.05


def outlive_nodes(attempt: Callable[[float], list[Any]], timeout_s: float) -> list[Any]:
    """Repeat an attempt with those that are left when a node ends in the middle of it.

    Args:
        attempt: takes the seconds that are left.
    """
    end_s = time.monotonic() + timeout_s
    left_s = timeout_s
    while True:
        try:
            return attempt(left_s)
        except NodeGone:
            left_s = end_s - time.monotonic() - _ENDING_S
            if left_s <= 0:
                raise
            time.sleep(_ENDING_S)
