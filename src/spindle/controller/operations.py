"""The table of controller APIs: the decision function of each request."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from spindle.authorization.access import FULL_ACCESS, Access
from spindle.authorization.operations import Operation as Right
from spindle.authorization.operations import ResourceType
from spindle.common.errors import ErrorCode
from spindle.controller.acls import create_acls, delete_acls
from spindle.controller.alter_partition import alter_partition
from spindle.controller.broker_heartbeat import process_heartbeat
from spindle.controller.broker_registration_requests import (
    register_broker,
    register_controller,
    unregister_broker,
    unregister_controller,
)
from spindle.controller.broker_sessions import BrokerHeartbeatManager
from spindle.controller.configs import alter_configs, incremental_alter_configs
from spindle.controller.create_topics import create_topics
from spindle.controller.decision import (
    ChargePartitions,
    ControllerContext,
    Decision,
    no_quota,
)
from spindle.controller.delegation_tokens import (
    Requester,
    create_delegation_token,
    expire_delegation_token,
    owner_of,
    refusal,
    refused_login,
    renew_delegation_token,
)
from spindle.controller.directories import assign_replicas_to_dirs
from spindle.controller.elections import elect_leaders
from spindle.controller.feature_updates import update_features
from spindle.controller.producer_ids import allocate_producer_ids
from spindle.controller.quotas import alter_client_quotas
from spindle.controller.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from spindle.controller.scram import alter_user_scram_credentials
from spindle.controller.topics import create_partitions, delete_topics
from spindle.metadata.image import MetadataImage
from spindle.protocol.api import ApiKey
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest


@dataclass(frozen=True, slots=True)
class OperationContext:
    """The inputs of a decision. `image` includes records that are not committed yet."""

    image: MetadataImage
    heartbeats: BrokerHeartbeatManager
    context: ControllerContext
    api_version: int
    next_write_offset: int
    now_ms: int
    kraft_version: int
    wall_clock_ms: int
    is_own_process: bool
    """The request comes from the broker in this process."""
    is_forwarded: bool
    """A broker has already checked the request; False if a client sent it to a controller."""
    requester: Requester
    charge: ChargePartitions = no_quota
    access: Access = FULL_ACCESS
    """The rights of the sender; the rights for the whole request have already been checked."""
    unresolved_hosts: Collection[str] = ()
    """Host names in the request that could not be resolved."""


Operation = Callable[[OperationContext, Any], Decision[Any]]


def _may_create(given: OperationContext, request: Any) -> bool:
    """Return False if the sender has no right to create a token for this owner."""
    if not isinstance(request, CreateDelegationTokenRequest):
        return True
    owner = owner_of(request, given.requester)
    if owner == given.requester.principal:
        return True
    return given.access.allows(Right.CREATE_TOKENS, ResourceType.USER, owner)


def _token_operation(decide: Callable[..., Decision[Any]]) -> Operation:
    """Return the operation with a decision about delegation tokens.

    A broker has checked the client's login before; a client of a controller is checked here.
    """

    def operation(given: OperationContext, request: Any) -> Decision[Any]:
        refused = refused_login(request, given.requester)
        if refused is not None:
            return Decision(refused)
        if not _may_create(given, request):
            code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            return Decision(refusal(request, given.requester, code))
        return decide(given.image, request, given.requester, given.context, given.wall_clock_ms)

    return operation


OPERATIONS: Final[dict[int, Operation]] = {
    ApiKey.CREATE_TOPICS: lambda s, r: create_topics(s.image, r, s.context, s.charge, s.access),
    ApiKey.DELETE_TOPICS: lambda s, r: delete_topics(s.image, r, s.context, s.charge, s.access),
    ApiKey.CREATE_ACLS: lambda s, r: create_acls(s.image, r, s.context),
    ApiKey.DELETE_ACLS: lambda s, r: delete_acls(s.image, r, s.context),
    ApiKey.ALTER_CONFIGS: lambda s, r: alter_configs(
        s.image, r, s.context, is_forwarded=s.is_forwarded, access=s.access
    ),
    ApiKey.CREATE_PARTITIONS: lambda s, r: create_partitions(
        s.image, r, s.context, s.charge, s.access
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: _token_operation(create_delegation_token),
    ApiKey.RENEW_DELEGATION_TOKEN: _token_operation(renew_delegation_token),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _token_operation(expire_delegation_token),
    ApiKey.ELECT_LEADERS: lambda s, r: elect_leaders(s.image, r, s.context),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda s, r: incremental_alter_configs(
        s.image, r, s.context, is_forwarded=s.is_forwarded, access=s.access
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda s, r: alter_partition_reassignments(
        s.image, r, s.context
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda s, r: list_partition_reassignments(s.image, r),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda s, r: alter_client_quotas(s.image, r, s.unresolved_hosts),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda s, r: alter_user_scram_credentials(s.image, r),
    ApiKey.ALTER_PARTITION: lambda s, r: alter_partition(s.image, r, s.context),
    ApiKey.UPDATE_FEATURES: lambda s, r: update_features(
        s.image, r, s.context, version=s.api_version, kraft_version=s.kraft_version
    ),
    ApiKey.BROKER_REGISTRATION: lambda s, r: register_broker(
        s.image,
        s.heartbeats,
        r,
        s.context,
        version=s.api_version,
        next_write_offset=s.next_write_offset,
        now_ms=s.now_ms,
        kraft_version=s.kraft_version,
        is_own_process=s.is_own_process and r.broker_id == s.context.settings.node_id,
    ),
    ApiKey.BROKER_HEARTBEAT: lambda s, r: process_heartbeat(s.image, s.heartbeats, r, s.context),
    ApiKey.UNREGISTER_BROKER: lambda s, r: unregister_broker(s.image, s.heartbeats, r, s.context),
    ApiKey.UNREGISTER_CONTROLLER: lambda s, r: unregister_controller(
        s.image, r, s.context.settings.node_id
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: lambda s, r: allocate_producer_ids(s.image, r),
    ApiKey.CONTROLLER_REGISTRATION: lambda s, r: register_controller(
        s.image, r, kraft_version=s.kraft_version
    ),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda s, r: assign_replicas_to_dirs(s.image, r, s.context),
}
"""By API key. A decision raises `ApiError` for a request that it refuses as a whole."""
