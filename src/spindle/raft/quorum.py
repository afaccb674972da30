"""The quorum's state machine: `ready = quorum.step(event, now_ms)`.

Pure: no clock, no I/O; randomness is injected. `step` takes one event, lets the role act on what is
due at `now_ms`, and returns the work for the driver (see `ready`).
"""

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
    following,
    joining,
    leadership,
    membership,
    serving,
    transitions,
    votes,
)
from spindle.raft.core import QuorumCore
from spindle.raft.describe import describe_quorum
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
)
from spindle.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from spindle.raft.settings import LocalNode, QuorumSettings, StoredState

_MAX_MOVES_PER_STEP = 8


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
        """Take one event and do what is due.

        Raises:
            NotLeader: an append in an epoch that the local node does not lead.
            ApiError: a refused upgrade of kraft.version.
            ValueError: an append of no record, or of atomic records that exceed one batch.
            QuorumFault: the node must stop.
        """
        core = self.core
        core.ready = Ready()
        if isinstance(event, StartUp):
            transitions.take_up_stored_role(core, now_ms)
        before = core.role
        self._handle(event, now_ms)
        self._poll(now_ms)
        if isinstance(before, Leader) and core.role is not before:
            leadership.leave_leadership(core, before)
        core.announce_leader()
        ready, core.ready = core.ready, Ready()
        return ready

    def _handle(self, event: Event, now_ms: int) -> None:
        core = self.core
        match event:
            case AppendRecords():
                appends.handle_append(core, event, now_ms)
            case LogFlushed():
                core.log.flush_finished()
                leadership.update_high_watermark(core)
            case RequestReceived(token, request):
                self._handle_request(token, request, now_ms)
            case ResponseReceived(request_id, response):
                self._handle_response(request_id, response, now_ms)
            case RequestFailed():
                self._handle_failure(event, now_ms)
            case SnapshotWritten(snapshot_id):
                core.log.add_snapshot(snapshot_id)
            case SnapshotInstalled():
                following.handle_snapshot_installed(core, event, now_ms)
            case SnapshotUnfit():
                following.handle_snapshot_unfit(core, now_ms)
            case LogCleaned(start_offset, snapshots):
                core.log.cleaned(start_offset, snapshots)
                core.history.forget_before(start_offset)
            case KRaftVersionUpgrade():
                membership.upgrade_kraft_version(core, event, now_ms)
            case Resign(epoch):
                if epoch == core.epoch:
                    leadership.resign(core, now_ms)
            case Shutdown():
                core.is_shutting_down = True
                core.is_handing_over = isinstance(core.role, Leader)

    def _poll(self, now_ms: int) -> None:
        """Let the role act until it stays the same."""
        core = self.core
        for _ in range(_MAX_MOVES_PER_STEP):
            role = core.role
            match role:
                case Unattached():
                    votes.poll_unattached(core, role, now_ms)
                    if core.role is role:
                        following.poll_leaderless(core, now_ms)
                case Prospective():
                    votes.poll_prospective(core, role, now_ms)
                case Candidate():
                    votes.poll_candidate(core, role, now_ms)
                case Leader():
                    membership.poll_voter_change(core, role, now_ms)
                    leadership.poll_leader(core, role, now_ms)
                    if core.role is role:
                        serving.serve_parked_fetches(core, role, now_ms)
                case Follower():
                    following.poll_follower(core, role, now_ms)
                case Resigned():
                    leadership.poll_resigned(core, role, now_ms)
            if core.role is role:
                return

    def _handle_request(self, token: int, request: Message, now_ms: int) -> None:
        core = self.core
        match request:
            case FetchRequest():
                serving.handle_fetch(core, token, request, now_ms)
            case VoteRequest():
                votes.handle_vote_request(core, token, request, now_ms)
            case BeginQuorumEpochRequest():
                leadership.handle_begin_request(core, token, request, now_ms)
            case EndQuorumEpochRequest():
                leadership.handle_end_request(core, token, request, now_ms)
            case FetchSnapshotRequest():
                serving.handle_fetch_snapshot(core, token, request, now_ms)
            case DescribeQuorumRequest():
                core.reply(token, describe_quorum(core, request, now_ms))
            case AddRaftVoterRequest():
                membership.handle_add(core, token, request, now_ms)
            case RemoveRaftVoterRequest():
                membership.handle_remove(core, token, request, now_ms)
            case UpdateRaftVoterRequest():
                membership.handle_update(core, token, request, now_ms)
            case _:
                raise ValueError(f"{type(request).__name__} is no request to the quorum")

    def _handle_response(self, request_id: int, response: Message, now_ms: int) -> None:
        core = self.core
        sent = core.connections.answered(request_id)
        if sent is None or sent.message.API_KEY != response.API_KEY:
            return
        match response:
            case FetchResponse():
                following.handle_fetch_response(core, sent, response, now_ms)
            case VoteResponse():
                votes.handle_vote_response(core, sent, response, now_ms)
            case BeginQuorumEpochResponse():
                leadership.handle_begin_response(core, sent, response, now_ms)
            case EndQuorumEpochResponse():
                leadership.handle_end_response(core, sent, response, now_ms)
            case FetchSnapshotResponse():
                following.handle_fetch_snapshot_response(core, sent, response, now_ms)
            case ApiVersionsResponse():
                membership.handle_probe_response(core, sent, response, now_ms)
            case AddRaftVoterResponse() | RemoveRaftVoterResponse() | UpdateRaftVoterResponse():
                joining.handle_membership_response(core, sent, response, now_ms)
            case _:
                raise ValueError(f"{type(response).__name__} is no answer to the quorum")

    def _handle_failure(self, event: RequestFailed, now_ms: int) -> None:
        core = self.core
        sent = core.connections.answered(event.request_id)
        if sent is None:
            return
        core.connections.back_off(sent.destination.id, now_ms)
        if isinstance(sent.message, FetchRequest | FetchSnapshotRequest) and event.is_refused:
            following.handle_refused_fetch(core, sent, now_ms)
        elif isinstance(sent.message, VoteRequest) and event.is_unsupported_version:
            votes.handle_vote_unsupported(core)
        elif isinstance(sent.message, ApiVersionsRequest):
            membership.handle_probe_failed(core, sent)
        elif isinstance(sent.message, EndQuorumEpochRequest):
            leadership.handle_end_failed(core, sent)
