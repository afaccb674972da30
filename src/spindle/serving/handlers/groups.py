"""FindCoordinator and the APIs of groups and their members.

Each handler converts a request of any version into one form, calls the group coordinator, and
converts its result into the version of the request.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import (
    NO_LEADER,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    Endpoint,
)
from spindle.coordinator.classic.rebalance import join_error
from spindle.coordinator.coordinator_result import Client
from spindle.coordinator.partitioning import partition_for
from spindle.coordinator.ports import GroupCoordinatorPort
from spindle.protocol import versions
from spindle.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from spindle.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from spindle.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from spindle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.replica_manager import ReplicaManager
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.permissions import (
    Guarded,
    check_cluster,
    check_group,
    check_transactional_id,
    group_operations,
    may_use_cluster,
    may_use_group,
    may_use_topic,
)
from spindle.serving.ports import TransactionVerification
from spindle.serving.unsupported_feature_log import RefusalLog, warn_of_no_transactions_topic

COORDINATOR_TOPICS: Final = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC, 2: SHARE_STATE_TOPIC}
"""Topics by the key type of FindCoordinator."""

_SHARE_KEY_COLONS: Final = 2
_REFUSED_JOINS: Final = (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_SESSION_TIMEOUT)
"""JoinGroup with these errors is refused before the group sees it."""
_HIDDEN_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)

_DescribedGroup = DescribeGroupsResponse.DescribedGroup
_DescribedConsumers = ConsumerGroupDescribeResponse.DescribedGroup
_DeletedGroup = DeleteGroupsResponse.DeletableGroupResult


class GroupServices(Guarded, Protocol):
    """The parts of a broker that these handlers use."""

    @property
    def groups(self) -> GroupCoordinatorPort: ...
    @property
    def verification(self) -> TransactionVerification: ...
    @property
    def replicas(self) -> ReplicaManager: ...
    @property
    def metadata(self) -> MetadataView: ...
    @property
    def refusals(self) -> RefusalLog: ...

    async def ensure_internal_topic(self, name: str) -> None:
        """Create the internal topic if necessary; return when it exists or cannot be created."""
        ...


def client_of(context: RequestContext) -> Client:
    """Return the client of a request in the form that the coordinator stores."""
    return Client(context.client_id, f"/{context.client_address}", context.api_version)


# ---------------------------------------------------------------- FindCoordinator


async def handle_find_coordinator(
    services: GroupServices, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Answer with the leader of the internal partition to which each key belongs."""
    is_batched = context.api_version >= versions.FIND_COORDINATOR_BATCHED
    topic = COORDINATOR_TOPICS.get(request.key_type)
    coordinators = []
    is_topic_due = topic is not None
    async for key in cooperatively(request.coordinator_keys if is_batched else [request.key]):
        coordinator = FindCoordinatorResponse.Coordinator(key=key, node_id=-1, port=-1)
        try:
            _check_key(services, context, topic, key)
            if is_topic_due and topic is not None:
                # Once for all keys, because it takes some time if the topic cannot be created.
                await _ensure_topic(services, context, topic, key)
                is_topic_due = False
            coordinator.node_id, endpoint = _find(services, context, request.key_type, key)
            coordinator.host, coordinator.port = endpoint.host, endpoint.port
        except ApiError as error:
            coordinator.error_code, coordinator.error_message = error.code, error.message
        coordinators.append(coordinator)
    if is_batched:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    has_failed = only.error_code != ErrorCode.NONE
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message if has_failed else ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _ensure_topic(
    services: GroupServices, context: RequestContext, topic: str, key: str
) -> None:
    """Create the coordinators' topic if it does not exist."""
    if topic in services.metadata.image.topics.by_name:
        return
    await services.ensure_internal_topic(topic)
    if topic == TRANSACTIONS_TOPIC and topic not in services.metadata.image.topics.by_name:
        warn_of_no_transactions_topic(services.refusals, context, key)


def _check_key(
    services: GroupServices, context: RequestContext, topic: str | None, key: str
) -> None:
    """Raise unless the sender may describe the group or transactional id."""
    if topic == OFFSETS_TOPIC:
        check_group(services, context, Operation.DESCRIBE, key)
    elif topic == TRANSACTIONS_TOPIC:
        check_transactional_id(services, context, Operation.DESCRIBE, key)
    elif topic == SHARE_STATE_TOPIC:
        check_cluster(services, context, Operation.CLUSTER_ACTION)
        if key.count(":") < _SHARE_KEY_COLONS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the key {key!r} is not of the form group:topic id:partition",
            )


def _find(
    services: GroupServices, context: RequestContext, key_type: int, key: str
) -> tuple[int, Endpoint]:
    name = COORDINATOR_TOPICS.get(key_type)
    if name is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not served")
    image = services.metadata.image
    topic = image.topics.by_name.get(name)
    if topic is None:
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{name} is not created yet: too few brokers are registered for its replication "
            "factor, or it is being created now",
        )
    if topic.partitions:
        partition = topic.partitions.get(partition_for(key, len(topic.partitions)))
        leader = NO_LEADER if partition is None else partition.leader
        broker = image.cluster.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoint(context.listener)
        if broker is not None and not broker.is_fenced and endpoint is not None:
            return leader, endpoint
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no leader of {name} for {key!r} yet")


# ---------------------------------------------------------------- members


