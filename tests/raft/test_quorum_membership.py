"""Adding, removing and updating voters."""

from quorum_node import (
    CLUSTER_ID,
    NodeUnderTest,
    dynamic_history,
    elected,
    endpoints,
    key,
    log_with,
    voter,
)

from spindle.common.errors import ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from spindle.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from spindle.raft import requests
from spindle.raft.ready import Reply, RequestFailed, RequestReceived
from spindle.raft.voters import KRaftVersionRange


def lone_leader() -> NodeUnderTest:
    """Node 1, the only voter, with everything committed."""
    node = NodeUnderTest(history=dynamic_history(1)).start()
    node.flushed()
    return node


def catch_up(node: NodeUnderTest, node_id: int) -> None:
    end = node.core.log.end
    request = requests.fetch_request(
        CLUSTER_ID, node.core.epoch, key(node_id), end, end.offset, 1 << 20
    )
    node.step(RequestReceived(900 + node_id, request))


def add(node_id: int, *, ack_when_committed: bool = True) -> AddRaftVoterRequest:
    request = requests.add_voter_request(CLUSTER_ID, 1000, voter(node_id))
    request.ack_when_committed = ack_when_committed
    return request


def remove(node_id: int, directory_id: bytes | None = None) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        voter_id=node_id,
        voter_directory_id=directory_id or key(node_id).directory_id,
    )


def versions(low: int = 0, high: int = 1, *, error: int = 0) -> ApiVersionsResponse:
    feature = ApiVersionsResponse.SupportedFeatureKey(
        name="kraft.version", min_version=low, max_version=high
    )
    return ApiVersionsResponse(error_code=error, supported_features=[feature])


def the_reply(node: NodeUnderTest, token: int) -> Reply:
    (reply,) = [reply for reply in node.ready.replies if reply.token == token]
    return reply


def error_of(reply: Reply) -> ErrorCode:
    response = reply.response
    assert isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse)
    return ErrorCode(response.error_code)


# ---------------------------------------------------------------- add


def test_a_voter_is_added_when_the_new_set_is_committed() -> None:
    node = lone_leader()
    catch_up(node, 2)
    token = node.ask_later(add(2))
    probe = node.sent_to(2)
    assert isinstance(probe.message, ApiVersionsRequest)
    node.answer(probe, versions())
    assert node.core.voters.ids == [1, 2], "in force at once"
    assert node.core.voters.get(2) == voter(2)
    node.flushed()
    assert token not in [reply.token for reply in node.ready.replies]
    catch_up(node, 2)
    assert error_of(the_reply(node, token)) == ErrorCode.NONE


def test_it_may_be_acknowledged_when_it_is_appended() -> None:
    node = lone_leader()
    catch_up(node, 2)
    token = node.ask_later(add(2, ack_when_committed=False))
    node.answer(node.sent_to(2), versions())
    assert error_of(the_reply(node, token)) == ErrorCode.NONE
    node.flushed()
    catch_up(node, 2)
    assert token not in [reply.token for reply in node.ready.replies], "answered once"


def test_a_known_id_is_a_duplicate_even_with_another_directory() -> None:
    node = lone_leader()
    request = add(1)
    request.voter_directory_id = b"n" * 16
    answer = node.ask(request, AddRaftVoterResponse)
    assert answer.error_code == ErrorCode.DUPLICATE_VOTER
    assert answer.error_message == (
        "The voter id for ReplicaKey(id=1, directoryId=bm5ubm5ubm5ubm5ubm5ubg) is already part "
        "of the set of voters [ReplicaKey(id=1, directoryId=AQEBAQEBAQEBAQEBAQEBAQ)]."
    )


