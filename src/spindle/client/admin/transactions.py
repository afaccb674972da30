"""Transactions: list and describe them, and end those whose producer does not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from spindle.client.admin.coordinators import CoordinatorKind, coordinated
from spindle.client.admin.refusals import optional_error, refusal_text
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress, ClusterView
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol import versions
from spindle.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from spindle.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from spindle.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NO_DURATION_FILTER: Final = -1


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id. `start_time_ms` is None outside of a transaction."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent producer as a replica of a partition knows it.

    `coordinator_epoch` is -1 before the first end of a transaction, `transaction_start_offset` None
    outside of a transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class AbortMarker:
    """The marker that ends a transaction of a producer in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    def __str__(self) -> str:
        return (
            f"AbortTransactionSpec(topicPartition={self.partition}, "
            f"producerId={self.producer_id}, producerEpoch={self.producer_epoch}, "
            f"coordinatorEpoch={self.coordinator_epoch})"
        )


def list_transactions(
    client: WireClient,
    *,
    producer_ids: Iterable[int] = (),
    states: Iterable[str] = (),
    min_duration_ms: int = NO_DURATION_FILTER,
    id_pattern: str | None = None,
) -> list[TransactionListing]:
    """Return the transactional ids of all coordinators, by coordinator.

    Args:
        producer_ids: only those with one of these producer ids; all if it is empty.
        states: only those in one of these states (`Ongoing`, ...); all if it is empty.
        min_duration_ms: only those with a transaction that runs longer; negative for all.
        id_pattern: only those whose whole id matches this expression (RE2).

    Raises:
        ApiError: a broker refused.
        ClientError: a broker could not be asked, or is too old for the filters.
    """
    request = ListTransactionsRequest(
        producer_id_filters=list(producer_ids),
        state_filters=list(states),
        duration_filter=min_duration_ms,
        transactional_id_pattern=id_pattern or None,
    )
    first_version = 0
    if min_duration_ms >= 0:
        first_version = versions.LIST_TRANSACTIONS_DURATION
    if id_pattern:
        first_version = versions.LIST_TRANSACTIONS_PATTERN

    def attempt() -> list[TransactionListing]:
        listed = []
        for node_id, broker in sorted(client.current_view(()).brokers.items()):
            answer = client.ask(
                request, ListTransactionsResponse, broker=broker, first_version=first_version
            )
            if answer.error_code:
                raise ApiError(
                    ErrorCode(answer.error_code),
                    f"ListTransactions request sent to broker {node_id} failed with an "
                    "unexpected exception",
                )
            listed += [
                TransactionListing(
                    state.transactional_id, node_id, state.producer_id, state.transaction_state
                )
                for state in answer.transaction_states
            ]
        return listed

    return client.retrying(attempt)


