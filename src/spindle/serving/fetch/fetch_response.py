"""Build the response to a fetch from the reads of its partitions; charge quotas, count traffic."""

from collections.abc import Iterable, Mapping

from spindle.common.errors import ErrorCode
from spindle.protocol import versions
from spindle.protocol.codec import encode_parts
from spindle.protocol.messages.fetch import FetchResponse
from spindle.replication.fetch_session import (
    FetchContext,
    FetchedPartition,
    FetchSession,
    PartitionKey,
)
from spindle.serving.context import RequestContext
from spindle.serving.fetch.fetch_states import ReadState
from spindle.serving.fetch.partition_read import (
    FetchRequester,
    PartitionRead,
)
from spindle.serving.services import BrokerServices
from spindle.serving.topology import endpoint_of

_Topic = FetchResponse.FetchableTopicResponse


def fetch_answer(
    services: BrokerServices,
    context: RequestContext,
    fetched: FetchContext,
    fetcher: FetchRequester,
    reads: Mapping[PartitionKey, PartitionRead],
) -> tuple[FetchResponse, list[PartitionRead]]:
    """Return the response and the reads that it contains.

    In a fetch session, the response leaves out unchanged partitions.
    """
    response = FetchResponse(session_id=fetched.session_id)
    topics: dict[tuple[str, bytes], _Topic] = {}
    shown: list[PartitionRead] = []
    by_id = context.api_version >= versions.FETCH_TOPIC_IDS
    leaders: dict[int, None] = {}
    for topic_key, read in reads.items():
        data = read.data
        if fetched.is_incremental and not (data.records or _is_news(read)):
            continue
        shown.append(read)
        name = "" if by_id else read.name
        key = (name, topic_key.topic_id)
        if key not in topics:
            topics[key] = _Topic(topic=name, topic_id=topic_key.topic_id)
            response.responses.append(topics[key])
        topics[key].partitions.append(data)
        if data.current_leader.leader_id >= 0:
            leaders[data.current_leader.leader_id] = None
    if leaders and not fetcher.is_replica:  # a replica knows its leaders from the metadata
        _add_endpoints(services, context, response, leaders)
    return response, shown


def _add_endpoints(
    services: BrokerServices,
    context: RequestContext,
    response: FetchResponse,
    leaders: Iterable[int],
) -> None:
    image = services.metadata.image
    for leader in leaders:
        endpoint = endpoint_of(image, leader, context.listener)
        if endpoint is not None:
            response.node_endpoints.append(
                FetchResponse.NodeEndpoint(
                    node_id=leader,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=image.cluster.brokers[leader].rack,
                )
            )


def _is_news(read: PartitionRead) -> bool:
    """Return True if the response must contain the partition even without records."""
    if read.state is ReadState.AHEAD:
        return False
    data = read.data
    return read.state is ReadState.REFUSED or read.wanted.is_news(
        data.high_watermark, data.log_start_offset
    )


def charge(
    services: BrokerServices,
    context: RequestContext,
    fetcher: FetchRequester,
    response: FetchResponse,
) -> int:
    """Charge the client's quotas; return its throttle time in ms."""
    if fetcher.is_replica or not services.quotas.is_active:
        return 0
    version = context.api_version
    return services.quotas.charge_fetch(
        context, lambda: sum(map(len, encode_parts(response, version)))
    )


def count_consumed(services: BrokerServices, shown: Iterable[PartitionRead]) -> None:
    """Count the bytes a consumer receives per topic."""
    of = services.traffic.of
    for read in shown:
        if read.partition is not None:
            traffic = of(read.name)
            traffic.fetches += 1
            traffic.bytes_out += len(read.data.records or b"")
            traffic.failed_fetches += read.data.error_code != ErrorCode.NONE


def count_replicated(services: BrokerServices, shown: Iterable[PartitionRead]) -> None:
    """Count a follower's records as replicated bytes, and against the leader's throttle."""
    for read in shown:
        size = len(read.data.records or b"")
        services.traffic.replicated_bytes += size
        if size and read.partition is not None and read.partition.is_throttled_as_leader:
            services.leader_throttle.record(size)


def found_bytes(reads: Mapping[PartitionKey, PartitionRead]) -> int:
    """Return the size of the records that were read."""
    size_bytes = 0
    for read in reads.values():
        size_bytes += len(read.data.records or b"")
    return size_bytes


def has_bytes(reads: Mapping[PartitionKey, PartitionRead], min_bytes: int) -> bool:
    """Return True if `min_bytes` were read, or if waiting could not add to them."""
    if found_bytes(reads) >= min_bytes:
        return True
    return sum(read.counted_bytes for read in reads.values()) >= min_bytes


def keep_for_next_fetch(session: FetchSession, reads: Mapping[PartitionKey, PartitionRead]) -> None:
    """Mark partitions for the next fetch, those that did not fit into this one first."""
    dirty = session.dirty
    served: list[FetchedPartition] = []
    for key, read in reads.items():
        if read.is_settled:
            continue
        if read.data.records:
            served.append(read.wanted)
        else:
            dirty[key] = read.wanted
    for wanted in served:
        dirty.setdefault(wanted.key, wanted)
