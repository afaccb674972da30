"""Hostile requests of a peer: the node answers or waits, and goes on."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorum_node import CLUSTER_ID, NodeUnderTest, dynamic_history, elected, key, log_with

from spindle.common.ids import Endpoint, OffsetAndEpoch
from spindle.protocol.message import Message
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from spindle.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.protocol.messages.vote import VoteRequest
from spindle.raft import requests
from spindle.raft.ready import ElectionState, RequestReceived
from spindle.raft.roles import Leader
from spindle.raft.voters import ReplicaKey, Voter

integers = st.one_of(st.integers(-2, 6), st.sampled_from([-(2**31), 2**31 - 1]))
offsets = st.one_of(st.integers(-2, 12), st.sampled_from([-(2**63), 2**63 - 1]))
directories = st.sampled_from([bytes(16), key(1).directory_id, key(2).directory_id, b"?" * 16])
keys = st.builds(ReplicaKey, integers, directories)
log_ends = st.builds(OffsetAndEpoch, offsets, integers)
endpoint_lists = st.lists(
    st.builds(Endpoint, st.sampled_from(["CONTROLLER", "X", ""]), st.just("h"), st.just(1)),
    max_size=2,
).map(tuple)
clusters = st.sampled_from([CLUSTER_ID, "another", ""])

messages = st.one_of(
    st.builds(
        requests.vote_request, clusters, integers, keys, keys, log_ends, is_pre_vote=st.booleans()
    ),
    st.builds(
        requests.begin_quorum_epoch_request, clusters, integers, integers, endpoint_lists, keys
    ),
    st.builds(
        requests.end_quorum_epoch_request,
        clusters,
        integers,
        integers,
        endpoint_lists,
        st.lists(keys, max_size=3),
    ),
    st.builds(requests.fetch_request, clusters, integers, keys, log_ends, offsets, integers),
    st.builds(
        requests.fetch_snapshot_request, clusters, integers, keys, log_ends, offsets, integers
    ),
    st.builds(
        requests.update_voter_request, clusters, integers, st.builds(Voter, keys, endpoint_lists)
    ),
    st.builds(
        requests.add_voter_request, clusters, integers, st.builds(Voter, keys, endpoint_lists)
    ),
)


def follower() -> NodeUnderTest:
    election = ElectionState(4, 3, None, (1, 2, 3))
    return NodeUnderTest(log=log_with((2, 0), (4, 5), end_offset=9), election=election).start()


def lone_leader() -> NodeUnderTest:
    node = NodeUnderTest(history=dynamic_history(1)).start()
    node.flushed()
    return node


ROLES: dict[str, Callable[[], NodeUnderTest]] = {
    "unattached": lambda: NodeUnderTest().start(),
    "follower": follower,
    "leader of three": lambda: elected(NodeUnderTest()),
    "lone leader": lone_leader,
    "observer": lambda: NodeUnderTest(node_id=9, can_vote=False).start(),
}


@pytest.mark.parametrize("role", list(ROLES))
@settings(max_examples=60, deadline=None)
@given(sent=st.lists(messages, min_size=1, max_size=6))
def test_every_request_is_answered_or_waits(role: str, sent: list[Message]) -> None:
    node = ROLES[role]()
    epoch = node.core.epoch
    answered: list[int] = []
    for token, request in enumerate(sent):
        ready = node.step(RequestReceived(token, request))
        answered += [reply.token for reply in ready.replies]
        assert node.core.epoch >= epoch
        epoch = node.core.epoch
    assert len(answered) == len(set(answered))
    waiting: list[int] = []
    if isinstance(node.core.role, Leader):
        waiting += node.core.role.parked_fetches
        if node.core.role.voter_change:
            waiting.append(node.core.role.voter_change.token)
    assert sorted([*answered, *waiting]) == list(range(len(sent)))


@pytest.mark.parametrize(
    "request_",
    [
        VoteRequest(),
        BeginQuorumEpochRequest(),
        EndQuorumEpochRequest(),
        FetchRequest(),
        AddRaftVoterRequest(),
        RemoveRaftVoterRequest(),
    ],
    ids=lambda request: type(request).__name__,
)
@pytest.mark.parametrize("role", list(ROLES))
def test_empty_requests_are_refused(role: str, request_: Message) -> None:
    (reply,) = ROLES[role]().step(RequestReceived(1, request_)).replies
    response = reply.response
    assert getattr(response, "error_code", 0) != 0


def test_a_voter_needs_an_identity() -> None:
    for bad in (ReplicaKey(-1, b"x" * 16), ReplicaKey(5)):
        request = requests.add_voter_request(CLUSTER_ID, 1000, Voter(bad))
        (reply,) = lone_leader().step(RequestReceived(1, request)).replies
        assert getattr(reply.response, "error_code", 0) == 42
