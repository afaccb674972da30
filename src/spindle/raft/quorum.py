"""The quorum's state machine: `ready = quorum.step(event, now_ms)`.

Pure: no clock, no I/O; randomness is injected. `step` takes one event, lets the role do the work
that is due at `now_ms`, and returns the work for the driver (see `ready`). Only this module
distinguishes roles: it passes each event to the function of the current role.
"""

from collections.abc import Callable
from typing import Any, Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ports import RandomSource
from spindle.protocol.message import Message
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest
from spindle.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from spindle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from spindle.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from spindle.protocol.messages.vote import VoteRequest, VoteResponse
from spindle.raft import (
    appends,
    follower,
    leader_duties,
    leader_requests,
    membership,
    transitions,
    votes,
)
from spindle.raft.core import QuorumCore, ShutdownState
from spindle.raft.describe import describe_quorum
from spindle.raft.peers import apply_common_fields
from spindle.raft.ready import (
    AppendRecords,
    Event,
    KRaftVersionUpgrade,
    LogCleaned,
    LogFlushed,
    Ready,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Shutdown,
    SnapshotInstalled,
    SnapshotUnfit,
    SnapshotWritten,
    StartUp,
    Tick,
)
from spindle.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from spindle.raft.settings import LocalNode, QuorumSettings, StoredState

_MAX_MOVES_PER_STEP: Final = 8


