"""The handler table: the function that answers each API on a broker's listeners."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from spindle.common.errors import ApiError
from spindle.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from spindle.controller.delegation_tokens import TokenRequest
from spindle.controller.error_responses import error_answer
from spindle.controller.operations import OPERATIONS
from spindle.protocol.api import APIS, ApiKey
from spindle.protocol.message import Message
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.serving.context import Handler, RequestContext
from spindle.serving.handlers.alter_configs import alter_configs, incremental_alter_configs
from spindle.serving.handlers.alter_disks import alter_disks
from spindle.serving.handlers.api_versions import AnsweringBroker, answer_of_listener
from spindle.serving.handlers.client_quotas import describe_client_quotas
from spindle.serving.handlers.committed_offsets import (
    handle_offset_commit,
    handle_offset_delete,
    handle_offset_fetch,
)
from spindle.serving.handlers.delegation_tokens import (
    describe_delegation_token,
    refused_token_request,
)
from spindle.serving.handlers.delete_records import delete_records
from spindle.serving.handlers.describe_cluster import describe_cluster
from spindle.serving.handlers.describe_configs import describe_configs, list_config_resources
from spindle.serving.handlers.describe_disks import describe_disks
from spindle.serving.handlers.describe_producers import describe_producers
from spindle.serving.handlers.describe_security import (
    describe_acls,
    describe_user_scram_credentials,
)
from spindle.serving.handlers.describe_topic_partitions import describe_topic_partitions
from spindle.serving.handlers.fetch import fetch
from spindle.serving.handlers.groups import (
    handle_consumer_group_describe,
    handle_consumer_group_heartbeat,
    handle_delete_groups,
    handle_describe_groups,
    handle_find_coordinator,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_list_groups,
    handle_sync_group,
)
from spindle.serving.handlers.init_producer_id import init_producer_id
from spindle.serving.handlers.list_offsets import list_offsets, offset_for_leader_epoch
from spindle.serving.handlers.log_dirs import alter_replica_log_dirs, describe_log_dirs
from spindle.serving.handlers.metadata import metadata
from spindle.serving.handlers.produce import produce
from spindle.serving.handlers.rebuild_replicas import rebuild_replicas
from spindle.serving.handlers.sasl import sasl_authenticate, sasl_handshake
from spindle.serving.handlers.share_fetch import share_acknowledge, share_fetch
from spindle.serving.handlers.share_groups import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from spindle.serving.handlers.share_state import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from spindle.serving.handlers.telemetry import get_telemetry_subscriptions, push_telemetry
from spindle.serving.handlers.transactional_offsets import handle_txn_offset_commit
from spindle.serving.handlers.transactions import (
    handle_add_offsets,
    handle_add_partitions,
    handle_describe_transactions,
    handle_end_transaction,
    handle_list_transactions,
)
from spindle.serving.handlers.write_txn_markers import write_txn_markers
from spindle.serving.ports import CATCH_UP_S
from spindle.serving.services import BrokerServices
from spindle.serving.telemetry.otlp import can_read

_LOCAL: Final[dict[int, Any]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: handle_add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: handle_add_offsets,
    ApiKey.END_TXN: handle_end_transaction,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.TXN_OFFSET_COMMIT: handle_txn_offset_commit,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: handle_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: handle_consumer_group_describe,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.OFFSET_DELETE: handle_offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: handle_list_transactions,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: share_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: share_group_describe,
    ApiKey.SHARE_FETCH: share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: share_acknowledge,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: initialize_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE: read_share_group_state,
    ApiKey.WRITE_SHARE_GROUP_STATE: write_share_group_state,
    ApiKey.DELETE_SHARE_GROUP_STATE: delete_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: read_share_group_state_summary,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: describe_share_group_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: delete_share_group_offsets,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: push_telemetry,
    ApiKey.DESCRIBE_DISKS: describe_disks,
    ApiKey.ALTER_DISKS: alter_disks,
    ApiKey.REBUILD_REPLICAS: rebuild_replicas,
}
_QUORUM_FORWARDED: Final = (
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
_REPLICA_APIS: Final[tuple[int, ...]] = (
    ApiKey.LIST_OFFSETS,
    ApiKey.DELETE_RECORDS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.ALTER_DISKS,
    ApiKey.REBUILD_REPLICAS,
)
"""Requests about replicas: they wait until the replicas have followed the metadata. Produce and
Fetch are excluded, because they wait only for the replicas that they name."""
_COORDINATOR_TOPICS: Final[dict[int, str]] = {
    ApiKey.OFFSET_COMMIT: OFFSETS_TOPIC,
    ApiKey.OFFSET_FETCH: OFFSETS_TOPIC,
    ApiKey.JOIN_GROUP: OFFSETS_TOPIC,
    ApiKey.HEARTBEAT: OFFSETS_TOPIC,
    ApiKey.LEAVE_GROUP: OFFSETS_TOPIC,
    ApiKey.SYNC_GROUP: OFFSETS_TOPIC,
    ApiKey.DESCRIBE_GROUPS: OFFSETS_TOPIC,
    ApiKey.DELETE_GROUPS: OFFSETS_TOPIC,
    ApiKey.OFFSET_DELETE: OFFSETS_TOPIC,
    ApiKey.TXN_OFFSET_COMMIT: OFFSETS_TOPIC,
    ApiKey.SHARE_GROUP_HEARTBEAT: OFFSETS_TOPIC,
    ApiKey.SHARE_GROUP_DESCRIBE: OFFSETS_TOPIC,
    ApiKey.ADD_PARTITIONS_TO_TXN: TRANSACTIONS_TOPIC,
    ApiKey.ADD_OFFSETS_TO_TXN: TRANSACTIONS_TOPIC,
    ApiKey.END_TXN: TRANSACTIONS_TOPIC,
    ApiKey.DESCRIBE_TRANSACTIONS: TRANSACTIONS_TOPIC,
}
"""Requests to the broker that FindCoordinator named, with the topic of that coordinator."""
_OF_TOKENS: Final = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
)
_OF_TELEMETRY: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
_COORDINATOR_WAIT_S: Final = 1.0


def broker_handlers(
    services: BrokerServices, kraft_version: Callable[[], int]
) -> dict[int, Handler]:
    """Return the handlers by API key, for a listener that clients use."""
    handlers: dict[int, Handler] = {
        key: partial(function, services) for key, function in _LOCAL.items()
    }
    if not can_read():
        # A client pushes only to brokers that offer it, so nothing is thrown away in silence.
        for api in _OF_TELEMETRY:
            del handlers[api]
    for key in _REPLICA_APIS:
        handlers[key] = partial(_when_caught_up, services, _LOCAL[key])
    for key, topic in _COORDINATOR_TOPICS.items():
        handlers[key] = partial(_when_there_are_coordinators, services, topic, _LOCAL[key])
    handlers[ApiKey.INIT_PRODUCER_ID] = partial(_when_transactions_exist, services)
    for key in (*OPERATIONS, *_QUORUM_FORWARDED):
        if APIS[key].is_forwarded and APIS[key].on_broker and key not in handlers:
            handlers[key] = partial(_forward, services)
    handlers[ApiKey.SASL_HANDSHAKE] = sasl_handshake
    handlers[ApiKey.SASL_AUTHENTICATE] = sasl_authenticate
    for key in _OF_TOKENS:
        handlers[key] = partial(_forward_of_tokens, services)
    handlers[ApiKey.API_VERSIONS] = answer_of_listener(
        handlers,
        lambda: services.metadata.image,
        kraft_version,
        AnsweringBroker(services.cluster_id, services.node_id),
    )
    return handlers


async def _forward(services: BrokerServices, context: RequestContext, request: Message) -> Message:
    """Forward the request to the active controller (KIP-590)."""
    try:
        response: Message = await services.controller.request(request, context)
    except ApiError as error:
        return error_answer(request, error)
    return response


async def _forward_of_tokens(
    services: BrokerServices, context: RequestContext, request: TokenRequest
) -> Message:
    return refused_token_request(services, context, request) or await _forward(
        services, context, request
    )


async def _when_caught_up(
    services: BrokerServices, function: Any, context: RequestContext, request: Message
) -> Message:
    """Answer when the replicas of recently created topics exist."""
    if services.metadata.is_behind:
        await services.metadata.catch_up(CATCH_UP_S)
    response: Message = await function(services, context, request)
    return response


async def _when_there_are_coordinators(
    services: BrokerServices,
    topic: str,
    function: Any,
    context: RequestContext,
    request: Message,
) -> Message:
    """Answer when the coordinators' topic is in this broker's metadata, or after one second.

    Another broker, with newer metadata, has named this one as the cluster's first coordinator. Some
    clients give up if they then get NOT_COORDINATOR.
    """
    if topic not in services.metadata.image.topics.by_name:
        await services.metadata.wait_for(
            lambda image: topic in image.topics.by_name, _COORDINATOR_WAIT_S
        )
    response: Message = await function(services, context, request)
    return response


async def _when_transactions_exist(
    services: BrokerServices, context: RequestContext, request: InitProducerIdRequest
) -> Message:
    """Answer a transactional producer like other requests of its coordinator."""
    if request.transactional_id is None:
        return await init_producer_id(services, context, request)
    return await _when_there_are_coordinators(
        services, TRANSACTIONS_TOPIC, init_producer_id, context, request
    )
