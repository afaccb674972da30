"""Following: fetching, appending, truncating, loading snapshots."""

from typing import Any

import pytest
from quorum_node import (
    CLUSTER_ID,
    SNAPSHOT,
    NodeUnderTest,
    Peer,
    batch,
    dynamic_history,
    endpoints,
    key,
    log_with,
    partition,
    voter,
)

from spindle.common.errors import ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from spindle.protocol.messages.vote import VoteRequest, VoteResponse
from spindle.protocol.records.control import build_control_batch
from spindle.raft import kraft_records, requests
from spindle.raft.core import QuorumFault
from spindle.raft.log_view import LogView
from spindle.raft.ready import (
    AppendBatches,
    ElectionState,
    Flush,
    InstallSnapshot,
    LogFlushed,
    Request,
    RequestFailed,
    SnapshotInstalled,
    SnapshotUnfit,
    Truncate,
    WriteSnapshotChunk,
)
from spindle.raft.settings import QuorumSettings
from spindle.raft.voters import VoterSet

Data = FetchResponse.FetchableTopicResponse.PartitionData


def follower(log: LogView | None = None, **more: Any) -> NodeUnderTest:
    """Node 1 that follows node 3 in epoch 4."""
    election = ElectionState(4, 3, None, (1, 2, 3))
    return NodeUnderTest(log=log, election=election, **more).start()


def fetched(
    *,
    error: int = 0,
    records: bytes = b"",
    high_watermark: int = -1,
    leader: tuple[int, int] = (3, 4),
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    data = Data(
        error_code=error,
        records=records,
        high_watermark=high_watermark,
        current_leader=Data.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
    )
    if diverging is not None:
        data.diverging_epoch = Data.EpochEndOffset(
            epoch=diverging.epoch, end_offset=diverging.offset
        )
    if snapshot_id is not None:
        data.snapshot_id = Data.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    topic = FetchResponse.FetchableTopicResponse(topic="__cluster_metadata", partitions=[data])
    return FetchResponse(responses=[topic])


def the_fetch(node: NodeUnderTest) -> Request:
    request = node.sent_to(3)
    assert isinstance(request.message, FetchRequest)
    return request


def test_it_asks_for_what_follows_its_log() -> None:
    node = follower(log_with((2, 0), end_offset=5))
    asked = partition(the_fetch(node).message)
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (5, 2, 4)
    assert asked.replica_directory_id == key(1).directory_id
    assert asked.high_watermark == -1


def test_it_asks_again_only_when_the_records_are_on_its_disk() -> None:
    node = follower()
    records = batch(0, 4, count=2) + batch(2, 4)
    node.answer(the_fetch(node), fetched(records=records, high_watermark=1))
    assert node.ready.log_operations == [AppendBatches(0, 3, records), Flush()]
    assert node.ready.high_watermark == 1
    assert not node.ready.requests
    node.wait(10)
    assert not node.ready.requests
    node.step(LogFlushed())
    asked = partition(the_fetch(node).message)
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.high_watermark) == (3, 4, 1)


def test_the_high_watermark_stays_within_the_own_log() -> None:
    node = follower()
    node.answer(the_fetch(node), fetched(records=batch(0, 4), high_watermark=90))
    assert node.ready.high_watermark == 1


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    node = follower()
    whole = batch(0, 4)
    node.answer(the_fetch(node), fetched(records=whole + batch(1, 4)[:-1]))
    assert node.ready.log_operations[0] == AppendBatches(0, 1, whole)


@pytest.mark.parametrize(
    "second",
    [
        batch(5, 4),
        batch(1, 5),
        batch(1, 4)[:-1] + b"?",
        b"\x00" * 16 + b"\x01" + b"\x00" * 60,
    ],
    ids=["gap", "future epoch", "bad checksum", "old magic"],
)
def test_unsound_batches_are_dropped_and_fetched_again(second: bytes) -> None:
    node = follower()
    first = batch(0, 4)
    node.answer(the_fetch(node), fetched(records=first + second))
    assert node.ready.log_operations[0] == AppendBatches(0, 1, first)
    node.step(LogFlushed())
    node.wait(20)
    assert node.core.log.end_offset == 1


