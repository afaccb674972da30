"""Counters and log lines of the local quorum member."""

import logging
from collections import deque
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import NO_LEADER
from spindle.common.uuids import uuid_text
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchResponse
from spindle.raft.core import QuorumCore
from spindle.raft.ready import AppendBatches, Destination, Ready
from spindle.raft.roles import Candidate, Follower, Leader, Prospective, Role
from spindle.raft.voters import VoterSet
from spindle.runtime.metrics.durations import Durations

logger = logging.getLogger(__name__)

_PASSING: Final = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.POSITION_OUT_OF_RANGE,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""Refusals that need no action: they are part of elections, moves and clean-up."""
_NAMES: Final = {int(code): code.name for code in ErrorCode}
_MEANINGS: Final[dict[int, str]] = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        " - it belongs to another cluster: compare cluster.id in both nodes' meta.properties"
    ),
    ErrorCode.INVALID_VOTER_KEY: (
        " - it is another voter than the request names: by its id or its metadata directory"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        " - there this node's principal is not a super user: its log names the principal; add it "
        "to super.users of every node"
    ),
}


class QuorumHistory:
    """Observes every step of the state machine.

    Attributes:
        commits: times from an append by the local leader to its commit.
        elections: times from the loss of a leader until the next is known.
        records_appended: records appended by the local leader.
        records_fetched: records fetched from another leader.
    """

    def __init__(self, node_id: int) -> None:
        self.commits = Durations()
        self.elections = Durations()
        self.records_appended = 0
        self.records_fetched = 0
        self._node_id = node_id
        self._role: Role | None = None
        self._voters: VoterSet | None = None
        self._refusals: dict[str, int] = {}
        self._election_began_ms: int | None = None
        self._uncommitted: deque[tuple[int, int]] = deque()

    def stepped(self, core: QuorumCore, ready: Ready, now_ms: int) -> None:
        """Record a step; `ready` is the work that it asks for."""
        role = core.role
        if role is not self._role:
            self._changed(core, role, now_ms)
        if core.voters is not self._voters:
            self._voters = core.voters
            self._check_own_voter(core)
        for operation in ready.log_operations:
            if isinstance(operation, AppendBatches):
                self._appended(role, operation, now_ms)
        if ready.high_watermark is not None:
            while self._uncommitted and self._uncommitted[0][0] <= ready.high_watermark:
                self.commits.observe((now_ms - self._uncommitted.popleft()[1]) / 1000)

    def answered(self, destination: Destination, response: Message) -> None:
        """Record a peer's response; an error that does not end by itself is logged once."""
        code = _error_of(response)
        peer = f"{destination.host}:{destination.port}"
        if code in _PASSING:
            if not code:
                self._refusals.pop(peer, None)
        elif self._refusals.get(peer) != code:
            self._refusals[peer] = code
            logger.warning(
                "[RaftManager id=%d] the controller at %s refuses %s: %s%s",
                self._node_id,
                peer,
                type(response).__name__.removesuffix("Response"),
                _NAMES.get(code, code),
                _MEANINGS.get(code, ""),
            )

    def _check_own_voter(self, core: QuorumCore) -> None:
        """Warn if the voter of this node's id has another metadata directory."""
        local = core.local
        voter = core.voters.get(local.key.id)
        if local.can_vote and voter is not None and not core.is_voter:
            logger.warning(
                "[RaftManager id=%d] this node is an observer: the voter of its id has metadata "
                "directory %s, but the one here is %s; if that disk is lost, remove its voter and "
                "add this one",
                self._node_id,
                uuid_text(voter.key.directory_id),
                uuid_text(local.key.directory_id),
            )

    def _appended(self, role: Role, operation: AppendBatches, now_ms: int) -> None:
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


def _error_of(response: Any) -> int:
    """Return the error of a response, of the whole or of its partition."""
    if getattr(response, "error_code", 0):
        return int(response.error_code)
    topics = (
        response.responses
        if isinstance(response, FetchResponse)
        else getattr(response, "topics", ())
    )
    return max((part.error_code for topic in topics for part in topic.partitions), default=0)
