"""Votes, pre-votes and the ways into and out of an election."""

import pytest
from quorum_node import CLUSTER_ID, NodeUnderTest, Peer, endpoints, key, log_with, partition

from spindle.common.errors import ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.vote import VoteRequest, VoteResponse
from spindle.raft import requests
from spindle.raft.log_view import LogView
from spindle.raft.ready import ElectionState, RequestFailed, Shutdown
from spindle.raft.roles import Follower
from spindle.raft.settings import QuorumSettings
from spindle.raft.voters import ReplicaKey


def vote(
    candidate: int = 2,
    epoch: int = 1,
    end: tuple[int, int] = (0, 0),
    *,
    pre: bool = False,
    voter: ReplicaKey | None = None,
) -> VoteRequest:
    return requests.vote_request(
        CLUSTER_ID,
        epoch,
        key(candidate),
        voter or key(1),
        OffsetAndEpoch(*end),
        is_pre_vote=pre,
    )


def asks_and_wins(node: NodeUnderTest, *, peer: int = 2) -> None:
    """Let a peer grant what the node asks for."""
    request = node.sent_to(peer)
    assert isinstance(request.message, VoteRequest)
    asked = partition(request.message)
    node.answer(request, Peer(node_id=peer).start().granting(epoch=asked.replica_epoch))


# ---------------------------------------------------------------- asking


def test_a_lone_voter_leads_at_its_first_step() -> None:
    node = NodeUnderTest(voters=(1,)).start()
    assert list(node.core.recent_roles) == [
        "Unattached(0)",
        "Prospective(0)",
        "Candidate(1)",
        "Leader(1)",
    ]
    assert node.ready.election_state == ElectionState(1, 1, None, (1,))


def test_an_election_is_asked_for_first_and_held_afterwards() -> None:
    node = NodeUnderTest().start()
    assert node.role == "Unattached"
    node.wait(2000)
    assert node.role == "Prospective"
    assert [partition(m).pre_vote for _, m in node.sent(VoteRequest)] == [True, True]
    stored_state = node.ready.election_state
    assert stored_state is None, "a prospective node changes nothing that lasts"
    asks_and_wins(node)
    assert node.role == "Candidate"
    assert node.ready.election_state == ElectionState(1, -1, key(1), (1, 2, 3))
    votes = [partition(m) for _, m in node.sent(VoteRequest)]
    assert [(v.replica_epoch, v.pre_vote) for v in votes] == [(1, False), (1, False)]
    asks_and_wins(node)
    assert node.role == "Leader"
    assert node.ready.election_state == ElectionState(1, 1, None, (1, 2, 3))


def test_a_rejected_prospective_goes_back_without_a_new_epoch() -> None:
    node = NodeUnderTest().start()
    node.wait(2000)
    asked = {peer: node.sent_to(peer) for peer in (2, 3)}
    for peer, request in asked.items():
        node.answer(request, Peer(node_id=peer).start().granting(is_granted=False))
    assert (node.role, node.core.epoch) == ("Unattached", 0)


def test_a_peer_that_does_not_know_pre_votes_is_no_obstacle() -> None:
    node = NodeUnderTest().start()
    node.wait(2000)
    node.step(RequestFailed(node.sent_to(2).request_id, is_unsupported_version=True))
    assert (node.role, node.core.epoch) == ("Candidate", 1)


def test_a_rejected_candidate_waits_before_it_asks_again() -> None:
    node = NodeUnderTest().start()
    node.wait(2000)
    asks_and_wins(node)
    to_two, to_three = node.sent_to(2), node.sent_to(3)
    node.answer(to_two, Peer(node_id=2).start().granting(is_granted=False, epoch=1))
    node.answer(to_three, Peer(node_id=3).start().granting(is_granted=False, epoch=1))
    assert node.role == "Candidate"
    wake_at_ms = node.ready.wake_at_ms
    assert wake_at_ms is not None
    assert 0 < wake_at_ms - node.now_ms <= 1050
    node.wait(wake_at_ms - node.now_ms)
    assert (node.role, node.core.epoch) == ("Prospective", 1)


def test_a_candidate_without_answers_becomes_prospective() -> None:
    node = NodeUnderTest().start()
    node.wait(2000)
    asks_and_wins(node)
    node.wait(2000)
    assert (node.role, node.core.epoch) == ("Prospective", 1)


