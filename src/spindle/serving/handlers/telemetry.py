"""GetTelemetrySubscriptions and PushTelemetry (KIP-714)."""

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import ZERO_UUID, is_reserved_directory_id
from spindle.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from spindle.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from spindle.protocol.records.compression import Codec
from spindle.serving.context import RequestContext
from spindle.serving.services import BrokerServices

_ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In the order in which clients are to prefer them, as Kafka lists them."""


def _properties(context: RequestContext) -> dict[str, str]:
    """Return the properties of a client by the names that subscriptions use in `match`."""
    return {
        "client_id": context.client_id,
        "client_software_name": context.client_software_name,
        "client_software_version": context.client_software_version,
        "client_source_address": context.client_address,
        "client_source_port": str(context.client_port),
    }


def get_telemetry_subscriptions(
    services: BrokerServices, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Answer which metrics the client is to push, and how often."""
    telemetry = services.telemetry
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = telemetry.new_instance_id()
    try:
        subscription = telemetry.ask(instance_id, _properties(context))
    except ApiError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    if context.when_lost is not None:
        # One key, because a client may ask with a new id each time. It is one client, with one id.
        context.when_lost("telemetry", lambda: telemetry.clients.forget(instance_id))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(_ACCEPTED_CODECS),
        push_interval_ms=subscription.push_interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )


def push_telemetry(
    services: BrokerServices, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Take the metrics that the client pushes."""
    if is_reserved_directory_id(request.client_instance_id):
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        services.telemetry.push(request, _properties(context))
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
