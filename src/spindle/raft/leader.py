"""The leader of an epoch, and the refusal to append when the local node does not lead it."""

from typing import NamedTuple

from spindle.common.ids import NO_LEADER


class LeaderAndEpoch(NamedTuple):
    """The leader of an epoch; `leader_id` is -1 while it is unknown."""

    leader_id: int = NO_LEADER
    epoch: int = 0


class NotLeader(Exception):
    """The local node does not lead the epoch in which something was to be appended."""

    def __init__(self, epoch: int, leader: LeaderAndEpoch) -> None:
        super().__init__(epoch, leader)
        self.epoch = epoch
        self.leader = leader

    def __str__(self) -> str:
        return (
            f"cannot append in epoch {self.epoch}: "
            f"node {self.leader.leader_id} leads epoch {self.leader.epoch}"
        )
