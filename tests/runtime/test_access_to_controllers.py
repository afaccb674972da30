"""A controller with an authorizer lets nobody do what no ACL allows, whichever way they come."""

from pathlib import Path
from typing import Any

import pytest
from node_harness import Client, Home, connected, running

from spindle.authorization.authorizer import NoAuthorizer
from spindle.authorization.denials import Denials
from spindle.authorization.operations import Operation, ResourceType
from spindle.authorization.standard import StandardAuthorizer
from spindle.common.errors import ApiError, ErrorCode
from spindle.config.authorizer import STANDARD_AUTHORIZER
from spindle.controller.access_checks import CLUSTER_OPERATIONS
from spindle.protocol.api import APIS, ApiKey, request_class
from spindle.protocol.message import Message
from spindle.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from spindle.protocol.messages.describe_acls import DescribeAclsRequest
from spindle.runtime.acl_follower import AclFollower
from spindle.runtime.node import Node
from spindle.serving.context import RequestContext
from spindle.serving.forwarding import open_response, seal_request

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_BY_ELEMENT = frozenset(
    (
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    )
)
"""APIs whose answers have an error code for each element only."""


def secured(folder: Path) -> Home:
    home = Home(folder, directories=1)
    home.properties["authorizer.class.name"] = STANDARD_AUTHORIZER
    home.properties["super.users"] = "User:root"
    home.write_properties()
    return home.format()


def acl(name: str, operation: int, resource_type: int = 2) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=resource_type,
                resource_name=name,
                resource_pattern_type=3,
                principal="User:ANONYMOUS",
                host="*",
                operation=operation,
                permission_type=3,
            )
        ]
    )


def sent_by(principal: str, request: Message) -> RequestContext:
    """Return the context of a request that a broker forwards for a client."""
    return RequestContext(
        request.API_KEY, request.LAST_VERSION, 1, "app", "10.0.0.1", "CLIENTS", principal
    )


async def forward(client: Client, principal: str, request: CreateAclsRequest) -> ErrorCode:
    """Return the error of the only element, or of the envelope."""
    context = sent_by(principal, request)
    answer = await client.ask(seal_request(request, context))
    if answer.error_code:
        return ErrorCode(answer.error_code)
    opened = open_response(answer, request, context)
    assert isinstance(opened, CreateAclsResponse)
    return ErrorCode(opened.results[0].error_code)


async def allow(node: Node, request: CreateAclsRequest) -> None:
    """Add an ACL in the node's own process; it counts when the controller has answered."""
    assert node.controller is not None
    await node.controller.request(request)


async def test_requests_without_a_right_are_refused_and_those_of_an_envelope_are_its_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = secured(tmp_path)

    async with running(home) as node, connected(node, "CONTROLLER") as client:
        for key in sorted(set(CLUSTER_OPERATIONS) - _BY_ELEMENT):
            if APIS[key].on_controller and key != ApiKey.UPDATE_RAFT_VOTER:
                answer = await client.ask(request_class(key)())
                assert answer.error_code == DENIED, key
        answer = await client.ask(acl("t", 3))
        assert answer.results[0].error_code == DENIED
        assert answer.results[0].error_message == "Request CREATE_ACLS needs ALTER permission."
        caplog.clear()
        for _ in range(2):
            assert await forward(client, "User:root", acl("t", 3)) == DENIED
        assert sum("refusing an envelope" in text for text in caplog.messages) <= 1
        await allow(node, acl("kafka-cluster", 9, resource_type=4))
        assert await forward(client, "User:ANONYMOUS", acl("t", 3)) == DENIED
        assert await forward(client, "User:root", acl("t", 3)) == ErrorCode.NONE
        async with connected(node) as of_broker:
            described = await of_broker.ask(DescribeAclsRequest())
            assert described.error_code == DENIED
            created = await of_broker.ask(acl("t", 3))
            assert created.results[0].error_code == DENIED


def test_a_broker_that_may_not_forward_does_not_blame_its_client() -> None:
    request = acl("t", 3)
    context = sent_by("User:alice", request)
    envelope = seal_request(request, context)
    refused: Any = type("Refused", (), {"error_code": DENIED, "response_data": None})
    assert envelope.request_principal is not None
    with pytest.raises(ApiError) as caught:
        open_response(refused, request, context)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_the_authorizer_decides_when_all_that_was_committed_is_there() -> None:
    authorizer = StandardAuthorizer([], Denials(lambda: 0))
    follower = AclFollower(authorizer, lambda: 10)
    follower.on_committed(8)
    assert not follower.is_loaded.is_set()
    follower.on_committed(9)
    assert follower.is_loaded.is_set()
    assert not authorizer.allows("User:a", "h", Operation.READ, ResourceType.TOPIC, "t")
    assert AclFollower(NoAuthorizer(), lambda: 10).is_loaded.is_set()


async def test_a_listener_that_may_not_start_early_opens_when_the_acls_are_loaded(
    tmp_path: Path,
) -> None:
    home = secured(tmp_path)
    home.properties["early.start.listeners"] = "PLAINTEXT"

    async with running(home) as node, connected(node, "CONTROLLER") as client:
        # A quorum of one needs no listener to elect its leader, so it is open by now.
        assert (await client.ask(DescribeAclsRequest())).error_code == DENIED