def test_only_the_leader_of_a_reconfigurable_quorum_changes_it() -> None:
    static = NodeUnderTest(voters=(1,)).start()
    static.flushed()
    answer = static.ask(add(2), AddRaftVoterResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    follower = NodeUnderTest(history=dynamic_history(1, 2)).start()
    answer = follower.ask(add(3), AddRaftVoterResponse)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    early = NodeUnderTest(history=dynamic_history(1)).start()
    answer = early.ask(add(2), AddRaftVoterResponse)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT, "nothing is committed yet"
    foreign = add(2)
    foreign.cluster_id = "another"
    answer = lone_leader().ask(foreign, AddRaftVoterResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_voter_change_is_refused_while_another_one_runs() -> None:
    node = lone_leader()
    catch_up(node, 2)
    node.ask_later(add(2))
    answer = node.ask(add(3), AddRaftVoterResponse)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    removal = node.ask(remove(1), RemoveRaftVoterResponse)
    assert removal.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_voter_needs_the_default_listener() -> None:
    request = add(2)
    request.listeners[0].name = "OTHER"
    answer = lone_leader().ask(request, AddRaftVoterResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "default controller listener CONTROLLER" in (answer.error_message or "")


def test_a_voter_needs_a_fitting_version_and_the_records() -> None:
    node = lone_leader()
    token = node.ask_later(add(2))
    node.answer(node.sent_to(2), versions(0, 0))
    assert error_of(the_reply(node, token)) == ErrorCode.INVALID_REQUEST
    token = node.ask_later(add(2))
    node.answer(node.sent_to(2), versions())
    assert error_of(the_reply(node, token)) == ErrorCode.REQUEST_TIMED_OUT, "never fetched"
    catch_up(node, 2)
    node.wait(2001)
    token = node.ask_later(add(2))
    node.answer(node.sent_to(2), versions())
    assert error_of(the_reply(node, token)) == ErrorCode.REQUEST_TIMED_OUT, "not lately"
    assert node.core.voters.ids == [1]


def test_a_voter_that_does_not_answer_is_not_added() -> None:
    node = lone_leader()
    token = node.ask_later(add(2))
    node.step(RequestFailed(node.sent_to(2).request_id))
    assert error_of(the_reply(node, token)) == ErrorCode.REQUEST_TIMED_OUT
    node.wait(20)
    token = node.ask_later(add(2))
    node.answer(node.sent_to(2), versions(error=ErrorCode.UNSUPPORTED_VERSION))
    assert error_of(the_reply(node, token)) == ErrorCode.REQUEST_TIMED_OUT


def test_waiting_ends_with_the_time_given() -> None:
    node = lone_leader()
    catch_up(node, 2)
    token = node.ask_later(add(2))
    node.answer(node.sent_to(2), versions())
    node.flushed()
    node.wait(1000)
    assert error_of(the_reply(node, token)) == ErrorCode.REQUEST_TIMED_OUT
    assert node.core.voters.ids == [1, 2], "the record stays"


# ---------------------------------------------------------------- remove


def three() -> NodeUnderTest:
    node = elected(NodeUnderTest(history=dynamic_history(1, 2, 3)))
    node.flushed()
    catch_up(node, 2)
    catch_up(node, 3)
    return node


def test_a_voter_is_removed() -> None:
    node = three()
    token = node.ask_later(remove(3))
    assert node.core.voters.ids == [1, 2]
    assert [r.key.id for r in node.leadership.progress.observers] == [3]
    node.flushed()
    catch_up(node, 2)
    assert error_of(the_reply(node, token)) == ErrorCode.NONE


def test_neither_an_unknown_voter_nor_the_last_one_can_be_removed() -> None:
    node = three()
    for request in (remove(9), remove(3, b"x" * 16)):
        answer = node.ask(request, RemoveRaftVoterResponse)
        assert answer.error_code == ErrorCode.VOTER_NOT_FOUND
    assert (answer.error_message or "").startswith(
        "Cannot remove voter ReplicaKey(id=3, directoryId=eHh4eHh4eHh4eHh4eHh4eA) from the set"
    )
    answer = lone_leader().ask(remove(1), RemoveRaftVoterResponse)
    assert answer.error_code == ErrorCode.VOTER_NOT_FOUND


def test_a_removed_leader_resigns_when_its_removal_is_committed() -> None:
    node = three()
    token = node.ask_later(remove(1))
    node.flushed()
    assert node.role == "Leader"
    catch_up(node, 2)
    assert node.role == "Leader", "its own copy does not count any more"
    catch_up(node, 3)
    assert error_of(the_reply(node, token)) == ErrorCode.NONE
    assert node.role == "Resigned"


def test_a_lost_leadership_is_reported() -> None:
    node = three()
    token = node.ask_later(remove(3))
    node.wait(100)
    begin = requests.begin_quorum_epoch_request(CLUSTER_ID, 9, 2, endpoints(2), key(1))
    node.step(RequestReceived(77, begin))
    assert error_of(the_reply(node, token)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---------------------------------------------------------------- update


def update(node_id: int, *, port: int, epoch: int = 1, high: int = 1) -> UpdateRaftVoterRequest:
    told = voter(node_id)._replace(versions=KRaftVersionRange(0, high))
    request = requests.update_voter_request(CLUSTER_ID, epoch, told)
    request.listeners[0].port = port
    return request


def test_a_voter_gets_a_new_address() -> None:
    node = three()
    answer = node.ask(update(2, port=7002), UpdateRaftVoterResponse)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.current_leader.leader_id, answer.current_leader.port) == (1, 9001)
    recorded = node.core.voters.get(2)
    assert recorded is not None
    assert recorded.endpoints[0].port == 7002
    end = node.core.log.end
    node.flushed()
    catch_up(node, 2)
    node.ask(update(2, port=7002), UpdateRaftVoterResponse)
    assert node.core.log.end == end, "nothing new, nothing written"


def test_updates_are_checked() -> None:
    node = three()
    for request, error in (
        (update(2, port=1, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (update(2, port=1, high=0), ErrorCode.INVALID_REQUEST),
        (update(9, port=1), ErrorCode.VOTER_NOT_FOUND),
    ):
        assert node.ask(request, UpdateRaftVoterResponse).error_code == error


def test_in_a_static_quorum_the_leader_only_remembers() -> None:
    node = elected(NodeUnderTest())
    node.flushed()
    end = node.core.log.end
    assert node.ask(update(2, port=9002), UpdateRaftVoterResponse).error_code == ErrorCode.NONE
    assert node.core.log.end == end
    assert node.leadership.reported_voters[2] == voter(2)


def test_progress_is_kept_over_a_change_of_voters() -> None:
    log = log_with((1, 0), end_offset=4)
    node = elected(NodeUnderTest(history=dynamic_history(1, 2, 3, offset=0), log=log))
    node.flushed()
    catch_up(node, 2)
    assert node.core.log.end == OffsetAndEpoch(5, 2)
    node.ask_later(remove(3))
    progress = node.leadership.progress
    assert [(r.key.id, r.end_offset) for r in progress.voter_replicas] == [(1, -1), (2, 5)]
