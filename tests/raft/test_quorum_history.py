"""Log lines about refusals, and about a node whose voter has another directory."""

from random import Random

import pytest
from quorum_node import CLUSTER_ID, NodeUnderTest, dynamic_history, endpoints, key

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.vote import VoteResponse
from spindle.raft import responses
from spindle.raft.log_view import LogView
from spindle.raft.quorum import Quorum
from spindle.raft.ready import Destination, StartUp
from spindle.raft.settings import LocalNode, QuorumSettings, StoredState
from spindle.raft.voters import ReplicaKey
from spindle.runtime.quorum.quorum_counters import QuorumHistory

PEER = Destination(2, "peer", 9093)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_repeated_refusal_is_logged_once_until_the_response_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = NodeUnderTest().start().core
    history = QuorumHistory(1)
    wrong_cluster = VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    for _ in range(3):
        history.answered(PEER, wrong_cluster)
        history.answered(
            PEER, responses.epoch_response(core, VoteResponse, ErrorCode.FENCED_LEADER_EPOCH)
        )
    (said,) = warnings(caplog)
    assert "the controller at peer:9093 refuses Vote: INCONSISTENT_CLUSTER_ID" in said
    history.answered(PEER, FetchResponse(error_code=12345))
    assert warnings(caplog)[-1].endswith("refuses Fetch: 12345"), "a code from the future"
    history.answered(PEER, FetchResponse())
    history.answered(
        PEER, responses.epoch_response(core, BeginQuorumEpochResponse, ErrorCode.INVALID_VOTER_KEY)
    )
    assert "refuses BeginQuorumEpoch: INVALID_VOTER_KEY" in warnings(caplog)[-1]
    history.answered(PEER, VoteResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert warnings(caplog)[-1].endswith("add it to super.users of every node")


@pytest.mark.parametrize("can_vote", [True, False])
def test_a_controller_with_another_disk_than_its_voter_says_so(
    caplog: pytest.LogCaptureFixture, can_vote: bool
) -> None:
    local = LocalNode(
        ReplicaKey(3, b"n" * 16), CLUSTER_ID, endpoints=endpoints(3), can_vote=can_vote
    )
    stored = StoredState(None, LogView(), dynamic_history(1, 2, 3))
    quorum = Quorum(local, QuorumSettings(), Random(1), stored)
    history = QuorumHistory(3)
    for _ in range(2):
        history.stepped(quorum.core, quorum.step(StartUp(), 0), 0)
    said = warnings(caplog)
    assert len(said) == (1 if can_vote else 0), "brokers may have any id"
    assert not can_vote or str(key(3)).split("=")[-1][:-1] in said[0]