def test_a_higher_epoch_in_an_answer_ends_the_candidacy() -> None:
    node = NodeUnderTest().start()
    node.wait(2000)
    asks_and_wins(node)
    node.answer(node.sent_to(2), Peer(node_id=2).start().granting(is_granted=False, epoch=9))
    assert (node.role, node.core.epoch) == ("Unattached", 9)
    assert node.ready.election_state == ElectionState(9, -1, None, (1, 2, 3))


def test_an_answer_to_an_older_question_counts_for_nothing() -> None:
    node = NodeUnderTest().start()
    node.wait(2000)
    stale = node.sent_to(3)
    asks_and_wins(node)
    node.answer(stale, Peer(node_id=3).start().granting(epoch=0))
    assert node.role == "Candidate"


def test_a_node_that_stops_stands_in_no_election() -> None:
    node = NodeUnderTest().start()
    node.step(Shutdown())
    node.wait(5000)
    assert node.role == "Unattached"
    assert not node.ready.requests


# ---------------------------------------------------------------- asked


@pytest.mark.parametrize(
    ("end", "granted"), [((4, 1), False), ((5, 1), True), ((0, 2), True), ((9, 0), False)]
)
def test_only_a_log_that_is_up_to_date_gets_the_vote(end: tuple[int, int], granted: bool) -> None:
    node = NodeUnderTest(log=log_with((1, 0), end_offset=5)).start()
    answer = partition(node.ask(vote(epoch=3, end=end), VoteResponse))
    assert answer.vote_granted is granted
    assert answer.leader_epoch == 3


def test_a_vote_is_stored_before_it_is_given_and_given_once() -> None:
    node = NodeUnderTest().start()
    assert partition(node.ask(vote(candidate=2), VoteResponse)).vote_granted
    assert node.ready.election_state == ElectionState(1, -1, key(2), (1, 2, 3))
    assert not partition(node.ask(vote(candidate=3), VoteResponse)).vote_granted
    assert partition(node.ask(vote(candidate=2), VoteResponse)).vote_granted, "asked again"


def test_a_stored_vote_without_a_directory_fits_any() -> None:
    node = NodeUnderTest(election=ElectionState(1, -1, ReplicaKey(2), (1, 2, 3))).start()
    assert partition(node.ask(vote(candidate=2), VoteResponse)).vote_granted


def test_a_vote_for_a_lost_disk_is_not_one_for_its_successor() -> None:
    stored = ElectionState(1, -1, ReplicaKey(2, b"o" * 16), (1, 2, 3))
    node = NodeUnderTest(election=stored).start()
    assert not partition(node.ask(vote(candidate=2), VoteResponse)).vote_granted


def test_a_pre_vote_binds_nobody() -> None:
    node = NodeUnderTest().start()
    assert partition(node.ask(vote(candidate=2, pre=True), VoteResponse)).vote_granted
    assert partition(node.ask(vote(candidate=3, pre=True), VoteResponse)).vote_granted
    assert node.core.role.voted_key is None


def test_a_follower_of_a_leader_that_answers_refuses_pre_votes() -> None:
    node = NodeUnderTest(election=ElectionState(2, 3, None, (1, 2, 3))).start()
    assert node.role == "Follower"
    assert partition(node.ask(vote(epoch=2, pre=True), VoteResponse)).vote_granted
    assert isinstance(node.core.role, Follower)
    node.core.role.has_fetched = True
    assert not partition(node.ask(vote(epoch=2, pre=True), VoteResponse)).vote_granted


def test_a_follower_and_a_leader_refuse_votes_of_their_epoch() -> None:
    follower = NodeUnderTest(election=ElectionState(2, 3, None, (1, 2, 3))).start()
    assert not partition(follower.ask(vote(epoch=2), VoteResponse)).vote_granted
    leader = NodeUnderTest(voters=(1,)).start()
    answer = leader.ask(vote(epoch=1, pre=True, end=(99, 1)), VoteResponse)
    assert not partition(answer).vote_granted
    assert partition(answer).leader_id == 1
    assert [(at.node_id, at.port) for at in answer.node_endpoints] == [(1, 9001)]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(epoch=1), ErrorCode.FENCED_LEADER_EPOCH),
        (vote(epoch=5, end=(1, 5)), ErrorCode.INVALID_REQUEST),
        (vote(epoch=5, end=(1, 6), pre=True), ErrorCode.INVALID_REQUEST),
        (vote(epoch=5, end=(-1, 0)), ErrorCode.INVALID_REQUEST),
        (vote(epoch=5, end=(0, -1)), ErrorCode.INVALID_REQUEST),
        (vote(epoch=5, voter=key(2)), ErrorCode.INVALID_VOTER_KEY),
        (vote(epoch=5, voter=ReplicaKey(1, b"x" * 16)), ErrorCode.INVALID_VOTER_KEY),
        (vote(epoch=5, end=(1, 5), pre=True), ErrorCode.NONE),
        (vote(epoch=5, voter=ReplicaKey(-1)), ErrorCode.NONE),
    ],
)
def test_vote_requests_are_checked(request_: VoteRequest, error: ErrorCode) -> None:
    node = NodeUnderTest(election=ElectionState(4, -1, None, (1, 2, 3))).start()
    assert partition(node.ask(request_, VoteResponse)).error_code == error


