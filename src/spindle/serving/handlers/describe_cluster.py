"""DescribeCluster: the brokers of the cluster (KIP-700, KIP-919, KIP-1073)."""

from typing import Final

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import NOT_ASKED, cluster_operations
from spindle.serving.services import BrokerServices
from spindle.serving.topology import alive_brokers

BROKERS: Final = 1
CONTROLLERS: Final = 2


def endpoint_type_error(asked: int, served: int) -> DescribeClusterResponse | None:
    """Return the refusal of a request to the wrong kind of listener; None for the right one."""
    if asked == served:
        return None
    if asked in (BROKERS, CONTROLLERS):
        kind, other = ("BROKER", "CONTROLLER") if asked == BROKERS else ("CONTROLLER", "BROKER")
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=f"The request was sent to an endpoint of type {other}, "
            f"but we wanted an endpoint of type {kind}",
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"Unsupported endpoint type {asked}",
    )


def describe_cluster(
    services: BrokerServices, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the brokers as clients of this listener reach them."""
    refusal = endpoint_type_error(request.endpoint_type, BROKERS)
    if refusal is not None:
        return refusal
    image = services.metadata.image
    alive = alive_brokers(image, context.listener)
    rows = [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack
        )
        for broker_id, endpoint, rack in alive
    ]
    if request.include_fenced_brokers:
        for broker_id, broker in sorted(image.cluster.brokers.items()):
            broker_endpoint = broker.endpoint(context.listener)
            if broker.is_fenced and broker_endpoint is not None:
                rows.append(
                    DescribeClusterResponse.DescribeClusterBroker(
                        broker_id=broker_id,
                        host=broker_endpoint.host,
                        port=broker_endpoint.port,
                        rack=broker.rack,
                        is_fenced=True,
                    )
                )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(services, context)
    return DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=alive[services.random.randrange(0, len(alive))][0] if alive else -1,
        brokers=rows,
        cluster_authorized_operations=operations,
    )
