"""The metrics of a member of the metadata quorum, in states that a lone node does not reach."""

from types import SimpleNamespace
from typing import Any, cast

from quorum_node import NodeUnderTest, dynamic_history, key, static_voters
from test_quorum_elections import vote

from spindle.common.uuids import uuid_text
from spindle.protocol.messages.vote import VoteResponse
from spindle.raft.ready import ElectionState
from spindle.raft.voters import Voter, VoterHistory, VoterSet
from spindle.runtime.metrics.cluster import quorum_metrics
from spindle.runtime.quorum.quorum_counters import QuorumHistory


def metrics_of(node: NodeUnderTest) -> dict[str, Any]:
    """Return the values by name without its prefix; of a state or a directory id, its name."""
    quorum = SimpleNamespace(core=node.core, history=QuorumHistory(1))
    values: dict[str, Any] = {}
    for metric in quorum_metrics(cast(Any, quorum)):
        name = metric.name.removeprefix("kafka_server_raft_metrics_")
        for sample in metric.samples:
            if not sample.labels:
                values[name] = sample.value
            elif sample.value:
                (values[name],) = sample.labels.values()
    return values


def test_a_node_that_has_voted_shows_for_whom() -> None:
    node = NodeUnderTest().start()
    before = metrics_of(node)
    assert (before["current_state"], before["current_vote"]) == ("unattached", -1)
    assert before["current_vote_directory_id"] == "AAAAAAAAAAAAAAAAAAAAAA"
    node.ask(vote(candidate=2), VoteResponse)
    after = metrics_of(node)
    assert (after["current_state"], after["current_vote"]) == ("unattached-voted", 2)
    assert after["current_vote_directory_id"] == uuid_text(key(2).directory_id)


def test_a_follower_keeps_showing_its_vote() -> None:
    node = NodeUnderTest(election=ElectionState(2, 3, key(3), (1, 2, 3))).start()
    values = metrics_of(node)
    assert (values["current_state"], values["current_vote"]) == ("follower", 3)


def test_configured_voters_that_the_log_replaces_are_shown() -> None:
    name = "kafka_controller_kafka_controller_ignored_static_voters"
    assert metrics_of(NodeUnderTest().start())[name] == 0
    assert metrics_of(NodeUnderTest(history=dynamic_history(1, 2, 3)).start())[name] == 0
    history = VoterHistory(static_voters(1, 2, 3))
    history.add_kraft_version(-1, 1)
    history.add_voters(-1, dynamic_history(1, 2, 3).voters)
    assert metrics_of(NodeUnderTest(history=history).start())[name] == 1


def test_voters_without_an_address_are_counted() -> None:
    history = VoterHistory(VoterSet([*static_voters(1, 2), Voter(key(3))]))
    node = NodeUnderTest(history=history).start()
    assert metrics_of(node)["number_unknown_voter_connections"] == 1
