"""What happened to the local member of the metadata quorum: told to the log, kept for metrics."""

import logging
from collections import deque

from spindle.common.ids import NO_LEADER
from spindle.raft.core import QuorumCore
from spindle.raft.ready import Append, Ready
from spindle.raft.roles import Candidate, Follower, Leader, Prospective, Role
from spindle.runtime.durations import Durations

logger = logging.getLogger(__name__)


class QuorumHistory:
    """Sees every step of the quorum's state machine.

    Attributes:
        commits: from an append by the local leader to its commit.
        elections: from the moment in which a leader was missed until there was one.
        records_appended: by the local leader.
        records_fetched: from another leader.
    """

    def __init__(self, node_id: int) -> None:
        self.commits = Durations()
        self.elections = Durations()
        self.records_appended = 0
        self.records_fetched = 0
        self._node_id = node_id
        self._role: Role | None = None
        self._election_began_ms: int | None = None
        self._uncommitted: deque[tuple[int, int]] = deque()

    def stepped(self, core: QuorumCore, ready: Ready, now_ms: int) -> None:
        """One step was taken; `ready` is what it asks for."""
        role = core.role
        if role is not self._role:
            self._changed(core, role, now_ms)
        for operation in ready.log_operations:
            if isinstance(operation, Append):
                self._appended(role, operation, now_ms)
        if ready.high_watermark is not None:
            while self._uncommitted and self._uncommitted[0][0] <= ready.high_watermark:
                self.commits.observe((now_ms - self._uncommitted.popleft()[1]) / 1000)

    def _appended(self, role: Role, operation: Append, now_ms: int) -> None:
        count = operation.end_offset - operation.base_offset
        if isinstance(role, Leader):
            self.records_appended += count
            self._uncommitted.append((operation.end_offset, now_ms))
        else:
            self.records_fetched += count

    def _changed(self, core: QuorumCore, role: Role, now_ms: int) -> None:
        before, self._role = self._role, role
        self._uncommitted.clear()
        if isinstance(role, Prospective | Candidate) and self._election_began_ms is None:
            self._election_began_ms = now_ms
        elif isinstance(role, Leader | Follower) and self._election_began_ms is not None:
            self.elections.observe((now_ms - self._election_began_ms) / 1000)
            self._election_began_ms = None
        leader = "no leader" if core.leader_id == NO_LEADER else f"leader {core.leader_id}"
        logger.info(
            "[RaftManager id=%d] Completed transition to %s in epoch %d (%s) from %s",
            self._node_id,
            type(role).__name__,
            role.epoch,
            leader,
            "the stored state" if before is None else type(before).__name__,
        )
