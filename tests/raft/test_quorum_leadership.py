"""Leading: the first batch, appends, the high watermark, the beginning and end of an epoch."""

import pytest
from quorum_node import (
    CLUSTER_ID,
    NodeUnderTest,
    dynamic_history,
    elected,
    endpoints,
    key,
    log_with,
    partition,
    static_voters,
    voter,
)

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import Endpoint, OffsetAndEpoch
from spindle.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from spindle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from spindle.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
)
from spindle.protocol.messages.vote import VoteResponse
from spindle.protocol.records.batch import batches, read_header
from spindle.protocol.records.record import decode_records
from spindle.raft import requests, responses
from spindle.raft.appends import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, split_into_batches
from spindle.raft.kraft_records import read_control_records
from spindle.raft.ready import (
    AppendBatches,
    AppendRecords,
    ElectionState,
    Flush,
    KRaftVersionUpgrade,
    LeaderAndEpoch,
    NotLeader,
    RequestFailed,
    RequestReceived,
    Resign,
    Shutdown,
)
from spindle.raft.voters import VoterHistory


def fetch(node_id: int, offset: int, epoch: int, leader_epoch: int) -> FetchRequest:
    end = OffsetAndEpoch(offset, epoch)
    return requests.fetch_request(CLUSTER_ID, leader_epoch, key(node_id), end, -1, 1 << 20)


def appended(node: NodeUnderTest) -> AppendBatches:
    (operation,) = [op for op in node.ready.log_operations if isinstance(op, AppendBatches)]
    return operation


# ---------------------------------------------------------------- the first batch


def test_the_first_batch_of_an_epoch_says_who_leads_and_who_voted() -> None:
    node = elected(NodeUnderTest(log=log_with((1, 0), end_offset=7)))
    operation = appended(node)
    assert (operation.base_offset, operation.end_offset) == (7, 8)
    header = read_header(operation.batches)
    assert (header.base_offset, header.leader_epoch) == (7, 2)
    assert header.is_control
    (record,) = read_control_records(operation.batches, 0, header)
    message = record.message
    assert isinstance(message, LeaderChangeMessage)
    assert (message.version, message.leader_id) == (0, 1)
    assert [v.voter_id for v in message.voters] == [1, 2, 3]
    assert [v.voter_id for v in message.granting_voters] == [1, 2]


def test_a_reconfigurable_quorum_writes_its_voters_into_the_first_batch_once() -> None:
    node = NodeUnderTest(history=dynamic_history(1)).start()
    operation = appended(node)
    header = read_header(operation.batches)
    records = list(read_control_records(operation.batches, 0, header))
    assert [type(record.message) for record in records] == [
        LeaderChangeMessage,
        KRaftVersionRecord,
        VotersRecord,
    ]
    assert [record.offset for record in records] == [0, 1, 2]
    assert node.core.history.voters_offset == 2

    log = log_with((1, 0), end_offset=3)
    again = NodeUnderTest(history=dynamic_history(1, offset=2), log=log).start()
    assert appended(again).end_offset == 4, "the log has the voters already"


def test_a_leader_with_a_new_address_records_it() -> None:
    moved = (Endpoint("CONTROLLER", "127.0.0.1", 7777),)
    history = dynamic_history(1, offset=2)
    log = log_with((1, 0), end_offset=3)
    node = NodeUnderTest(history=history, log=log, endpoints_of_node=moved).start()
    operation = appended(node)
    header = read_header(operation.batches)
    records = list(read_control_records(operation.batches, 0, header))
    assert [type(record.message) for record in records] == [LeaderChangeMessage, VotersRecord]
    recorded = node.core.voters.get(1)
    assert recorded is not None
    assert recorded.endpoints == moved


# ---------------------------------------------------------------- appends and commits


def test_a_lone_voter_commits_when_its_disk_has_it() -> None:
    node = NodeUnderTest(voters=(1,)).start()
    assert node.ready.high_watermark is None
    assert node.ready.leader == LeaderAndEpoch(-1, 1), "not before its epoch is committed"
    (ready,) = node.flushed()
    assert ready.high_watermark == 1
    assert ready.leader == LeaderAndEpoch(1, 1)
    node.step(AppendRecords(1, [b"a", b"b"]))
    assert node.ready.high_watermark is None
    assert isinstance(node.ready.log_operations[-1], Flush)
    assert node.flushed()[0].high_watermark == 3


