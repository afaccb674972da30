"""Requests of releases that differ: many versions on one connection, and versions of the future."""

from __future__ import annotations

import random
from collections.abc import Iterator
from struct import pack
from typing import Any, Final

import pytest
from peers.node import Node
from raw_wire import UNSUPPORTED_VERSION, Connection, connect
from waiting import wait_until

from spindle.protocol.api import (
    APIS,
    ApiKey,
    request_class,
    response_class,
    response_header_version,
)
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.find_coordinator import FindCoordinatorResponse

CLIENT: Final = {"client_software_name": "raw", "client_software_version": "1"}
BODIES: Final[dict[ApiKey, dict[str, Any]]] = {
    ApiKey.METADATA: {"topics": []},
    ApiKey.API_VERSIONS: CLIENT,
    ApiKey.LIST_GROUPS: {},
    ApiKey.DESCRIBE_GROUPS: {"groups": ["g"]},
    ApiKey.DELETE_TOPICS: {"topic_names": [], "topics": [], "timeout_ms": 1000},
    ApiKey.LIST_OFFSETS: {"replica_id": -1, "topics": []},
    ApiKey.CREATE_PARTITIONS: {"topics": [], "timeout_ms": 1000},
    ApiKey.DESCRIBE_CONFIGS: {"resources": []},
    ApiKey.DESCRIBE_ACLS: {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    },
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": []},
    ApiKey.DELETE_GROUPS: {"groups_names": ["g"]},
    ApiKey.DESCRIBE_CLUSTER: {},
}
"""Requests that change nothing, and whose answers do not change with the time."""
FIND: Final[dict[ApiKey, dict[str, Any]]] = {ApiKey.FIND_COORDINATOR: {"key": "g"}}
FUTURE: Final = 99
FAR_FUTURE: Final = 32767


def answer_of(connection: Connection, key: ApiKey, version: int) -> tuple[int, Message]:
    """Return correlation id and answer; ApiVersions of the future is answered in version 0."""
    frame = connection.receive()
    is_known = version <= APIS[key].last_version
    version = version if is_known else 0
    kind: type[Message] = response_class(key)
    answer, end = decode(kind, version, frame, 4 + response_header_version(key, version))
    assert end == len(frame)
    if isinstance(answer, ApiVersionsResponse):
        answer.finalized_features_epoch = 0  # grows with the metadata log
    return int.from_bytes(frame[:4], "big"), answer


def request(key: ApiKey, version: int, correlation_id: int) -> bytes:
    kind = request_class(key)
    body = encode(kind(**(BODIES | FIND)[key]), min(version, kind.LAST_VERSION))
    framed = request_prefix(key, version, correlation_id, "raw") + body
    return pack(">i", len(framed)) + framed


def every_version() -> list[tuple[ApiKey, int]]:
    pairs = [
        (key, version)
        for key in BODIES
        for version in range(APIS[key].first_version, APIS[key].last_version + 1)
    ]
    return [*pairs, *[(ApiKey.API_VERSIONS, FUTURE)] * 3]


def wait_for_coordinator(node: Node) -> None:
    """Let the node create the topic of the groups, without which a group request waits."""
    with connect(node) as connection:
        wait_until(lambda: error_of_find(connection) == 0, "a group has a coordinator")


def error_of_find(connection: Connection) -> int:
    connection.send(request(ApiKey.FIND_COORDINATOR, 0, 1))
    answer = answer_of(connection, ApiKey.FIND_COORDINATOR, 0)[1]
    assert isinstance(answer, FindCoordinatorResponse)
    return answer.error_code


@pytest.mark.parametrize("seed", range(3))
def test_each_request_of_a_connection_may_have_another_version(node: Node, seed: int) -> None:
    """The answers are those of connections with one request each, in order."""
    wait_for_coordinator(node)
    pairs = every_version()
    alone = {}
    for pair in pairs:
        with connect(node) as connection:
            connection.send(request(*pair, 1))
            alone[pair] = answer_of(connection, *pair)[1]
    random.Random(seed).shuffle(pairs)
    with connect(node) as connection:
        connection.send(b"".join(request(*pair, number) for number, pair in enumerate(pairs)))
        for number, pair in enumerate(pairs):
            assert answer_of(connection, *pair) == (number, alone[pair]), pair
    refused = alone[ApiKey.API_VERSIONS, FUTURE]
    assert isinstance(refused, ApiVersionsResponse)
    assert refused.error_code == UNSUPPORTED_VERSION


def served(node: Node, port: int) -> Iterator[ApiKey]:
    """Yield the APIs that a listener advertises, but for ApiVersions."""
    with connect(node, port) as connection:
        connection.send(request(ApiKey.API_VERSIONS, 4, 1))
        _, answer = answer_of(connection, ApiKey.API_VERSIONS, 4)
    assert isinstance(answer, ApiVersionsResponse)
    for row in answer.api_keys:
        if row.api_key in APIS and row.api_key != ApiVersionsRequest.API_KEY:
            yield ApiKey(row.api_key)


@pytest.mark.parametrize("listener", ["broker", "controller"])
@pytest.mark.parametrize("version", [None, FUTURE, FAR_FUTURE])
def test_a_request_of_a_future_version_ends_its_connection_only(
    node: Node, listener: str, version: int | None
) -> None:
    """Among them are Vote, Fetch and the registrations of a node of a later release."""
    port = node.port if listener == "broker" else node.controller_port
    keys = list(served(node, port))
    assert ApiKey.FETCH in keys
    with connect(node, port) as bystander:
        for key in keys:
            asked = APIS[key].last_version + 1 if version is None else version
            with connect(node, port) as connection:
                framed = request_prefix(key, APIS[key].last_version, 7, "raw")
                framed = framed[:2] + pack(">h", asked) + framed[4:] + bytes(40)
                connection.send(pack(">i", len(framed)) + framed)
                assert connection.is_closed_by_server(), key.name
        bystander.send(request(ApiKey.API_VERSIONS, 5, 8))
        assert answer_of(bystander, ApiKey.API_VERSIONS, 5)[0] == 8
    if node.kind == "spindle":
        last = APIS[ApiKey.FETCH].last_version
        asked = last + 1 if version is None else version
        text = f"Fetch version {asked} is not supported, versions 4 to {last} are"
        assert text in node.output()
