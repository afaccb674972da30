"""Waiting in a cluster whose nodes may end meanwhile."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from spindle.local.errors import NodeGone
from spindle.testing.cluster.node import NodeHandle

_ENDING_S: Final = 0.05


def retry_without_dead_nodes(attempt: Callable[[float], list[Any]], timeout_s: float) -> list[Any]:
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


def largest_connected(
    nodes: Sequence[NodeHandle], cuts: Collection[tuple[int, int]]
) -> list[NodeHandle]:
    """Return the largest group of nodes that can reach each other, by way of others, too."""
    left = list(nodes)
    groups: list[list[NodeHandle]] = []
    while left:
        group = [left.pop(0)]
        for member in group:
            near = [other for other in left if not _are_cut(member, other, cuts)]
            group += near
            left = [other for other in left if other not in near]
        groups.append(group)
    return max(groups, key=len, default=[])


def _are_cut(one: NodeHandle, other: NodeHandle, cuts: Collection[tuple[int, int]]) -> bool:
    pair = (one.node_id, other.node_id)
    return pair in cuts or pair[::-1] in cuts