def test_a_diverging_log_is_cut_where_it_parts() -> None:
    node = follower(log_with((1, 0), (3, 6), end_offset=9))
    node.answer(the_fetch(node), fetched(diverging=OffsetAndEpoch(8, 2)))
    assert node.ready.log_operations == [Truncate(6)]
    assert node.core.log.end == OffsetAndEpoch(6, 1)
    asked = partition(the_fetch(node).message)
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (6, 1)
    node.answer(the_fetch(node), fetched(diverging=OffsetAndEpoch(4, 1)))
    assert node.ready.log_operations == [Truncate(4)]


def test_a_diverging_epoch_without_an_end_offset_cuts_nothing() -> None:
    node = follower(log_with((1, 0), (3, 6), end_offset=9))
    node.answer(the_fetch(node), fetched(diverging=OffsetAndEpoch(-1, 3)))
    assert not [o for o in node.ready.log_operations if isinstance(o, Truncate)]
    assert node.core.log.end_offset == 9


def test_committed_records_are_never_cut() -> None:
    node = follower(log_with((1, 0), end_offset=9))
    node.answer(the_fetch(node), fetched(records=batch(9, 4), high_watermark=9))
    node.step(LogFlushed())
    with pytest.raises(QuorumFault, match="everything below 9 is committed"):
        node.answer(the_fetch(node), fetched(diverging=OffsetAndEpoch(4, 1)))


def test_a_truncation_takes_back_a_voter_set() -> None:
    history = dynamic_history(1, 2, 3)
    history.add_voters(7, VoterSet([voter(2), voter(3)]))
    node = NodeUnderTest(
        history=history, log=log_with((1, 0), end_offset=9), election=ElectionState(4, 3)
    ).start()
    assert not node.core.is_voter
    node.answer(the_fetch(node), fetched(diverging=OffsetAndEpoch(7, 1)))
    assert node.core.is_voter


def test_a_fetched_voter_set_is_in_force_before_it_is_committed() -> None:
    node = follower(history=dynamic_history(1, 2, 3), log=LogView())
    records = [kraft_records.voters(VoterSet([voter(1), voter(3)]))]
    data = build_control_batch(records, 5, base_offset=0, leader_epoch=4)
    node.answer(the_fetch(node), fetched(records=data))
    assert node.core.voters.ids == [1, 3]
    assert node.core.high_watermark is None


def test_silence_of_the_leader_brings_an_election() -> None:
    node = follower()
    node.wait(1999)
    assert node.role == "Follower"
    node.wait(1)
    assert node.role == "Prospective"


def test_refusals_do_not_keep_a_leader_in_office() -> None:
    node = follower()
    for _ in range(40):
        for request, _message in node.sent(FetchRequest):
            node.answer(request, fetched(error=ErrorCode.UNKNOWN_SERVER_ERROR))
        node.wait(50)
    assert node.role == "Prospective"


