"""The things that a stranger may neither see nor change, and the rights of the canary.

The names that the case maker sends (`fuzz-0`, `fuzz-group-a`, ...) exist, so that a request without
a right would have an effect. Others are hidden: no request names them, so an answer that contains
one of these texts has shown something.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from spindle.authorization.operations import Operation, PatternType, Permission, ResourceType
from spindle.common.errors import ErrorCode
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.create_acls import CreateAclsRequest
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from verification.fuzz.secured.users import CANARY
from verification.fuzz.values import GROUPS, TOPICS, TRANSACTIONAL_IDS
from verification.fuzz.wire import Finding, RawConnection

HIDDEN_TOPIC: Final = "hidden-topic"
HIDDEN_GROUP: Final = "hidden-group"
_HIDDEN_CONFIG: Final = "86399973123"
_HIDDEN_TEXT: Final = "hidden-text"
_HIDDEN_USER: Final = "hidden-user"
HIDDEN_TEXTS: Final = (
    HIDDEN_TOPIC,
    HIDDEN_GROUP,
    _HIDDEN_CONFIG,
    _HIDDEN_TEXT,
    _HIDDEN_USER,
    "canary-",
)
Right = tuple[ResourceType, str, Operation]

_LIMIT_S: Final = 20.0
_PAUSE_S: Final = 0.05
_NAMED: Final = 9
"""A version of Produce and of the APIs of groups that names topics by name."""
_CANARY_RIGHTS: Final = (
    *(
        (ResourceType.TOPIC, topic, operation)
        for topic in ("canary-topic", "canary-transactions")
        for operation in (Operation.CREATE, Operation.WRITE, Operation.READ)
    ),
    (ResourceType.GROUP, "canary-group", Operation.READ),
    (ResourceType.TRANSACTIONAL_ID, CANARY, Operation.WRITE),
)


async def create_fixtures(admin: RawConnection) -> dict[str, bytes]:
    """Create what a stranger may not touch, and give the canary its rights.

    Returns:
        The ids of all topics, by name.

    Raises:
        Finding: the administrator is refused.
    """
    topics = [*TOPICS, HIDDEN_TOPIC]
    await _create_topics(admin, topics)
    for topic in topics:
        await _until(admin, _batch(topic), lambda a: a.responses[0].partition_responses[0], _NAMED)
    for group in (*GROUPS, HIDDEN_GROUP):
        await _find(admin, 0, group)
        await _until(admin, _commit(group), lambda a: a.topics[0].partitions[0], 8)
    for name in TRANSACTIONAL_IDS:
        await _find(admin, 1, name)
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        await _until(admin, init, lambda a: a, 5)
    quota = AlterClientQuotasRequest.EntryData
    entity = quota.EntityData(entity_type="user", entity_name=_HIDDEN_USER)
    values = [quota.OpData(key="producer_byte_rate", value=1e9)]
    await _until(
        admin,
        AlterClientQuotasRequest(entries=[quota(entity=[entity], ops=values)]),
        lambda a: a.entries[0],
    )
    await _until(admin, CreateDelegationTokenRequest(max_lifetime_ms=-1), lambda a: a)
    await grant(admin, _HIDDEN_USER, [(ResourceType.TOPIC, HIDDEN_TOPIC, Operation.READ)])
    await grant(admin, CANARY, _CANARY_RIGHTS)
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    answer = await admin.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    return {topic.name: topic.topic_id for topic in answer.topics}


async def grant(admin: RawConnection, user: str, rights: Sequence[Right]) -> None:
    """Give a user rights. Without an authorizer everything is allowed.

    Raises:
        Finding: the administrator is refused.
    """
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=resource_type,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=Permission.ALLOW,
        )
        for resource_type, name, operation in rights
    ]
    answer = await admin.ask(CreateAclsRequest(creations=creations))
    for result in answer.results:
        if result.error_code != ErrorCode.SECURITY_DISABLED:
            _expect_none("CreateAcls", result.error_code)


async def wait_for_permissions(client: RawConnection) -> None:
    """Wait until the node knows the canary's rights; that to its transactional id is the last.

    Raises:
        Finding: it does not know them after a while.
    """
    await _find(client, 1, CANARY)


async def _create_topics(admin: RawConnection, names: list[str]) -> None:
    topic = CreateTopicsRequest.CreatableTopic
    config = topic.CreatableTopicConfig(name="retention.ms", value=_HIDDEN_CONFIG)
    wanted = [
        topic(name=name, num_partitions=2, replication_factor=1, configs=[config]) for name in names
    ]
    answer = await admin.ask(CreateTopicsRequest(timeout_ms=10_000, topics=wanted))
    for created in answer.topics:
        _expect_none(f"CreateTopics of {created.name}", created.error_code)


def _batch(topic: str) -> ProduceRequest:
    records = build_batch([SimpleRecord(value=_HIDDEN_TEXT.encode())])
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[data(name=topic, partition_data=[part])]
    )


def _commit(group: str) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=_HIDDEN_TEXT
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[topic(name=HIDDEN_TOPIC, partitions=[part])],
    )


async def _find(client: RawConnection, key_type: int, name: str) -> None:
    """Wait for the coordinator of a group (0) or of a transactional id (1)."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
    await _until(client, request, lambda a: a.coordinators[0])


async def _until(client: RawConnection, request: Any, part: Any, version: int | None = None) -> Any:
    """Ask again until an answer has no error; coordinators and rights take a moment."""
    error = ErrorCode.NONE
    try:
        async with asyncio.timeout(_LIMIT_S):
            while True:
                answer = await client.ask(request, version)
                error = ErrorCode(part(answer).error_code)
                if error is ErrorCode.NONE:
                    return answer
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise Finding(f"still {error.name} after {_LIMIT_S:.0f} s: {request!r}") from None


def _expect_none(what: str, error_code: int) -> None:
    if error_code:
        raise Finding(f"{what} as the administrator: {ErrorCode(error_code).name}")
