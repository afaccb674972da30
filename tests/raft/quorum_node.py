"""A node of the quorum under test: events in, messages out, a disk that is instant when asked."""

from random import Random
from typing import Any, Self, TypeVar

from spindle.common.errors import ErrorCode
from spindle.common.ids import Endpoint, OffsetAndEpoch
from spindle.protocol.message import Message
from spindle.protocol.messages.vote import VoteRequest, VoteResponse
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.raft import responses
from spindle.raft.invariants import check_invariants
from spindle.raft.log_view import LogView
from spindle.raft.quorum import Quorum
from spindle.raft.ready import (
    ElectionState,
    Event,
    Flush,
    LogFlushed,
    Ready,
    Request,
    RequestReceived,
    ResponseReceived,
    StartUp,
    Tick,
)
from spindle.raft.roles import Leader
from spindle.raft.settings import LocalNode, QuorumSettings, StoredState
from spindle.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
START_MS = 100_000
M = TypeVar("M", bound=Message)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


def endpoints(node_id: int) -> tuple[Endpoint, ...]:
    return (Endpoint("CONTROLLER", "127.0.0.1", 9000 + node_id),)


def voter(node_id: int) -> Voter:
    return Voter(key(node_id), endpoints(node_id))


def static_voters(*ids: int) -> VoterSet:
    return VoterSet(Voter(ReplicaKey(node_id), endpoints(node_id)) for node_id in ids)


def dynamic_history(*ids: int, offset: int = -1) -> VoterHistory:
    history = VoterHistory(VoterSet())
    history.add_kraft_version(offset, 1)
    history.add_voters(offset, VoterSet(voter(node_id) for node_id in ids))
    return history


def batch(offset: int, epoch: int, count: int = 1) -> bytes:
    records = [SimpleRecord(None, b"value %d" % n, 1) for n in range(count)]
    return build_batch(records, base_offset=offset, leader_epoch=epoch)


class NodeUnderTest:
    """Node 1, unless said otherwise, of a quorum of nodes 1, 2 and 3."""

    def __init__(
        self,
        *,
        node_id: int = 1,
        voters: tuple[int, ...] = (1, 2, 3),
        history: VoterHistory | None = None,
        log: LogView | None = None,
        election: ElectionState | None = None,
        can_vote: bool = True,
        settings: QuorumSettings | None = None,
        endpoints_of_node: tuple[Endpoint, ...] | None = None,
    ) -> None:
        self.now_ms = START_MS
        self.key = key(node_id)
        own = endpoints(node_id) if endpoints_of_node is None else endpoints_of_node
        local = LocalNode(
            self.key, CLUSTER_ID, endpoints=own if can_vote else (), can_vote=can_vote
        )
        stored = StoredState(
            election, log or LogView(), history or VoterHistory(static_voters(*voters))
        )
        self.quorum = Quorum(local, settings or QuorumSettings(), Random(7), stored)
        self.core = self.quorum.core
        self.ready = Ready()
        self._token = 0

    @property
    def role(self) -> str:
        return type(self.core.role).__name__

    @property
    def leadership(self) -> Leader:
        """The role of a node that leads."""
        role = self.core.role
        assert isinstance(role, Leader)
        return role

    # ------------------------------------------------------------ events

    def start(self) -> Self:
        self.step(StartUp())
        return self

    def step(self, event: Event) -> Ready:
        self.ready = self.quorum.step(event, self.now_ms)
        check_invariants(self.core)
        return self.ready

    def wait(self, duration_ms: int) -> Ready:
        self.now_ms += duration_ms
        return self.step(Tick())

    def flushed(self) -> list[Ready]:
        """Report all flushes as done; what followed."""
        done: list[Ready] = []
        waiting = [self.ready]
        while waiting:
            flushes = [op for op in waiting.pop(0).log_operations if isinstance(op, Flush)]
            for _ in flushes:
                done.append(self.step(LogFlushed()))
                waiting.append(done[-1])
        return done

    def ask(self, request: Message, answer: type[M]) -> M:
        """Send a request to the node; its answer, which has to come at once."""
        self._token += 1
        ready = self.step(RequestReceived(self._token, request))
        messages = [reply.response for reply in ready.replies if reply.token == self._token]
        assert len(messages) == 1, f"no answer to {request}"
        assert isinstance(messages[0], answer)
        return messages[0]

    def ask_later(self, request: Message) -> int:
        """Send a request that the node parks; its token."""
        self._token += 1
        ready = self.step(RequestReceived(self._token, request))
        assert self._token not in [reply.token for reply in ready.replies]
        return self._token

    def answer(self, request: Request, response: Message) -> Ready:
        return self.step(ResponseReceived(request.request_id, response))

    # ------------------------------------------------------------ what it sent

    def sent(self, kind: type[M]) -> list[tuple[Request, M]]:
        return [
            (request, request.message)
            for request in self.ready.requests
            if isinstance(request.message, kind)
        ]

    def sent_requests_to(self, node_id: int) -> list[Request]:
        return [request for request in self.ready.requests if request.destination.id == node_id]

    def sent_to(self, node_id: int) -> Request:
        sent_requests = self.sent_requests_to(node_id)
        assert len(sent_requests) == 1, f"{len(sent_requests)} requests to node {node_id}"
        return sent_requests[0]


class Peer(NodeUnderTest):
    """Another node, only to build the answers that it would give."""

    def granting(self, *, is_granted: bool = True, epoch: int = 0) -> Message:
        response = responses.epoch_response(
            self.core, VoteResponse, ErrorCode.NONE, vote_granted=is_granted
        )
        response.topics[0].partitions[0].leader_epoch = epoch
        response.topics[0].partitions[0].leader_id = -1
        return response


def elected(node: NodeUnderTest) -> NodeUnderTest:
    """Start a node of several and let node 2 elect it; what it did as leader is in `ready`."""
    node.start()
    node.wait(2000)
    for _ in ("pre-vote", "vote"):
        request = node.sent_to(2)
        assert isinstance(request.message, VoteRequest)
        asked = partition(request.message)
        node.answer(request, Peer(node_id=2).start().granting(epoch=asked.replica_epoch))
    assert node.role == "Leader"
    return node


def partition(message: Any) -> Any:
    """Return the only partition of a request or response."""
    topics = message.responses if hasattr(message, "responses") else message.topics
    return topics[0].partitions[0]


def log_with(*epochs: tuple[int, int], end_offset: int) -> LogView:
    """Return a log whose epochs begin at these (epoch, offset)."""
    return LogView(0, end_offset, epochs)


SNAPSHOT = OffsetAndEpoch(10, 2)