def test_the_epoch_of_a_misdirected_vote_is_taken_up_all_the_same() -> None:
    node = NodeUnderTest().start()
    node.ask(vote(epoch=7, voter=key(2)), VoteResponse)
    assert node.core.epoch == 7


def test_votes_of_another_cluster_or_topic_are_refused_as_a_whole() -> None:
    node = NodeUnderTest().start()
    foreign = vote()
    foreign.cluster_id = "another"
    assert node.ask(foreign, VoteResponse).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    other = vote()
    other.topics[0].topic_name = "t"
    assert node.ask(other, VoteResponse).error_code == ErrorCode.INVALID_REQUEST
    nameless = vote()
    nameless.cluster_id = None
    assert node.ask(nameless, VoteResponse).error_code == ErrorCode.NONE


# ---------------------------------------------------------------- restarts


def test_a_former_sole_leader_leads_the_next_epoch_at_once() -> None:
    stored = ElectionState(1, 1, None, (1,))
    node = NodeUnderTest(voters=(1,), election=stored, log=log_with((1, 0), end_offset=151)).start()
    assert list(node.core.recent_roles) == [
        "Resigned(1)",
        "Prospective(1)",
        "Candidate(2)",
        "Leader(2)",
    ]


def test_a_former_leader_neither_leads_nor_votes_in_its_epoch_again() -> None:
    node = NodeUnderTest(election=ElectionState(3, 1, None, (1, 2, 3))).start()
    assert node.role == "Resigned"
    assert not partition(node.ask(vote(epoch=3, end=(9, 2)), VoteResponse)).vote_granted
    node.wait(2000)
    assert (node.role, node.core.epoch) == ("Unattached", 4)


def test_a_node_that_voted_for_itself_starts_as_candidate() -> None:
    node = NodeUnderTest(election=ElectionState(3, -1, key(1), (1, 2, 3))).start()
    assert (node.role, node.core.epoch) == ("Candidate", 3)
    assert len(node.sent(VoteRequest)) == 2


def test_a_follower_continues_following() -> None:
    stored = ElectionState(3, 2, key(2), (1, 2, 3))
    node = NodeUnderTest(election=stored).start()
    assert node.role == "Follower"
    assert node.core.leader_endpoints == endpoints(2)
    assert node.ready.election_state == stored
    assert node.sent_to(2).message.API_KEY == FetchRequest.API_KEY


def test_an_epoch_of_the_log_beats_an_older_one_of_the_file() -> None:
    stored = ElectionState(3, 1, None, (1, 2, 3))
    node = NodeUnderTest(election=stored, log=log_with((5, 0), end_offset=2)).start()
    assert (node.role, node.core.epoch) == ("Unattached", 5)


def test_a_vote_that_a_start_finds_is_stored_again_before_anything_is_sent() -> None:
    """A kill may have left the renamed file in a directory that no device holds yet."""
    stored = ElectionState(4, -1, key(2), (1, 2, 3))
    assert NodeUnderTest(election=stored).start().ready.election_state == stored


def test_a_node_that_just_started_and_knows_no_leader_asks_soon() -> None:
    node = NodeUnderTest(settings=QuorumSettings(election_timeout_ms=1000)).start()
    assert node.role == "Unattached", "nodes that start together must not all ask at once"
    node.wait(1000 // 8)
    assert node.role == "Prospective"


def test_an_observer_never_stands() -> None:
    node = NodeUnderTest(node_id=9, can_vote=False, log=LogView()).start()
    node.wait(60_000)
    assert node.role == "Unattached"
    assert not node.sent(VoteRequest)
    assert len(node.sent(FetchRequest)) == 1, "it looks for the leader"
