"""The table of role changes and the counting of votes."""

from itertools import product
from typing import get_args

import pytest
from quorum_node import endpoints, key, voter

from spindle.raft.progress import Progress
from spindle.raft.roles import (
    LEGAL_MOVES,
    Candidate,
    Follower,
    IllegalMove,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    VoteCount,
    check_move,
)
from spindle.raft.voters import VoterSet

VOTERS = VoterSet([voter(1), voter(2), voter(3)])


def make(kind: type[Role], epoch: int) -> Role:
    if kind is Unattached:
        return Unattached(epoch, 0)
    if kind is Prospective:
        return Prospective(epoch, 0, VoteCount(VOTERS))
    if kind is Candidate:
        return Candidate(epoch, 0, VoteCount(VOTERS), voter(1).key)
    if kind is Leader:
        return Leader(epoch, 0, [1], Progress(key(1), VOTERS, 0, 0))
    if kind is Follower:
        return Follower(epoch, 2, endpoints(2), 0, 0)
    return Resigned(epoch, 0, 1, [], [])


@pytest.mark.parametrize("move", list(product(get_args(Role), repeat=2)))
def test_exactly_the_moves_of_the_table_are_possible(move: tuple[type[Role], type[Role]]) -> None:
    before, after = make(move[0], 5), move[1]
    rise = LEGAL_MOVES.get(move)
    if rise is None:
        with pytest.raises(IllegalMove):
            check_move(before, make(after, 6))
        return
    check_move(before, make(after, 5 + rise))
    with pytest.raises(IllegalMove):
        check_move(before, make(after, 4 + rise))


def test_no_node_starts_as_leader() -> None:
    check_move(None, make(Resigned, 1))
    with pytest.raises(IllegalMove, match="cannot start as Leader"):
        check_move(None, make(Leader, 1))


def outcome(votes: VoteCount) -> tuple[bool, bool]:
    return votes.is_granted, votes.is_rejected


def test_a_majority_grants_and_a_majority_rejects() -> None:
    votes = VoteCount(VOTERS)
    votes.record(1, True)
    assert outcome(votes) == (False, False)
    votes.record(9, True)
    assert outcome(votes) == (False, False), "a node that is no voter does not count"
    votes.record(2, False)
    assert outcome(votes) == (False, False)
    assert votes.unanswered_ids == [3]
    votes.record(3, True)
    assert outcome(votes)[0]
    votes.record(3, False)
    assert outcome(votes)[1]
