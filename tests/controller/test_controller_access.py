"""Requests to the controller are carried out for what their sender has the right to."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from controller_harness import AnyConfig, Harness, operation_context, uuid

from spindle.authorization.access import Access
from spindle.authorization.denials import Denials
from spindle.authorization.operations import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from spindle.authorization.standard import StandardAuthorizer
from spindle.client.admin.acls import AclQuery
from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.access_checks import (
    CHECKED_BY_RESOURCE,
    CLUSTER_OPERATIONS,
    check_request,
)
from spindle.controller.acls import create_acls
from spindle.controller.decision import ControllerContext
from spindle.metadata.feature_image import FeaturesImage
from spindle.metadata.features import METADATA_VERSION
from spindle.metadata.image import EMPTY_IMAGE
from spindle.metadata.security import AccessControlEntry
from spindle.protocol.api import APIS, ApiKey
from spindle.protocol.messages.create_acls import CreateAclsRequest
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_acls import DeleteAclsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

ANONYMOUS = "User:ANONYMOUS"
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
NONE = ErrorCode.NONE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def authorizer(*rights: tuple[Operation, ResourceType, str]) -> StandardAuthorizer:
    made = StandardAuthorizer([], Denials(lambda: 0))
    made.load(
        {
            bytes([number]) * 16: AccessControlEntry(
                kind, name, PatternType.LITERAL, ANONYMOUS, "*", operation, Permission.ALLOW
            )
            for number, (operation, kind, name) in enumerate(rights)
        }
    )
    made.complete_load()
    return made


async def started(*rights: tuple[Operation, ResourceType, str], topics: str = "") -> Harness:
    """Return a node with topics that were created before the rights applied."""
    node = Harness(authorizer=authorizer((Operation.ALL, CLUSTER, CLUSTER_NAME)))
    node.quorum.become_leader(1, 1)
    await node.broker(1, [uuid(1)])
    if topics:
        await node.request(creation(*topics.split()))
    assert isinstance(node.authorizer, StandardAuthorizer)
    node.authorizer.load({})
    node.authorizer.update(authorizer(*rights)._by_id)
    return node


def creation(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name=n, num_partitions=1, replication_factor=1)
            for n in names
        ]
    )


def test_every_api_of_a_controller_has_a_right_or_is_checked_by_resource() -> None:
    served = {key for key, api in APIS.items() if api.on_controller}
    unsaid = served - set(CLUSTER_OPERATIONS) - CHECKED_BY_RESOURCE
    assert {APIS[key].name for key in unsaid} == set()
    assert not set(CLUSTER_OPERATIONS) & CHECKED_BY_RESOURCE


@pytest.mark.parametrize("api_key", sorted(CLUSTER_OPERATIONS))
def test_a_request_needs_its_right_on_the_cluster(api_key: int) -> None:
    def check(*rights: tuple[Operation, ResourceType, str]) -> None:
        check_request(Access(authorizer(*rights), ANONYMOUS, "10.0.0.1", api_key))

    needed = CLUSTER_OPERATIONS[api_key]
    check((needed, CLUSTER, CLUSTER_NAME))
    others = [o for o in Operation if o > Operation.ALL and o is not needed]
    if needed is Operation.DESCRIBE:
        others = [Operation.CLUSTER_ACTION, Operation.CREATE]
    with pytest.raises(ApiError, match=f"needs {needed.name} permission") as caught:
        check(*((other, CLUSTER, CLUSTER_NAME) for other in others))
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_api_that_no_table_names_needs_alter_on_the_cluster() -> None:
    with pytest.raises(ApiError, match="needs ALTER permission"):
        check_request(Access(authorizer(), ANONYMOUS, "10.0.0.1", ApiKey.PRODUCE))


async def test_topics_are_created_where_allowed_and_described_where_allowed() -> None:
    node = await started(
        (Operation.CREATE, TOPIC, "mine"),
        (Operation.CREATE, TOPIC, "seen"),
        (Operation.DESCRIBE_CONFIGS, TOPIC, "seen"),
        topics="old",
    )
    answer = await node.request(creation("mine", "seen", "old", "bad name!"))
    results = {topic.name: topic for topic in answer.topics}
    codes = {name: result.error_code for name, result in results.items()}
    assert codes == {"mine": NONE, "seen": NONE, "old": DENIED, "bad name!": DENIED}
    assert results["old"].error_message == "Authorization failed."
    mine, seen = results["mine"], results["seen"]
    assert (mine.topic_config_error_code, mine.num_partitions) == (DENIED, -1)
    assert (mine.replication_factor, mine.configs) == (-1, [])
    assert (seen.topic_config_error_code, seen.num_partitions) == (NONE, 1)
    assert sorted(node.publisher.image.topics.by_name) == ["mine", "old", "seen"]


async def test_the_right_to_create_on_the_cluster_is_one_for_all_topics() -> None:
    node = await started((Operation.CREATE, CLUSTER, CLUSTER_NAME))
    assert (await node.request(creation("t"))).topics[0].error_code == NONE


async def test_topics_are_deleted_where_allowed_and_their_names_are_not_revealed() -> None:
    node = await started(
        (Operation.DELETE, TOPIC, "mine"),
        (Operation.DESCRIBE, TOPIC, "seen"),
        (Operation.DESCRIBE, TOPIC, "absent"),
        topics="mine seen hidden",
    )
    by_name = node.publisher.image.topics.by_name
    ids = {name: topic.topic_id for name, topic in by_name.items()}
    state = DeleteTopicsRequest.DeleteTopicState
    names = ["mine", "seen", "hidden", "absent", "unknown"]
    by_names = DeleteTopicsRequest(topics=[state(name=name) for name in names[1:]])
    answer = await node.request(by_names)
    assert {r.name: r.error_code for r in answer.responses} == {
        "seen": DENIED,
        "hidden": DENIED,
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "unknown": DENIED,
    }
    assert {bytes(r.topic_id) for r in answer.responses} == {bytes(16)}
    wanted = [state(name=None, topic_id=ids[name]) for name in ids]
    answer = await node.request(DeleteTopicsRequest(topics=wanted))
    named = {bytes(r.topic_id): (r.name, r.error_code) for r in answer.responses}
    assert named == {
        ids["mine"]: ("mine", NONE),
        ids["seen"]: ("seen", DENIED),
        ids["hidden"]: (None, DENIED),
    }
    assert sorted(node.publisher.image.topics.by_name) == ["hidden", "seen"]


async def test_partitions_are_added_where_topics_may_be_altered() -> None:
    node = await started((Operation.ALTER, TOPIC, "mine"), topics="mine other")
    grow = CreatePartitionsRequest.CreatePartitionsTopic
    names = ["mine", "other", "absent"]
    request = CreatePartitionsRequest(
        topics=[grow(name=name, count=2, assignments=None) for name in names]
    )
    answer = await node.request(request)
    codes = {result.name: result.error_code for result in answer.results}
    assert codes == {"mine": NONE, "other": DENIED, "absent": DENIED}


async def test_configurations_are_changed_by_the_right_to_their_kind_of_resource() -> None:
    node = await started(
        (Operation.ALTER_CONFIGS, TOPIC, "mine"),
        (Operation.ALTER_CONFIGS, ResourceType.GROUP, "g"),
        topics="mine other",
    )
    change = IncrementalAlterConfigsRequest.AlterConfigsResource
    asked = [(2, "mine"), (2, "other"), (2, "absent"), (4, ""), (16, "s"), (32, "h")]
    request = IncrementalAlterConfigsRequest(
        resources=[change(resource_type=kind, resource_name=name) for kind, name in asked]
    )
    answer = await node.request(request)
    assert [(r.error_code, r.error_message) for r in answer.responses] == [
        (NONE, None),
        (DENIED, "Topic authorization failed."),
        (DENIED, "Topic authorization failed."),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ]


GOOD: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:u",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"resource_type": 4},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": -5}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        (
            {"principal": "u"},
            "Could not parse principal from `u` (no colon is present separating the principal "
            "type from the principal name)",
        ),
    ],
)
async def test_an_acl_that_means_nothing_is_refused_alone(
    changes: dict[str, Any], text: str
) -> None:
    node = Harness(has_authorizer=True)
    node.quorum.become_leader(1, 1)
    make = CreateAclsRequest.AclCreation
    request = CreateAclsRequest(creations=[make(**GOOD), make(**{**GOOD, **changes})])
    good, bad = (await node.request(request)).results
    assert (good.error_code, good.error_message) == (NONE, "")
    assert (bad.error_code, bad.error_message) == (ErrorCode.INVALID_REQUEST, text)
    assert len(node.publisher.image.security.acls) == 1


@pytest.mark.parametrize(
    ("level", "host", "code", "text"),
    [
        (
            31,
            "10.0.0.0/8",
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        ),
        (32, "10.0.0.0/8", NONE, ""),
        (
            32,
            "10.0.0.0/33",
            ErrorCode.INVALID_REQUEST,
            "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]",
        ),
        (32, "", ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty"),
        (7, "", ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty"),
        (7, "host.example", NONE, ""),
    ],
)
def test_ranges_of_hosts_need_a_level_and_a_valid_notation(
    level: int, host: str, code: ErrorCode, text: str
) -> None:
    image = replace(EMPTY_IMAGE, features=FeaturesImage({METADATA_VERSION: level}))
    context = ControllerContext(
        Harness(has_authorizer=True).settings, AnyConfig(), lambda: bytes(16), Random(1)
    )
    creation = CreateAclsRequest.AclCreation(**{**GOOD, "host": host})
    made = create_acls(operation_context(image, context), CreateAclsRequest(creations=[creation]))
    (result,) = made.response.results
    assert (result.error_code, result.error_message) == (code, text)
    assert len(made.records) == (code is NONE)


async def test_a_request_makes_and_removes_at_most_10_000_acls() -> None:
    node = Harness(has_authorizer=True)
    node.quorum.become_leader(1, 1)
    make = CreateAclsRequest.AclCreation

    def several(first: int, count: int) -> CreateAclsRequest:
        return CreateAclsRequest(
            creations=[
                make(**{**GOOD, "resource_name": f"t{n}"}) for n in range(first, first + count)
            ]
        )

    answer = await node.request(several(0, 10_001))
    assert {r.error_code for r in answer.results} == {ErrorCode.POLICY_VIOLATION}
    assert node.publisher.image.security.acls == {}
    await node.request(several(0, 10_000))
    await node.request(several(10_000, 1))
    wanted = DeleteAclsRequest.DeleteAclsFilter(**AclQuery().filter_fields())
    of_topic = AclQuery(ResourceType.TOPIC, "t7", PatternType.LITERAL)
    other = DeleteAclsRequest.DeleteAclsFilter(**of_topic.filter_fields() | {"operation": 77})
    answer = await node.request(DeleteAclsRequest(filters=[wanted, other]))
    texts = [result.error_message for result in answer.filter_results]
    assert texts == [
        "Cannot remove more than 10000 acls in a single delete operation.",
        "Unknown entryFilter.",
    ]
    assert len(node.publisher.image.security.acls) == 10_001
