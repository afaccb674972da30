"""The state of the current epoch that survives a restart (KIP-595), stored in `quorum-state`."""

from typing import NamedTuple

from spindle.common.ids import NO_LEADER
from spindle.raft.voters import ReplicaKey


class ElectionState(NamedTuple):
    """Epoch, its leader and the vote given in it.

    Attributes:
        voter_ids: the voters at the time of writing; only in files of version 0.
    """

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted_key: ReplicaKey | None = None
    voter_ids: tuple[int, ...] = ()
