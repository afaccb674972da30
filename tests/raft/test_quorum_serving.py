"""The leader serves its log and snapshots."""

import pytest
from quorum_node import (
    CLUSTER_ID,
    SNAPSHOT,
    NodeUnderTest,
    elected,
    key,
    log_with,
    partition,
)

from spindle.common.errors import ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from spindle.raft import requests
from spindle.raft.log_view import LogView
from spindle.raft.ready import (
    AppendRecords,
    ReadLog,
    ReadSnapshot,
    Ready,
    RequestReceived,
    Resign,
    SnapshotWritten,
)


def lone_leader(log: LogView | None = None) -> NodeUnderTest:
    node = NodeUnderTest(voters=(1,), log=log).start()
    node.flushed()
    return node


def fetch(
    offset: int, epoch: int, *, leader_epoch: int = 2, node_id: int = 9, high_watermark: int = -1
) -> FetchRequest:
    end = OffsetAndEpoch(offset, epoch)
    return requests.fetch_request(
        CLUSTER_ID, leader_epoch, key(node_id), end, high_watermark, 1 << 20
    )


def old_log() -> LogView:
    return log_with((1, 0), end_offset=5)


def replied(ready: Ready, token: int) -> FetchResponse:
    (reply,) = [reply for reply in ready.replies if reply.token == token]
    assert isinstance(reply.response, FetchResponse)
    return reply.response


def test_records_are_served_from_where_the_replica_ends() -> None:
    node = lone_leader(old_log())
    ready = node.step(RequestReceived(7, fetch(3, 1)))
    (reply,) = ready.replies
    assert reply.read == ReadLog(3, 1 << 20)
    answer = partition(reply.response)
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (0, 6, 0)
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 2)


def test_no_answer_is_larger_than_the_setting() -> None:
    node = lone_leader(old_log())
    request = fetch(3, 1)
    partition(request).partition_max_bytes = 100 << 20
    assert node.step(RequestReceived(7, request)).replies[0].read == ReadLog(3, 1 << 20)
    partition(request).partition_max_bytes = 10
    assert node.step(RequestReceived(8, request)).replies[0].read == ReadLog(3, 10)


def test_a_replica_with_everything_waits_for_records() -> None:
    node = lone_leader(old_log())
    token = node.ask_later(fetch(6, 2, high_watermark=6))
    ready = node.step(AppendRecords(2, [b"a"]))
    assert partition(replied(ready, token)).error_code == 0
    assert ready.replies[0].read == ReadLog(6, 1 << 20)


def test_it_does_not_wait_longer_than_asked() -> None:
    node = lone_leader(old_log())
    token = node.ask_later(fetch(6, 2, high_watermark=6))
    assert node.ready.wake_at_ms == node.now_ms + 500
    ready = node.wait(500)
    (reply,) = [reply for reply in ready.replies if reply.token == token]
    assert reply.read is None


def test_a_replica_with_an_old_high_watermark_gets_the_new_one() -> None:
    node = lone_leader(old_log())
    answer = partition(node.ask(fetch(6, 2, high_watermark=5), FetchResponse))
    assert answer.high_watermark == 6


def test_old_versions_that_send_no_high_watermark_wait() -> None:
    node = lone_leader(old_log())
    request = fetch(6, 2)
    partition(request).high_watermark = 2**63 - 1
    node.ask_later(request)


def test_a_diverging_replica_learns_where_the_logs_part() -> None:
    node = lone_leader(old_log())
    answer = partition(node.ask(fetch(9, 1), FetchResponse))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (1, 5)
    assert answer.snapshot_id.epoch == -1


def test_a_replica_from_before_the_log_gets_a_snapshot_id() -> None:
    node = lone_leader(LogView(10, 20, [(2, 10)], [SNAPSHOT]))
    answer = partition(node.ask(fetch(0, 0, leader_epoch=3), FetchResponse))
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == (10, 2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"current_leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": 3}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_fetches_are_checked(change: dict[str, int], error: ErrorCode) -> None:
    node = lone_leader(old_log())
    request = fetch(3, 1)
    for name, value in change.items():
        setattr(partition(request), name, value)
    assert partition(node.ask(request, FetchResponse)).error_code == error


