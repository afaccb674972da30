"""The handler tables: which function answers which API on a broker's listeners."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from spindle.broker.context import RequestContext
from spindle.broker.handlers.api_versions import api_rows, api_versions
from spindle.broker.handlers.client_quotas import describe_client_quotas
from spindle.broker.handlers.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from spindle.broker.handlers.delete_records import delete_records
from spindle.broker.handlers.describe_cluster import describe_cluster
from spindle.broker.handlers.describe_producers import describe_producers
from spindle.broker.handlers.describe_security import (
    describe_acls,
    describe_user_scram_credentials,
)
from spindle.broker.handlers.describe_topic_partitions import describe_topic_partitions
from spindle.broker.handlers.fetch import fetch
from spindle.broker.handlers.groups import (
    handle_delete_groups,
    handle_describe_groups,
    handle_find_coordinator,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_list_groups,
    handle_sync_group,
)
from spindle.broker.handlers.init_producer_id import init_producer_id
from spindle.broker.handlers.log_dirs import alter_replica_log_dirs, describe_log_dirs
from spindle.broker.handlers.metadata import metadata
from spindle.broker.handlers.offsets import (
    handle_offset_commit,
    handle_offset_delete,
    handle_offset_fetch,
)
from spindle.broker.handlers.offsets_of_logs import list_offsets, offset_for_leader_epoch
from spindle.broker.handlers.produce import produce
from spindle.broker.ports import CATCH_UP_S
from spindle.broker.services import BrokerServices
from spindle.common.errors import ApiError
from spindle.controller.error_answers import error_answer
from spindle.controller.operations import OPERATIONS
from spindle.metadata.features import SUPPORTED_FEATURES
from spindle.protocol.api import APIS
from spindle.protocol.message import Message
from spindle.runtime.network.server import Handler

_LOCAL: Final[dict[int, Any]] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    8: handle_offset_commit,
    9: handle_offset_fetch,
    10: handle_find_coordinator,
    11: handle_join_group,
    12: handle_heartbeat,
    13: handle_leave_group,
    14: handle_sync_group,
    15: handle_describe_groups,
    16: handle_list_groups,
    21: delete_records,
    22: init_producer_id,
    23: offset_for_leader_epoch,
    29: describe_acls,
    32: describe_configs,
    33: alter_configs,
    34: alter_replica_log_dirs,
    35: describe_log_dirs,
    42: handle_delete_groups,
    44: incremental_alter_configs,
    47: handle_offset_delete,
    48: describe_client_quotas,
    50: describe_user_scram_credentials,
    60: describe_cluster,
    61: describe_producers,
    74: list_config_resources,
    75: describe_topic_partitions,
}
_QUORUM_FORWARDED: Final = (55, 80, 81)
_API_VERSIONS: Final = 18
_OF_REPLICAS: Final = (2, 21, 23, 34, 35, 61)
"""Of replicas, beside Produce and Fetch, which wait only for the ones they need."""


def broker_handlers(
    services: BrokerServices, kraft_version: Callable[[], int]
) -> dict[int, Handler]:
    """Handlers by API key, for a listener that clients use."""
    handlers: dict[int, Handler] = {
        key: partial(function, services) for key, function in _LOCAL.items()
    }
    for key in _OF_REPLICAS:
        handlers[key] = partial(_when_caught_up, services, _LOCAL[key])
    for key in (*OPERATIONS, *_QUORUM_FORWARDED):
        if APIS[key].is_forwarded and APIS[key].on_broker and key not in handlers:
            handlers[key] = partial(_forward, services)
    rows = api_rows((*handlers, _API_VERSIONS))

    def versions(context: RequestContext, request: Any) -> Message:
        image = services.metadata.image
        return api_versions(context, request, rows, SUPPORTED_FEATURES, image, kraft_version())

    handlers[_API_VERSIONS] = versions
    return handlers


async def _forward(services: BrokerServices, context: RequestContext, request: Message) -> Message:
    """The active controller decides (KIP-590)."""
    try:
        response: Message = await services.controller.request(context.api_key, request, context)
    except ApiError as error:
        return error_answer(request, error)
    return response


async def _when_caught_up(
    services: BrokerServices, function: Any, context: RequestContext, request: Message
) -> Message:
    """Whoever created a topic a moment ago finds its replicas in place."""
    if services.metadata.is_behind:
        await services.metadata.catch_up(CATCH_UP_S)
    response: Message = await function(services, context, request)
    return response
