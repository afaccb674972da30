"""The rights that requests to a controller need (KIP-801, KIP-590), the same as in Kafka.

Some requests need a right on the cluster as a whole. Others name topics or other resources, and
apply only to those that the sender is authorized for.
"""

from collections.abc import Mapping
from typing import Final

from spindle.authorization.access import Access
from spindle.authorization.operations import CLUSTER_NAME, Operation, ResourceType
from spindle.common.errors import ApiError, ErrorCode
from spindle.metadata.configs import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigResource,
)
from spindle.protocol.api import ApiKey

CLUSTER_OPERATIONS: Final[Mapping[int, Operation]] = {
    ApiKey.FETCH: Operation.CLUSTER_ACTION,
    ApiKey.FETCH_SNAPSHOT: Operation.CLUSTER_ACTION,
    ApiKey.VOTE: Operation.CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: Operation.CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: Operation.CLUSTER_ACTION,
    ApiKey.UPDATE_RAFT_VOTER: Operation.CLUSTER_ACTION,
    ApiKey.ENVELOPE: Operation.CLUSTER_ACTION,
    ApiKey.ALTER_PARTITION: Operation.CLUSTER_ACTION,
    ApiKey.BROKER_REGISTRATION: Operation.CLUSTER_ACTION,
    ApiKey.BROKER_HEARTBEAT: Operation.CLUSTER_ACTION,
    ApiKey.CONTROLLER_REGISTRATION: Operation.CLUSTER_ACTION,
    ApiKey.ALLOCATE_PRODUCER_IDS: Operation.CLUSTER_ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Operation.CLUSTER_ACTION,
    ApiKey.ADD_RAFT_VOTER: Operation.ALTER,
    ApiKey.REMOVE_RAFT_VOTER: Operation.ALTER,
    ApiKey.CREATE_ACLS: Operation.ALTER,
    ApiKey.DELETE_ACLS: Operation.ALTER,
    ApiKey.ELECT_LEADERS: Operation.ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Operation.ALTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Operation.ALTER,
    ApiKey.UNREGISTER_BROKER: Operation.ALTER,
    ApiKey.UNREGISTER_CONTROLLER: Operation.ALTER,
    ApiKey.UPDATE_FEATURES: Operation.ALTER,
    ApiKey.DESCRIBE_CLUSTER: Operation.ALTER,
    ApiKey.ALTER_CLIENT_QUOTAS: Operation.ALTER_CONFIGS,
    ApiKey.DESCRIBE_QUORUM: Operation.DESCRIBE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Operation.DESCRIBE,
    ApiKey.DESCRIBE_ACLS: Operation.DESCRIBE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Operation.DESCRIBE,
}
"""The right on the cluster that a whole request of this API needs on a controller."""

CHECKED_BY_RESOURCE: Final = frozenset(
    (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    )
)
"""APIs whose requests need no right as a whole: each resource is checked, or none is."""


def check_request(access: Access) -> None:
    """Refuse a request whose sender lacks the right that the whole request needs.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
    """
    operation = CLUSTER_OPERATIONS.get(access.api_key)
    if operation is not None:
        access.check_cluster(operation)
    elif access.api_key not in CHECKED_BY_RESOURCE:
        # An API that neither table names needs ALTER on the cluster until it gets a row.
        access.check_cluster(Operation.ALTER)


def check_alter_configs(access: Access, resource: ConfigResource) -> None:
    """Refuse a sender that may not change the configuration of a resource.

    Raises:
        ApiError: the AUTHORIZATION_FAILED of the kind of resource.
    """
    kind = resource.resource_type
    if kind in (BROKER_RESOURCE, CLIENT_METRICS_RESOURCE):
        where, name, text = ResourceType.CLUSTER, CLUSTER_NAME, "Cluster authorization failed."
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif kind == TOPIC_RESOURCE:
        where, name, text = ResourceType.TOPIC, resource.name, "Topic authorization failed."
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif kind == GROUP_RESOURCE:
        where, name, text = ResourceType.GROUP, resource.name, "Group authorization failed."
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        return
    if not access.allows(Operation.ALTER_CONFIGS, where, name):
        raise ApiError(code, text)