def test_records_get_consecutive_offsets_and_the_epoch() -> None:
    node = NodeUnderTest(voters=(1,)).start()
    node.step(AppendRecords(1, [b"a", b"b"]))
    operation = appended(node)
    header = read_header(operation.batches)
    records = decode_records(operation.batches, 0, header)
    assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in records] == [
        (1, None, b"a", node.now_ms),
        (2, None, b"b", node.now_ms),
    ]
    assert (header.leader_epoch, header.is_control, header.codec) == (1, False, 0)


def test_only_the_leader_of_the_epoch_appends() -> None:
    leader = NodeUnderTest(voters=(1,)).start()
    with pytest.raises(NotLeader, match="cannot append in epoch 2"):
        leader.step(AppendRecords(2, [b"a"]))
    follower = NodeUnderTest(election=ElectionState(2, 3, None, ())).start()
    with pytest.raises(NotLeader, match="node 3 leads epoch 2"):
        follower.step(AppendRecords(2, [b"a"]))


def test_many_records_are_split_unless_they_are_atomic() -> None:
    values = [b"x"] * (MAX_BATCH_RECORDS + 1)
    groups = split_into_batches(values, is_atomic=False)
    assert [len(group) for group in groups] == [MAX_BATCH_RECORDS, 1]
    with pytest.raises(ValueError, match="exceed one batch"):
        split_into_batches(values, is_atomic=True)
    big = [bytes(MAX_BATCH_BYTES // 2)] * 3
    assert [len(group) for group in split_into_batches(big, is_atomic=False)] == [1, 1, 1]
    with pytest.raises(ValueError, match="does not fit"):
        split_into_batches([bytes(MAX_BATCH_BYTES)], is_atomic=False)
    with pytest.raises(ValueError, match="no record to append"):
        split_into_batches([], is_atomic=False)


def test_batches_of_a_split_append_stay_below_the_limit() -> None:
    node = NodeUnderTest(voters=(1,)).start()
    node.step(AppendRecords(1, [bytes(3 << 20)] * 4))
    operations = [op for op in node.ready.log_operations if isinstance(op, AppendBatches)]
    assert [len(op.batches) <= MAX_BATCH_BYTES for op in operations] == [True, True]
    assert [op.end_offset for op in operations] == [3, 5]
    assert sum(1 for op in operations for _ in batches(op.batches)) == 2


def test_a_majority_commits_but_only_together_with_a_record_of_the_epoch() -> None:
    node = elected(NodeUnderTest(log=log_with((1, 0), end_offset=7)))
    node.flushed()
    assert node.core.high_watermark is None
    node.step(RequestReceived(50, fetch(2, 7, 1, 2)))
    assert node.core.high_watermark is None, "7 is of an older epoch"
    node.step(RequestReceived(51, fetch(2, 8, 2, 2)))
    assert node.ready.high_watermark == 8
    assert node.ready.leader == LeaderAndEpoch(1, 2)


def test_unflushed_records_of_the_leader_need_both_followers_to_commit() -> None:
    node = elected(NodeUnderTest())
    node.step(RequestReceived(50, fetch(2, 1, 1, 1)))
    assert node.core.high_watermark is None
    node.step(RequestReceived(51, fetch(3, 1, 1, 1)))
    assert node.ready.high_watermark == 1, "but by the two others"


# ---------------------------------------------------------------- begin and end


def test_a_new_leader_presents_itself_and_reminds_the_silent() -> None:
    node = elected(NodeUnderTest())
    sent = [message for _, message in node.sent(BeginQuorumEpochRequest)]
    assert [message.voter_id for message in sent] == [2, 3]
    assert [at.port for at in sent[0].leader_endpoints] == [9001]
    for request, _ in node.sent(BeginQuorumEpochRequest):
        node.answer(
            request,
            responses.epoch_response(node.core, BeginQuorumEpochResponse, ErrorCode.NONE),
        )
    node.step(RequestReceived(50, fetch(2, 1, 1, 1)))
    node.wait(1000)
    assert [m.voter_id for _, m in node.sent(BeginQuorumEpochRequest)] in ([3], [2, 3])
    node.wait(1)
    assert node.role == "Leader"


def test_a_leader_without_a_majority_resigns_and_names_its_heirs() -> None:
    node = elected(NodeUnderTest())
    node.step(RequestReceived(50, fetch(3, 1, 1, 1)))
    node.wait(2999)
    assert node.role == "Leader"
    node.wait(1)
    assert (node.role, node.core.epoch) == ("Resigned", 1)
    message = node.sent(EndQuorumEpochRequest)[0][1]
    candidates = partition(message).preferred_candidates
    assert [at.candidate_id for at in candidates] == [3, 2]
    assert candidates[0].candidate_directory_id == bytes(16)


def test_a_follower_that_fetches_keeps_its_leader() -> None:
    node = elected(NodeUnderTest())
    for token in range(50, 60):
        node.wait(1000)
        node.step(RequestReceived(token, fetch(2, 1, 1, 1)))
    assert node.role == "Leader"


def test_a_lone_leader_needs_nobody() -> None:
    node = NodeUnderTest(voters=(1,)).start()
    node.wait(1_000_000)
    assert node.role == "Leader"


def test_leadership_ends_on_demand_and_at_a_stop() -> None:
    node = elected(NodeUnderTest())
    node.step(Resign(7))
    assert node.role == "Leader", "of another epoch"
    node.step(Resign(1))
    assert node.role == "Resigned"
    stopping = NodeUnderTest(voters=(1,)).start()
    stopping.step(Shutdown())
    assert stopping.role == "Resigned"
    stopping.wait(10_000)
    assert stopping.role == "Resigned"


def test_a_leader_that_stops_votes_before_it_leaves() -> None:
    node = elected(NodeUnderTest())
    node.step(Shutdown())
    assert node.role == "Resigned"
    assert not node.core.has_left
    asked = requests.vote_request(
        CLUSTER_ID, 1, key(2), key(1), node.core.log.end, is_pre_vote=True
    )
    assert partition(node.ask(asked, VoteResponse)).vote_granted
    asked = requests.vote_request(
        CLUSTER_ID, 2, key(2), key(1), node.core.log.end, is_pre_vote=False
    )
    assert partition(node.ask(asked, VoteResponse)).vote_granted
    assert not node.core.has_left
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 2, 2, endpoints(2), key(1))
    node.ask(begin, BeginQuorumEpochResponse)
    assert node.core.has_left


def test_a_leader_that_stops_waits_for_no_majority_that_cannot_be() -> None:
    node = elected(NodeUnderTest())
    node.step(Shutdown())
    farewells = node.sent(EndQuorumEpochRequest)
    assert len(farewells) == 2
    node.step(RequestFailed(farewells[0][0].request_id))
    assert not node.core.has_left, "the other one and this node are a majority"
    node.step(RequestFailed(farewells[1][0].request_id))
    assert node.core.has_left


def test_a_node_that_is_not_the_leader_leaves_at_once() -> None:
    node = NodeUnderTest().start()
    assert not node.core.has_left
    node.step(Shutdown())
    assert node.core.has_left


def test_the_announced_leader_is_followed() -> None:
    node = NodeUnderTest().start()
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 4, 3, endpoints(3), key(1))
    answer = node.ask(begin, BeginQuorumEpochResponse)
    assert partition(answer).error_code == ErrorCode.NONE
    assert (node.role, node.core.epoch, node.core.leader_id) == ("Follower", 4, 3)
    assert node.ready.election_state == ElectionState(4, 3, None, (1, 2, 3))
    assert node.ready.leader == LeaderAndEpoch(3, 4)


