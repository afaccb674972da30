"""Voter sets, their history, and the voters record."""

import pytest
from quorum_node import dynamic_history, endpoints, key, static_voters, voter

from spindle.protocol.records.batch import read_header
from spindle.protocol.records.control import build_control_batch
from spindle.raft import kraft_records
from spindle.raft.voters import ReplicaKey, VoterHistory, VoterSet


def test_a_static_voter_is_known_by_its_id_alone() -> None:
    voters = static_voters(1, 2)
    assert voters.contains(key(1))
    assert voters.contains(ReplicaKey(2))
    assert not voters.contains(key(3))


def test_a_dynamic_voter_with_a_new_directory_is_another_voter() -> None:
    voters = VoterSet([voter(1)])
    assert voters.contains(key(1))
    assert not voters.contains(ReplicaKey(1, b"9" * 16))


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half_of_the_voters(count: int, majority: int) -> None:
    assert VoterSet(voter(i) for i in range(count)).majority == majority


def test_two_voters_may_not_share_an_id() -> None:
    with pytest.raises(ValueError, match="voter 1 appears twice"):
        VoterSet([voter(1), voter(1)])


def test_a_set_is_in_force_from_its_offset_until_it_is_truncated() -> None:
    history = dynamic_history(1)
    both = VoterSet([voter(1), voter(2)])
    history.add_voters(5, both)
    assert history.voters == both
    assert history.voters_before(5).ids == [1]
    assert history.voters_before(6) == both
    history.truncate_to(5)
    assert history.voters.ids == [1]
    assert history.kraft_version == 1


def test_without_records_the_configured_voters_are_in_force() -> None:
    history = VoterHistory(static_voters(4))
    assert history.voters.ids == [4]
    assert history.kraft_version == 0
    assert history.voters_offset is None


def test_offsets_of_the_history_rise() -> None:
    history = dynamic_history(1, offset=3)
    with pytest.raises(ValueError, match="follow"):
        history.add_voters(3, VoterSet())


def test_old_sets_are_forgotten_but_for_the_one_in_force() -> None:
    history = dynamic_history(1)
    history.add_voters(5, VoterSet([voter(2)]))
    history.add_voters(9, VoterSet([voter(3)]))
    history.forget_before(7)
    assert history.voters_before(7).ids == [2]
    history.truncate_to(9)
    assert history.voters.ids == [2]


def test_the_voters_record_survives_encoding() -> None:
    voters = VoterSet([voter(1), voter(2)])
    records = [kraft_records.kraft_version(1), kraft_records.voters(voters)]
    data = build_control_batch(records, timestamp_ms=5, base_offset=7, leader_epoch=3)
    history = VoterHistory(VoterSet())
    kraft_records.apply_to_history(data, history, history.add_voters)
    assert history.kraft_version == 1
    assert history.voters == voters
    assert history.voters_offset == 8
    voter_2 = history.voters.get(2)
    assert voter_2 is not None
    assert voter_2.endpoints == endpoints(2)
    assert read_header(data).is_control