class Quorum:
    """One node of the quorum.

    Attributes:
        core: its state, to be read only.
    """

    def __init__(
        self, local: LocalNode, settings: QuorumSettings, random: RandomSource, stored: StoredState
    ) -> None:
        self.core = QuorumCore(local, settings, random, stored)

    def step(self, event: Event, now_ms: int) -> Ready:
        """Take one event and do the work that is due.

        Raises:
            NotLeader: an append in an epoch that the local node does not lead.
            ApiError: a refused upgrade of kraft.version.
            ValueError: an append of no record, or of atomic records that exceed one batch.
            QuorumFault: the node must stop.
        """
        core = self.core
        core.ready = Ready()
        if isinstance(event, StartUp):
            transitions.enter_stored_role(core, now_ms)
        before = core.leader
        self._handle(event, now_ms)
        self._poll(now_ms)
        if before is not None and core.leader is not before:
            leader_duties.leave_leadership(core, before)
        core.announce_leader()
        ready, core.ready = core.ready, Ready()
        return ready

    def _handle(self, event: Event, now_ms: int) -> None:
        core = self.core
        match event:
            case RequestReceived(token, request):
                self._handle_request(token, request, now_ms)
            case ResponseReceived(request_id, response):
                self._handle_response(request_id, response, now_ms)
            case Tick() | StartUp():
                pass
            case RequestFailed():
                self._handle_failure(event, now_ms)
            case AppendRecords():
                appends.handle_append(core, event, now_ms)
            case KRaftVersionUpgrade():
                membership.upgrade_kraft_version(core, event, now_ms)
            case Shutdown():
                is_leader = core.leader is not None
                core.shutdown = ShutdownState.HANDING_OVER if is_leader else ShutdownState.LEAVING
            case _:
                self._handle_local(event, now_ms)

    def _handle_local(self, event: Event, now_ms: int) -> None:
        """Apply a disk event or a command: first to the log, then to the current role."""
        core = self.core
        match event:
            case LogFlushed():
                core.log.flush_finished()
            case SnapshotWritten(snapshot_id):
                core.log.add_snapshot(snapshot_id)
            case SnapshotInstalled():
                follower.reset_to_snapshot(core, event)
            case SnapshotUnfit():
                core.is_installing_snapshot = False
            case LogCleaned(start_offset, snapshots):
                core.log.cleaned(start_offset, snapshots)
                core.history.forget_before(start_offset)
        match core.role, event:
            case Leader() as leader, LogFlushed():
                leader_requests.update_high_watermark(core, leader)
            case Leader() as leader, Resign(epoch) if epoch == leader.epoch:
                leader_duties.resign(core, leader, now_ms)
            case Follower() as role, SnapshotInstalled():
                follower.handle_snapshot_installed(core, role, now_ms)
            case Follower() as role, SnapshotUnfit():
                follower.handle_snapshot_unfit(core, role, now_ms)

    def _poll(self, now_ms: int) -> None:
        """Poll the role until it no longer changes."""
        core = self.core
        for _ in range(_MAX_MOVES_PER_STEP):
            role = core.role
            match role:
                case Unattached():
                    votes.poll_unattached(core, role, now_ms)
                    if core.role is role:
                        follower.poll_leaderless(core, now_ms)
                case Prospective():
                    votes.poll_prospective(core, role, now_ms)
                case Candidate():
                    votes.poll_candidate(core, role, now_ms)
                case Leader():
                    membership.poll_voter_change(core, role, now_ms)
                    leader_duties.poll_leader(core, role, now_ms)
                    if core.role is role:
                        leader_requests.serve_parked_fetches(core, role, now_ms)
                case Follower():
                    follower.poll_follower(core, role, now_ms)
                case Resigned():
                    leader_duties.poll_resigned(core, role, now_ms)
            if core.role is role:
                return

    def _handle_request(self, token: int, request: Message, now_ms: int) -> None:
        core = self.core
        peer_request = _PEER_REQUESTS.get(type(request))
        if peer_request is not None:
            handler, response_class = peer_request
            try:
                handler(core, token, request, now_ms)
            except ApiError as refusal:
                core.reply(token, response_class(error_code=refusal.code))
            return
        match request:
            case DescribeQuorumRequest():
                core.reply(token, describe_quorum(core, request, now_ms))
            case AddRaftVoterRequest():
                membership.handle_add(core, token, request, now_ms)
            case RemoveRaftVoterRequest():
                membership.handle_remove(core, token, request, now_ms)
            case UpdateRaftVoterRequest():
                membership.handle_update(core, token, request, now_ms)
            case _:
                raise ValueError(f"{type(request).__name__} is not a request to the quorum")

    def _handle_response(self, request_id: int, response: Message, now_ms: int) -> None:
        core = self.core
        sent = core.connections.answered(request_id)
        if sent is None or sent.message.API_KEY != response.API_KEY:
            return
        partition: Any = None
        match core.role, response:
            case _, ApiVersionsResponse():
                pass
            case _, AddRaftVoterResponse() | RemoveRaftVoterResponse() | UpdateRaftVoterResponse():
                if response.error_code != ErrorCode.NONE:
                    core.connections.back_off(sent.destination.id, now_ms)
                    return
            case Follower() as role, FetchSnapshotResponse() if follower.is_snapshot_lost(response):
                role.snapshot = None  # fetch again: the leader then names a snapshot that it has
                core.connections.back_off(sent.destination.id, now_ms)
                return
            case _:
                partition = apply_common_fields(core, sent, response, now_ms)
                if partition is None:
                    return
        match core.role, response:
            case Follower() as role, FetchResponse():
                follower.handle_fetch_response(core, role, sent, partition, now_ms)
            case Follower() as role, FetchSnapshotResponse():
                follower.handle_fetch_snapshot_response(core, role, partition, now_ms)
            case Follower() as role, UpdateRaftVoterResponse():
                role.has_updated_voter = True
            case (Prospective() | Candidate()) as candidate, VoteResponse():
                if sent.epoch == candidate.epoch:
                    candidate.votes.record(sent.destination.id, partition.vote_granted)
            case Resigned() as resigned, EndQuorumEpochResponse():
                leader_duties.handle_end_response(resigned, sent)
            case Leader() as leader, ApiVersionsResponse():
                membership.handle_probe_response(core, leader, sent, response, now_ms)

    def _handle_failure(self, event: RequestFailed, now_ms: int) -> None:
        core = self.core
        sent = core.connections.answered(event.request_id)
        if sent is None:
            return
        core.connections.back_off(sent.destination.id, now_ms)
        match core.role, sent.message:
            case Follower() as role, FetchRequest() | FetchSnapshotRequest() if event.is_refused:
                follower.handle_refused_fetch(core, role, sent, now_ms)
            case Prospective() as prospective, VoteRequest() if event.is_unsupported_version:
                votes.handle_vote_unsupported(prospective)
            case Leader() as leader, ApiVersionsRequest():
                membership.handle_probe_failed(core, leader, sent)
            case Resigned() as resigned, EndQuorumEpochRequest():
                resigned.unreachable_ids.add(sent.destination.id)


_PEER_REQUESTS: Final[dict[type[Message], tuple[Callable[..., None], Callable[..., Message]]]] = {
    FetchRequest: (leader_requests.handle_fetch, FetchResponse),
    FetchSnapshotRequest: (leader_requests.handle_fetch_snapshot, FetchSnapshotResponse),
    VoteRequest: (votes.handle_vote_request, VoteResponse),
    BeginQuorumEpochRequest: (leader_duties.handle_begin_request, BeginQuorumEpochResponse),
    EndQuorumEpochRequest: (leader_duties.handle_end_request, EndQuorumEpochResponse),
}
"""The requests of peers, each with the response for an error of the whole request."""