def test_the_vote_of_the_epoch_is_kept_by_the_follower() -> None:
    node = NodeUnderTest(election=ElectionState(4, -1, key(3), (1, 2, 3))).start()
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 4, 3, endpoints(3), key(1))
    node.ask(begin, BeginQuorumEpochResponse)
    assert node.ready.election_state == ElectionState(4, 3, key(3), (1, 2, 3))


def test_more_endpoints_of_the_same_leader_are_taken_up() -> None:
    node = NodeUnderTest(election=ElectionState(4, 3, None, ())).start()
    more = (*endpoints(3), Endpoint("INTERNAL", "127.0.0.1", 9103))
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 4, 3, more, key(1))
    node.ask(begin, BeginQuorumEpochResponse)
    assert node.core.leader_endpoints == more


def test_an_old_leader_gets_the_new_epoch() -> None:
    node = NodeUnderTest(election=ElectionState(4, 3, None, ())).start()
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 3, 2, endpoints(2), key(1))
    answer = partition(node.ask(begin, BeginQuorumEpochResponse))
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (answer.leader_id, answer.leader_epoch) == (3, 4)


def test_a_misdirected_announcement_is_refused_after_its_epoch_was_taken_up() -> None:
    node = NodeUnderTest().start()
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 4, 3, endpoints(3), key(2))
    answer = partition(node.ask(begin, BeginQuorumEpochResponse))
    assert answer.error_code == ErrorCode.INVALID_VOTER_KEY
    assert (node.role, node.core.epoch) == ("Follower", 4)