def describe_transaction(client: WireClient, transactional_id: str) -> TransactionDescription:
    """Return the state of a transactional id.

    Raises:
        ApiError: TRANSACTIONAL_ID_NOT_FOUND, or the coordinator refused.
        ClientError: no broker could be asked.
    """

    def refusal(code: ErrorCode) -> ApiError:
        return _about_id("DescribeTransactions", transactional_id, code)

    def not_found() -> NoReturn:
        raise refusal(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    def ask(coordinator: BrokerAddress) -> TransactionDescription:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = client.ask(request, DescribeTransactionsResponse, broker=coordinator)
        state = answer.transaction_states[0]
        if state.error_code:
            raise refusal(ErrorCode(state.error_code))
        start_ms = state.transaction_start_time_ms
        return TransactionDescription(
            transactional_id,
            coordinator.node_id,
            state.producer_id,
            state.producer_epoch,
            state.transaction_state,
            state.transaction_timeout_ms,
            start_ms if start_ms >= 0 else None,
            tuple(
                TopicPartition(topic.topic, n) for topic in state.topics for n in topic.partitions
            ),
        )

    return coordinated(
        client, transactional_id, ask, CoordinatorKind.TRANSACTION, if_none_exist=not_found
    )


def terminate_transaction(client: WireClient, transactional_id: str) -> None:
    """Abort the transaction of a transactional id and fence its producer (KIP-939).

    An id that no producer has used yet gets a producer id.

    Raises:
        ApiError: the coordinator refused.
        ClientError: no broker could be asked.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=client.settings.request_timeout_ms,
    )

    def ask(coordinator: BrokerAddress) -> None:
        answer = client.ask(request, InitProducerIdResponse, broker=coordinator)
        if answer.error_code:
            raise _about_id("InitProducerId", transactional_id, ErrorCode(answer.error_code))

    coordinated(client, transactional_id, ask, CoordinatorKind.TRANSACTION)


def _about_id(request: str, transactional_id: str, code: ErrorCode) -> ApiError:
    """Return the refusal in the words of Kafka's client."""
    reason = {
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "because the ID could not be found",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "due to authorization failure",
    }.get(code, "due to unexpected error")
    return ApiError(
        code, f"{request} request for transactionalId `{transactional_id}` failed {reason}"
    )


def describe_producers(
    client: WireClient, partitions: Sequence[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Return the idempotent producers of partitions.

    Args:
        broker_id: ask the replicas of this broker instead of the leaders.

    Raises:
        ApiError: a partition was refused; NOT_LEADER_OR_FOLLOWER if the broker has no replica.
        ClientError: a broker could not be asked.
    """

    def attempt() -> dict[TopicPartition, list[ActiveProducer]] | ApiError:
        producers: dict[TopicPartition, list[ActiveProducer]] = {}
        view = client.current_view(sorted({partition.topic for partition in partitions}))
        for broker, wanted in _by_broker(view, partitions, broker_id):
            answer = client.ask(
                _producers_request(wanted), DescribeProducersResponse, broker=broker
            )
            for topic in answer.topics:
                for partition_response in topic.partitions:
                    partition = TopicPartition(topic.name, partition_response.partition_index)
                    error = optional_error(
                        partition_response.error_code, partition_response.error_message
                    )
                    if error is not None:
                        refused = _about_producers(partition, error, broker_id)
                        if broker_id is None or not _is_no_replica(error):
                            raise refused
                        return refused  # waiting gives this broker no replica
                    producers[partition] = [
                        _active(state) for state in partition_response.active_producers
                    ]
        return producers

    outcome = client.retrying(attempt)
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome


def _by_broker(
    view: ClusterView, partitions: Sequence[TopicPartition], broker_id: int | None
) -> list[tuple[BrokerAddress, list[TopicPartition]]]:
    if broker_id is not None:
        return [(view.broker(str(broker_id)), list(partitions))]
    return [(broker, list(wanted)) for broker, wanted in view.by_leader(partitions).items()]


def _producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    topics: dict[str, DescribeProducersRequest.TopicRequest] = {}
    for name, partition in partitions:
        topic = topics.setdefault(name, DescribeProducersRequest.TopicRequest(name=name))
        topic.partition_indexes.append(partition)
    return DescribeProducersRequest(topics=list(topics.values()))


def _active(
    state: DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState,
) -> ActiveProducer:
    start = state.current_txn_start_offset
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        max(-1, state.coordinator_epoch),
        start if start >= 0 else None,
    )


def _is_no_replica(error: ApiError) -> bool:
    return error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def _about_producers(partition: TopicPartition, error: ApiError, broker_id: int | None) -> ApiError:
    """Return the refusal in the words of Kafka's client."""
    at_broker = broker_id is not None and _is_no_replica(error)
    reason = f"on brokerId {broker_id}" if at_broker else "due to unexpected error"
    return ApiError(
        error.code, f"Failed to describe active producers for partition {partition} {reason}"
    )


def abort_transaction(client: WireClient, marker: AbortMarker) -> None:
    """End the transaction of a producer in one partition, without its coordinator.

    Raises:
        ApiError: the leader refused.
        ClientError: the leader could not be asked.
    """
    topic, number = marker.partition
    markers = WriteTxnMarkersRequest.WritableTxnMarker
    request = WriteTxnMarkersRequest(
        markers=[
            markers(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=False,
                coordinator_epoch=marker.coordinator_epoch,
                topics=[markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
            )
        ]
    )

    def attempt() -> None:
        leader = client.current_view((topic,)).leader_of(marker.partition)
        answer = client.ask(request, WriteTxnMarkersResponse, broker=leader)
        for written in answer.markers:
            for named in written.topics:
                for partition in named.partitions:
                    error = optional_error(partition.error_code)
                    if error is not None:
                        raise _about_marker(marker, error)

    client.retrying(attempt)


def _about_marker(marker: AbortMarker, error: ApiError) -> ApiError:
    """Return the refusal in the words of Kafka's client."""
    reason = {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "due to cluster authorization error",
        ErrorCode.INVALID_PRODUCER_EPOCH: "due an invalid producer epoch",
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
            f"since the provided coordinator epoch {marker.coordinator_epoch} has been fenced by "
            "the active coordinator"
        ),
    }.get(error.code, f"due to unexpected error: {refusal_text(error)}")
    return ApiError(error.code, f"WriteTxnMarkers request with {marker} failed {reason}")
