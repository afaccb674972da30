"""A node that learns several committed changes at once, as a busy or lagging node does.

Committed batches of the metadata are kept for a while and then handed on together, so that the
node's broker reacts to one delta where others react to several.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from spindle.metadata_log.committed import CommittedBatch
from spindle.raft.ready import LeaderAndEpoch
from verification.simulation.loop import SimulatedLoop

_MAX_S: Final = 1.5


class HeldMetadata:
    """Stands before the image publisher of one life of a node.

    Args:
        chance: gives the probability that a delivery of batches is held, which may change.
    """

    def __init__(
        self, publisher: Any, loop: SimulatedLoop, random: Random, chance: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._random = random
        self._chance = chance
        self._held: list[CommittedBatch] = []
        self._commit = publisher.on_commit
        self._begin_snapshot = publisher.begin_snapshot
        self._leader_change = publisher.on_leader_change
        publisher.on_commit = self.on_commit
        publisher.begin_snapshot = self.begin_snapshot
        publisher.on_leader_change = self.on_leader_change

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        if self._held:
            self._held += batches
        elif batches and self._random.random() < self._chance():
            self._held = list(batches)
            self._loop.call_later(self._random.uniform(0.02, _MAX_S), self._release)
        else:
            self._commit(batches)

    def begin_snapshot(self, snapshot_id: Any) -> Any:
        """Drop the held batches: the snapshot covers them, and is the next step of the image."""
        self._held = []
        return self._begin_snapshot(snapshot_id)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Release first: a leader must know everything before its epoch."""
        self._release()
        self._leader_change(leader)

    def _release(self) -> None:
        held, self._held = self._held, []
        if held:
            self._commit(held)