def test_a_leader_whose_process_is_gone_is_not_waited_for() -> None:
    node = follower()
    node.answer(the_fetch(node), fetched())
    node.step(RequestFailed(the_fetch(node).request_id, is_refused=True))
    vote = requests.vote_request(CLUSTER_ID, 4, key(2), key(1), node.core.log.end, is_pre_vote=True)
    assert partition(node.ask(vote, VoteResponse)).vote_granted, "it vouches for the leader no more"
    node.wait(1000 // 8)
    assert node.role == "Prospective"


def test_a_follower_that_alone_cannot_reach_the_leader_asks_for_pre_votes_once() -> None:
    node = follower()
    node.answer(the_fetch(node), fetched())
    node.step(RequestFailed(the_fetch(node).request_id, is_refused=True))
    node.wait(1000 // 8)
    for request, _message in node.sent(VoteRequest):
        peer = Peer(node_id=request.destination.id).start()
        node.answer(request, peer.granting(is_granted=False, epoch=4))
    assert node.role == "Follower"
    node.step(RequestFailed(the_fetch(node).request_id, is_refused=True))
    node.wait(1999)
    assert node.role == "Follower", "until it fetches again, the fetch timeout counts"


def test_an_observer_stays_and_asks_others() -> None:
    node = follower(history=dynamic_history(2, 3), log=LogView())
    assert not node.core.is_voter
    node.step(RequestFailed(the_fetch(node).request_id))
    assert [r.destination.id for r in node.ready.requests] == [2]
    node.answer(node.ready.requests[0], fetched(error=6, leader=(2, 5)))
    assert (node.role, node.core.epoch, node.core.leader_id) == ("Follower", 5, 2)
    node.wait(100_000)
    assert node.role == "Follower"


def test_a_new_epoch_in_an_answer_is_taken_up() -> None:
    node = follower()
    node.answer(the_fetch(node), fetched(error=ErrorCode.FENCED_LEADER_EPOCH, leader=(2, 6)))
    assert (node.role, node.core.epoch, node.core.leader_id) == ("Follower", 6, 2)
    node.answer(node.sent_to(2), fetched(error=ErrorCode.FENCED_LEADER_EPOCH, leader=(-1, 7)))
    assert (node.role, node.core.epoch) == ("Unattached", 7)


def test_an_answer_to_a_fetch_from_before_a_truncation_is_of_no_use() -> None:
    node = follower()
    request = the_fetch(node)
    node.core.log.append(0, 5, 4)
    node.answer(request, fetched(records=batch(0, 4)))
    assert not node.ready.log_operations


# ---------------------------------------------------------------- snapshots


def chunk(
    data: bytes,
    position: int,
    size: int,
    *,
    error: int = 0,
    snapshot_id: OffsetAndEpoch = SNAPSHOT,
) -> FetchSnapshotResponse:
    kind = FetchSnapshotResponse.TopicSnapshot.PartitionSnapshot
    part = kind(
        error_code=error,
        snapshot_id=kind.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=kind.LeaderIdAndEpoch(leader_id=3, leader_epoch=4),
        size=size,
        position=position,
        unaligned_records=data,
    )
    topic = FetchSnapshotResponse.TopicSnapshot(name="__cluster_metadata", partitions=[part])
    return FetchSnapshotResponse(topics=[topic])


def loading() -> NodeUnderTest:
    node = follower()
    node.answer(the_fetch(node), fetched(snapshot_id=SNAPSHOT))
    assert isinstance(node.sent_to(3).message, FetchSnapshotRequest)
    return node


def test_a_snapshot_is_fetched_in_pieces_and_takes_the_place_of_the_log() -> None:
    node = loading()
    node.answer(node.sent_to(3), chunk(b"abc", 0, 5))
    assert node.ready.log_operations == [WriteSnapshotChunk(SNAPSHOT, 0, b"abc")]
    request = node.sent_to(3)
    assert partition(request.message).position == 3
    node.answer(request, chunk(b"de", 3, 5))
    assert node.ready.log_operations == [
        WriteSnapshotChunk(SNAPSHOT, 3, b"de"),
        InstallSnapshot(SNAPSHOT),
    ]
    assert not node.ready.requests
    voters = VoterSet([voter(1), voter(3)])
    node.step(SnapshotInstalled(SNAPSHOT, voters, 1))
    assert node.ready.high_watermark == 10
    assert node.core.voters == voters
    assert node.core.history.kraft_version == 1
    asked = partition(the_fetch(node).message)
    assert (asked.fetch_offset, asked.last_fetched_epoch) == SNAPSHOT


def test_a_corrupt_snapshot_is_requested_again_after_a_pause() -> None:
    node = loading()
    end = node.core.log.end
    node.answer(node.sent_to(3), chunk(b"abc", 0, 3))
    node.step(SnapshotUnfit(SNAPSHOT))
    assert not node.sent_requests_to(3)
    assert node.core.log.end == end
    node.wait(1000)
    asked = partition(the_fetch(node).message)
    assert (asked.fetch_offset, asked.last_fetched_epoch) == end
    node.answer(the_fetch(node), fetched(snapshot_id=SNAPSHOT))
    assert partition(node.sent_to(3).message).position == 0


def test_each_piece_shows_that_the_leader_lives() -> None:
    node = loading()
    for position in range(5):
        request = node.sent_to(3)
        node.now_ms += 1500
        node.answer(request, chunk(b"x", position, 9))
    assert node.role == "Follower"


def test_nothing_is_appended_while_the_disk_replaces_the_log() -> None:
    node = loading()
    node.answer(node.sent_to(3), chunk(b"abc", 0, 3))
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 5, 2, endpoints(2), key(1))
    node.ask(begin, BeginQuorumEpochResponse)
    assert (node.role, node.core.epoch) == ("Follower", 5)
    assert not node.ready.requests
    node.wait(60_000)
    assert node.role == "Follower"
    assert not node.sent(FetchRequest)
    node.step(SnapshotInstalled(SNAPSHOT, None, 0))
    assert node.core.log.end == SNAPSHOT
    node.wait(60_000)
    assert node.role == "Prospective"


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_the_log_is_fetched_again_if_the_snapshot_was_deleted(error: ErrorCode) -> None:
    node = loading()
    node.answer(node.sent_to(3), chunk(b"", 0, 0, error=error))
    node.wait(20)
    assert isinstance(node.sent_to(3).message, FetchRequest)


def test_pieces_of_another_snapshot_or_place_are_ignored() -> None:
    node = loading()
    request = node.sent_to(3)
    node.answer(request, chunk(b"abc", 0, 5, snapshot_id=OffsetAndEpoch(11, 2)))
    assert not node.ready.log_operations
    node.answer(node.sent_to(3), chunk(b"abc", 2, 5))
    assert not node.ready.log_operations


# ---------------------------------------------------------------- membership


def test_a_voter_with_another_address_reports_it_to_the_leader() -> None:
    node = follower(history=dynamic_history(1, 2, 3), endpoints_of_node=voter(8).endpoints)
    node.now_ms += 1900
    node.answer(the_fetch(node), fetched())
    node.step(RequestFailed(the_fetch(node).request_id))
    node.wait(100)
    (sent,) = node.sent(UpdateRaftVoterRequest)
    assert sent[1].voter_id == 1
    assert [at.port for at in sent[1].listeners] == [9008]
    node.answer(sent[0], UpdateRaftVoterResponse())
    assert isinstance(node.sent_to(3).message, FetchRequest)


def test_a_voter_with_the_recorded_address_reports_nothing() -> None:
    node = follower(history=dynamic_history(1, 2, 3))
    for _ in range(6):
        node.answer(the_fetch(node), fetched())
        node.now_ms += 500
    assert not node.sent(UpdateRaftVoterRequest)


def test_a_controller_joins_by_itself_where_that_is_set() -> None:
    settings = QuorumSettings(auto_join=True)
    node = follower(history=dynamic_history(2, 3), settings=settings)
    node.answer(the_fetch(node), fetched())
    request = the_fetch(node)
    node.now_ms += 2000
    node.answer(request, fetched())
    (sent,) = node.sent(AddRaftVoterRequest)
    assert (sent[1].voter_id, sent[1].voter_directory_id) == key(1)
    assert not sent[1].ack_when_committed


def test_a_controller_with_a_new_disk_removes_its_former_self_first() -> None:
    history = dynamic_history(2, 3)
    former = voter(1)._replace(key=key(1)._replace(directory_id=b"o" * 16))
    history.add_voters(0, VoterSet([former, voter(2), voter(3)]))
    node = follower(history=history, settings=QuorumSettings(auto_join=True))
    node.answer(the_fetch(node), fetched())
    request = the_fetch(node)
    node.now_ms += 2000
    node.answer(request, fetched())
    (sent,) = node.sent(RemoveRaftVoterRequest)
    assert (sent[1].voter_id, sent[1].voter_directory_id) == (1, b"o" * 16)