async def handle_join_group(
    services: GroupServices, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Join a group; the response is sent when the group's join phase ends."""
    if context.api_version < versions.JOIN_GROUP_REBALANCE_TIMEOUT:
        request.rebalance_timeout_ms = request.session_timeout_ms
    try:
        check_group(services, context, Operation.READ, request.group_id)
        response = await services.groups.join_group(request, client_of(context))
    except ApiError as error:
        # Where the group refuses the member, Kafka names no member.
        is_named = error.code in _REFUSED_JOINS
        response = join_error(error.code, request.member_id if is_named else "")
    # Without a protocol, the field is empty before version 7 and null since then.
    if context.api_version < versions.JOIN_GROUP_NULLABLE_PROTOCOL:
        response.protocol_name = response.protocol_name or ""
    else:
        response.protocol_name = response.protocol_name or None
    return response


async def handle_sync_group(
    services: GroupServices, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse:
    """Sync a member; the response is sent when the leader's assignment is stored."""
    if context.api_version >= versions.SYNC_GROUP_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        check_group(services, context, Operation.READ, request.group_id)
        return await services.groups.sync_group(request)
    except ApiError as error:
        return SyncGroupResponse(error_code=error.code)


async def handle_heartbeat(
    services: GroupServices, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    """Handle a Heartbeat. While the group is being loaded, the response has no error."""
    try:
        check_group(services, context, Operation.READ, request.group_id)
        return await services.groups.heartbeat(request)
    except ApiError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()
        return HeartbeatResponse(error_code=error.code)


async def handle_leave_group(
    services: GroupServices, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Remove members from a group: one before version 3, any number since then."""
    is_batched = context.api_version >= versions.LEAVE_GROUP_BATCHED
    if not is_batched:
        request.members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
    try:
        check_group(services, context, Operation.READ, request.group_id)
        response = await services.groups.leave_group(request)
    except ApiError as error:
        response = _leave_error(request, error.code)
    if is_batched or response.error_code != ErrorCode.NONE:
        return response
    return LeaveGroupResponse(error_code=response.members[0].error_code)


def _leave_error(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    if code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=code)
    # The group does not exist, so no member belongs to it.
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member in request.members
        ]
    )


async def handle_consumer_group_heartbeat(
    services: GroupServices, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Handle a heartbeat of the consumer protocol (KIP-848), which also joins and leaves."""
    try:
        check_group(services, context, Operation.READ, request.group_id)
        if not _may_describe_all(services, context, request.subscribed_topic_names or ()):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return await services.groups.consumer_heartbeat(request, _member_client(services, context))
    except ApiError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _member_client(services: GroupServices, context: RequestContext) -> Client:
    """Return the sender; its regular expression finds only topics that it may describe."""
    client = client_of(context)
    if not services.authorizer.is_active:
        return client
    return client._replace(
        may_describe=lambda topic: may_use_topic(
            services, context, Operation.DESCRIBE, topic, is_logged=False
        )
    )


def _may_describe_all(
    services: GroupServices, context: RequestContext, topics: Iterable[str]
) -> bool:
    return not services.authorizer.is_active or all(
        may_use_topic(services, context, Operation.DESCRIBE, name) for name in dict.fromkeys(topics)
    )


# ---------------------------------------------------------------- groups


async def handle_consumer_group_describe(
    services: GroupServices, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe consumer groups with their members and both assignments."""
    denied, groups = [], []
    async for group_id in cooperatively(dict.fromkeys(request.group_ids)):
        if not may_use_group(services, context, Operation.DESCRIBE, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied.append(_DescribedConsumers(group_id=group_id, error_code=code))
            continue
        for group in services.groups.describe_consumer_groups([group_id]):
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(services, context, group.group_id)
            groups.append(_without_hidden_topics(services, context, group))
    return ConsumerGroupDescribeResponse(groups=denied + groups)


def _without_hidden_topics(
    services: GroupServices, context: RequestContext, group: _DescribedConsumers
) -> _DescribedConsumers:
    """Return an error for a group with partitions of a topic that the sender may not describe."""
    topics = (
        assigned.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for assigned in assignment.topic_partitions
    )
    if _may_describe_all(services, context, topics):
        return group
    return _DescribedConsumers(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message=_HIDDEN_TOPICS,
    )


async def handle_describe_groups(
    services: GroupServices, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe groups with state and members, and since version 3 the authorized operations."""
    denied, groups = [], []
    # Describe each group once, because a group with many members is large.
    async for group_id in cooperatively(dict.fromkeys(request.groups)):
        if may_use_group(services, context, Operation.DESCRIBE, group_id):
            groups += services.groups.describe_groups([group_id], context.api_version)
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied.append(_DescribedGroup(group_id=group_id, error_code=code))
    if (
        request.include_authorized_operations
        and context.api_version >= versions.DESCRIBE_GROUPS_AUTHORIZED_OPERATIONS
    ):
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(services, context, group.group_id)
    return DescribeGroupsResponse(groups=denied + groups)


async def handle_list_groups(
    services: GroupServices, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups whose coordinator is this broker and that the sender may describe."""
    try:
        response = services.groups.list_groups(request)
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    if not may_use_cluster(services, context, Operation.DESCRIBE, is_logged=False):
        response.groups = [
            group
            for group in response.groups
            if may_use_group(services, context, Operation.DESCRIBE, group.group_id, is_logged=False)
        ]
    return response


async def handle_delete_groups(
    services: GroupServices, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete groups; a group that is named twice is deleted once."""
    names, denied = [], []
    for group_id in dict.fromkeys(request.groups_names):
        if may_use_group(services, context, Operation.DELETE, group_id):
            names.append(group_id)
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied.append(_DeletedGroup(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=await services.groups.delete_groups(names) + denied)
