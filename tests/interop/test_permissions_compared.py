"""Clients with and without rights send the same requests to Kafka and to Spindle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from operator import eq
from pathlib import Path

import pytest
from peers.compare import Difference, Pair
from peers.node import Node
from waiting import wait_for
from wire_cases import OTHER_ID
from wire_cases_permissions import (
    ADMINISTRATOR,
    CLIENTS,
    NOBODY,
    OWNER,
    SETUP,
    chapters,
    consumer_heartbeat,
)
from wire_exchange import KEYS, PATIENCE_S, State, Wire, differences, play

from spindle.common.errors import ErrorCode

pytestmark = pytest.mark.timeout(300)

# ACLs are created last: until then everything is allowed. They are by host, because both nodes
# have listeners without authentication, and their own connections must go on.
NODE_OVERRIDES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}

DELIBERATE: list[tuple[str, str]] = [
    (r": order ", "Kafka's order is that of a hash"),
    (r"error_message: 'Request Request\(", "Kafka shows its own objects"),
    (
        r"^find_coordinator / .*error_message: '' -> '(Group|Transactional Id) authorization"
        r"|^consumer_group_heartbeat / .*error_message: None -> '(Group|Topic) authorization"
        r"|^describe_user_scram_credentials / .*error_message: None -> 'Cluster authorization",
        "the error is the same, its text is more exact",
    ),
    (
        r"error_message: 'Cluster authorization failed.' -> 'Request [A-Z_]+ needs",
        "the error is the same, its text is more exact",
    ),
    (r"^describe_quorum / .*high_watermark", "the logs of two clusters"),
    (r"^join_group / .*member_id: '' -> 'unknown'", "a member that is refused hears its own id"),
    (
        r"^describe_user_scram_credentials / users v0.results: 1 -> 0",
        "a request that is refused as a whole has no results",
    ),
]


@pytest.fixture(scope="module")
def states(module_pair: Pair) -> list[State]:
    """Create topics, groups, transactional ids and ACLs; return what the nodes call them."""
    return [_prepare(node) for node in (module_pair.reference, module_pair.candidate)]


def _prepare(node: Node) -> State:
    state = State(node)
    topics, *rest = SETUP
    assert topics.versions is not None
    play(node, [topics], {}, state=State(node, {"none": OTHER_ID}))
    wire = Wire(node)
    answer = wire.ask("metadata", 12, {"topics": None})
    state.topic_ids = {one.name: one.topic_id for one in answer.topics}
    wire.close()
    play(node, rest, {}, state=state)
    _wait_for_rights(node)
    return state


def _wait_for_rights(node: Node) -> None:
    """Return when the node has the ACLs, which arrive together."""
    expected = {NOBODY: ErrorCode.TOPIC_AUTHORIZATION_FAILED, OWNER: ErrorCode.NONE}
    for host, code in expected.items():
        wire = Wire(node, host)
        wait_for(
            partial(_metadata_error, wire),
            partial(eq, code),
            f"{node.kind} answers {code} to {host}",
            limit_s=PATIENCE_S,
        )
        wire.close()


def _metadata_error(wire: Wire) -> int:
    (topic,) = wire.ask("metadata", 12, {"topics": [{"name": "own-a"}]}).topics
    return int(topic.error_code)


@pytest.fixture(scope="module")
def versions(module_pair: Pair) -> dict[str, range]:
    """Return the first and the last version that both nodes advertise, by API name."""
    by_node = []
    for node in (module_pair.reference, module_pair.candidate):
        wire = Wire(node, ADMINISTRATOR)
        answer = wire.ask("api_versions", 0, {})
        wire.close()
        by_node.append({one.api_key: (one.min_version, one.max_version) for one in answer.api_keys})
    both = {}
    for name, key in KEYS.items():
        if key in by_node[0] and key in by_node[1]:
            first = max(by_node[0][key][0], by_node[1][key][0])
            last = min(by_node[0][key][1], by_node[1][key][1])
            both[name] = range(first, last + 1, max(last - first, 1))
    return both


@pytest.mark.parametrize("client", CLIENTS)
def test_answers_to_a_client_are_those_of_kafka(
    pair: Pair, states: list[State], versions: dict[str, range], client: str
) -> None:
    cases = chapters(list(CLIENTS).index(client))
    expected, actual = (play(s.node, cases, versions, CLIENTS[client], s) for s in states)
    lines = list(_told(expected, actual))
    if lines and pair.differences is not None:
        pair.differences.mkdir(parents=True, exist_ok=True)
        (Path(pair.differences) / f"rights-{client}.txt").write_text("\n".join(lines) + "\n")
    if lines:
        raise Difference(f"{len(lines)} differences, kafka -> candidate:\n" + "\n".join(lines))


def _told(expected: dict[str, object], actual: dict[str, object]) -> Iterator[str]:
    for name in expected:
        for line in dict.fromkeys(differences(name, expected[name], actual[name])):
            if not any(re.search(pattern, line) for pattern, _ in DELIBERATE):
                yield line


def test_a_regular_expression_finds_only_topics_that_the_member_may_describe(
    states: list[State],
) -> None:
    body = {
        **consumer_heartbeat("own-expressions", member="r" * 22),
        "subscribed_topic_names": None,
        "subscribed_topic_regex": "(own|hidden)-(a|b|spare)",
    }
    for state in states:
        wire = Wire(state.node, OWNER)
        # A member may join again and again. Kafka evaluates the expression beside the request.
        answer = wait_for(
            partial(wire.ask, "consumer_group_heartbeat", 1, body),
            lambda answer: answer.assignment and answer.assignment.topic_partitions,
            f"{state.node.kind} assigns partitions",
            limit_s=PATIENCE_S,
        )
        wire.ask("consumer_group_heartbeat", 1, {**body, "member_epoch": -1})
        wire.close()
        topic_ids = {one.topic_id for one in answer.assignment.topic_partitions}
        assert topic_ids == {state.topic_ids[name] for name in ("own-a", "own-b", "own-spare")}