@pytest.mark.parametrize(
    ("order", "delay_ms"), [([1, 2], 0), ([2, 1], 500), ([2, 4, 1], 500), ([2, 4], 1000)]
)
def test_the_end_of_an_epoch_brings_the_election_nearer(order: list[int], delay_ms: int) -> None:
    node = NodeUnderTest(election=ElectionState(4, 3, None, ())).start()
    candidates = [key(node_id) for node_id in order]
    end = requests.end_quorum_epoch_request(CLUSTER_ID, 4, 3, endpoints(3), candidates)
    assert partition(node.ask(end, EndQuorumEpochResponse)).error_code == ErrorCode.NONE
    if delay_ms:
        assert node.role == "Follower"
        node.wait(delay_ms - 1)
        assert node.role == "Follower"
        node.wait(1)
    assert node.role == "Prospective"


# ---------------------------------------------------------------- describe


def describe() -> DescribeQuorumRequest:
    data = DescribeQuorumRequest.TopicData
    return DescribeQuorumRequest(
        topics=[
            data(
                topic_name="__cluster_metadata",
                partitions=[data.PartitionData(partition_index=0)],
            )
        ]
    )


def test_the_leader_describes_its_replicas() -> None:
    node = elected(NodeUnderTest())
    node.flushed()
    node.step(RequestReceived(50, fetch(2, 1, 1, 1)))
    node.step(RequestReceived(51, fetch(9, 0, 0, 1)))
    node.now_ms += 100
    response = node.ask(describe(), DescribeQuorumResponse)
    described = partition(response)
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, 1, 1)
    assert [
        (r.replica_id, r.log_end_offset, r.last_fetch_timestamp) for r in described.current_voters
    ] == [(1, 1, node.now_ms), (2, 1, node.now_ms - 100), (3, -1, -1)]
    assert [(r.replica_id, r.log_end_offset) for r in described.observers] == [(9, 0)]
    assert described.observers[0].replica_directory_id == key(9).directory_id
    assert [n.node_id for n in response.nodes] == [1, 2, 3]


def test_only_the_leader_describes() -> None:
    node = NodeUnderTest().start()
    described = partition(node.ask(describe(), DescribeQuorumResponse))
    assert described.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    wrong = describe()
    wrong.topics[0].topic_name = "t"
    described = partition(node.ask(wrong, DescribeQuorumResponse))
    assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---------------------------------------------------------------- kraft.version


def test_a_static_quorum_becomes_reconfigurable() -> None:
    history = VoterHistory(static_voters(1))
    node = NodeUnderTest(history=history).start()
    node.flushed()
    node.step(KRaftVersionUpgrade(1, 1, is_validate_only=True))
    assert not node.ready.log_operations
    node.step(KRaftVersionUpgrade(1, 1))
    operation = appended(node)
    header = read_header(operation.batches)
    records = list(read_control_records(operation.batches, 0, header))
    assert [type(record.message) for record in records] == [KRaftVersionRecord, VotersRecord]
    assert node.core.history.kraft_version == 1
    assert node.core.voters.get(1) == voter(1)
    assert node.core.is_voter
    assert node.flushed()[0].high_watermark == 3


def test_the_upgrade_waits_for_the_directory_ids_of_all_voters() -> None:
    node = elected(NodeUnderTest())
    node.flushed()
    node.step(RequestReceived(50, fetch(2, 1, 1, 1)))
    with pytest.raises(ApiError, match=r"voters \[2, 3\]"):
        node.step(KRaftVersionUpgrade(1, 1))
    with pytest.raises(ApiError, match="NOT_CONTROLLER"):
        node.step(KRaftVersionUpgrade(9, 1))


def test_a_failed_request_is_repeated_after_a_moment() -> None:
    node = elected(NodeUnderTest())
    begin = node.sent_to(2)
    node.step(RequestFailed(begin.request_id))
    node.wait(1000)
    assert 2 in [request.destination.id for request in node.ready.requests]
