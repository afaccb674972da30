"""The table of controller APIs: the decision function of each request."""

from collections.abc import Callable
from typing import Any, Final

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
from spindle.controller.configs import alter_configs, incremental_alter_configs
from spindle.controller.create_topics import create_topics
from spindle.controller.decision import Decision, OperationContext
from spindle.controller.delegation_tokens import (
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
from spindle.protocol.api import ApiKey
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest

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
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: _token_operation(create_delegation_token),
    ApiKey.RENEW_DELEGATION_TOKEN: _token_operation(renew_delegation_token),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _token_operation(expire_delegation_token),
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    ApiKey.ALTER_PARTITION: alter_partition,
    ApiKey.UPDATE_FEATURES: update_features,
    ApiKey.BROKER_REGISTRATION: register_broker,
    ApiKey.BROKER_HEARTBEAT: process_heartbeat,
    ApiKey.UNREGISTER_BROKER: unregister_broker,
    ApiKey.UNREGISTER_CONTROLLER: unregister_controller,
    ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
    ApiKey.CONTROLLER_REGISTRATION: register_controller,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: assign_replicas_to_dirs,
}
"""By API key. A decision raises `ApiError` for a request that it refuses as a whole."""