def test_fetches_of_another_cluster_or_partition_are_refused() -> None:
    node = lone_leader()
    request = fetch(0, 0)
    request.cluster_id = "another"
    assert node.ask(request, FetchResponse).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    request = fetch(0, 0)
    partition(request).partition = 1
    assert node.ask(request, FetchResponse).error_code == ErrorCode.INVALID_REQUEST


def test_a_node_that_does_not_lead_says_who_does() -> None:
    node = NodeUnderTest().start()
    answer = partition(node.ask(fetch(0, 0, leader_epoch=0), FetchResponse))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == -1


def test_waiting_fetches_are_answered_when_leadership_ends() -> None:
    node = elected(NodeUnderTest())
    token = node.ask_later(fetch(1, 1, leader_epoch=1))
    ready = node.step(Resign(1))
    assert partition(replied(ready, token)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_of_the_log_is_no_replica() -> None:
    node = elected(NodeUnderTest())
    node.step(RequestReceived(5, fetch(1, 1, leader_epoch=1, node_id=1)))
    request = fetch(1, 1, leader_epoch=1)
    request.replica_id = request.replica_state.replica_id = -1
    node.step(RequestReceived(6, request))
    assert node.leadership.progress.observers == []


def test_observers_are_forgotten_when_they_stay_away() -> None:
    node = lone_leader(old_log())
    node.step(RequestReceived(5, fetch(3, 1)))
    progress = node.leadership.progress
    node.wait(299_999)
    assert [replica.key.id for replica in progress.observers] == [9]
    node.wait(1)
    assert progress.observers == []


# ---------------------------------------------------------------- snapshots


def fetch_snapshot(
    snapshot_id: OffsetAndEpoch, position: int = 0, *, leader_epoch: int = 3
) -> FetchSnapshotRequest:
    return requests.fetch_snapshot_request(
        CLUSTER_ID, leader_epoch, key(9), snapshot_id, position, 1 << 30
    )


def leader_with_snapshot() -> NodeUnderTest:
    return lone_leader(LogView(10, 20, [(2, 10)], [OffsetAndEpoch(0, 0), SNAPSHOT]))


def test_a_snapshot_is_served_in_slices() -> None:
    node = leader_with_snapshot()
    (reply,) = node.step(RequestReceived(5, fetch_snapshot(SNAPSHOT, 77))).replies
    assert reply.read == ReadSnapshot(SNAPSHOT, 77, 1 << 20)
    answer = partition(reply.response)
    assert (answer.error_code, answer.position) == (0, 77)
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == SNAPSHOT


def test_a_snapshot_written_later_is_served_too() -> None:
    node = leader_with_snapshot()
    newer = OffsetAndEpoch(15, 2)
    node.step(SnapshotWritten(newer))
    assert node.step(RequestReceived(5, fetch_snapshot(newer))).replies[0].read is not None


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch_snapshot(OffsetAndEpoch(0, 0)), ErrorCode.SNAPSHOT_NOT_FOUND),
        (fetch_snapshot(OffsetAndEpoch(10, 1)), ErrorCode.SNAPSHOT_NOT_FOUND),
        (fetch_snapshot(SNAPSHOT, -1), ErrorCode.POSITION_OUT_OF_RANGE),
        (fetch_snapshot(SNAPSHOT, leader_epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (fetch_snapshot(SNAPSHOT, leader_epoch=9), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_snapshot_requests_are_checked(request_: FetchSnapshotRequest, error: ErrorCode) -> None:
    node = leader_with_snapshot()
    assert partition(node.ask(request_, FetchSnapshotResponse)).error_code == error


def test_snapshots_of_another_cluster_or_topic_are_refused() -> None:
    node = leader_with_snapshot()
    request = fetch_snapshot(SNAPSHOT)
    request.cluster_id = "another"
    answer = node.ask(request, FetchSnapshotResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    request = fetch_snapshot(SNAPSHOT)
    request.topics[0].name = "t"
    answer = node.ask(request, FetchSnapshotResponse)
    assert partition(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
