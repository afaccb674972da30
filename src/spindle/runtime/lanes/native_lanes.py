"""The port to the native code of lanes, which a simulation replaces by a model of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from spindle._native import Lane

Targets = list[tuple[bytes, int]]
"""Topics, all by name or all by id, and partitions."""


class NativeLanes(NamedTuple):
    """The native code; `_native.pyi` has its types.

    Attributes:
        open: starts the lane of a directory: path, `socket.request.max.bytes`, `fetch.max.bytes`,
            and whether consumers may be sent to replicas in their rack.
        targets_of_produce: returns acks, whether topics are named by id, and the partitions of a
            Produce frame; None if no lane serves such a request.
        targets_of_fetch: returns id and epoch of the session, whether topics are named by id, and
            the partitions of a consumer's Fetch frame; None if no lane serves such a request.
    """

    open: "Callable[[str, int, int, bool], Lane]"
    targets_of_produce: Callable[[bytes], tuple[int, bool, Targets] | None]
    targets_of_fetch: Callable[[bytes], tuple[int, int, bool, Targets] | None]
