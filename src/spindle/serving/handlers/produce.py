"""Produce: one append per partition, answered when `acks` is satisfied (KIP-98, KIP-951, KIP-516).

No record is decoded here. The appends of a request are passed to the directories' I/O threads at
once and in order. The response is complete when the last partition has its result. Only
transactional appends may have to be verified first.
"""

from typing import Any, Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation, error_code
from spindle.common.ids import INTERNAL_TOPICS
from spindle.common.promise import Promise
from spindle.common.uuids import ZERO_UUID
from spindle.log.log_values import AppendInfo
from spindle.protocol import versions
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.records.validation import (
    AppendOrigin,
    RecordsRejected,
    check_produce_request,
)
from spindle.protocol.sentinels import ACKS_ALL
from spindle.replicas.partition import Partition
from spindle.serving.context import RequestContext
from spindle.serving.permissions import check_transactional_id, may_use_topic
from spindle.serving.ports import CATCH_UP_S
from spindle.serving.services import BrokerServices
from spindle.serving.topology import endpoint_of
from spindle.serving.transactional_produce import (
    ProducerOfRequest,
    VerificationFailed,
    VerifiedAppends,
    is_transactional,
    transactional_producer,
)

Topic = ProduceResponse.TopicProduceResponse
PartitionResponse = Topic.PartitionProduceResponse

_INTERNAL_WRITER: Final = "__admin_client"
"""Clients with this client id may append to internal topics."""
_ERRORS_BEFORE_THE_LOG: Final = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors whose response has no log start offset, as in Kafka."""
_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Produce:
    """One unanswered request.

    Attributes:
        left: appends without a result, plus one until all appends are started.
        is_waiting: an append waits for a replica that is being created or elected.
        verified: receives the appends of a transactional request.
    """

    __slots__ = (
        "acks",
        "context",
        "is_waiting",
        "left",
        "promise",
        "response",
        "services",
        "timer",
        "verified",
    )

    def __init__(
        self, services: BrokerServices, context: RequestContext, request: ProduceRequest
    ) -> None:
        self.services = services
        self.context = context
        self.acks = request.acks
        self.response = ProduceResponse()
        self.left = 1
        self.is_waiting = False
        self.promise: Promise[ProduceResponse | None] = Promise(services.loop)
        self.verified: VerifiedAppends | None = None
        self.timer: Any = None

    def start(self, request: ProduceRequest) -> None:
        """Pass every partition's records to its log."""
        services = self.services
        by_id = self.context.api_version >= versions.PRODUCE_TOPIC_IDS
        image, is_guarded = services.metadata.image, services.authorizer.is_active
        for topic in request.topic_data:
            if not topic.partition_data:
                continue
            name = topic.name
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if by_id:
                known = image.topics.by_id.get(topic.topic_id)
                name = known.name if known is not None else ""
                missing = missing if known is not None else ErrorCode.UNKNOWN_TOPIC_ID
            answer = Topic(name=name, topic_id=topic.topic_id)
            self.response.responses.append(answer)
            is_denied = (
                is_guarded
                and name
                and not may_use_topic(services, self.context, Operation.WRITE, name)
            )
            for data in topic.partition_data:
                part = PartitionResponse(index=data.index, base_offset=-1, log_append_time_ms=-1)
                answer.partition_responses.append(part)
                if is_denied:
                    part.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif services.replicas.must_wait(name, data.index):
                    self._append_later(answer, data, part, missing)
                else:
                    self._append(answer, data, part, missing)
        if self.verified is not None:
            self.verified.begin()
        self._finish_one()

    def _append_later(
        self, answer: Topic, data: Any, part: PartitionResponse, missing: ErrorCode
    ) -> None:
        """Append as soon as the recently created or elected replica is ready."""
        self.left += 1
        self.is_waiting = True

        def here() -> None:
            self._append(answer, data, part, missing)
            if self.verified is not None:
                self.verified.begin()
            self._finish_one()

        self.services.replicas.when_hosted(answer.name, data.index, here)

    def _append(
        self, answer: Topic, data: Any, part: PartitionResponse, missing: ErrorCode
    ) -> None:
        replicas = self.services.replicas
        partition = replicas.lookup(answer.name, data.index)
        if partition is None:
            part.error_code = replicas.absent_error(answer.name, data.index, missing)
            self._name_leader(answer.name, part)
            return
        if answer.topic_id not in (ZERO_UUID, partition.topic_id):
            part.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return
        try:
            check_produce_request(data.records, self.context.api_version)
        except ApiError as refusal:
            part.error_code = refusal.code
            return
        topic = partition.topic_partition.topic
        if topic in INTERNAL_TOPICS and self.context.client_id != _INTERNAL_WRITER:
            part.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return
        self.left += 1
        traffic = self.services.traffic.of(topic)
        traffic.produces += 1

        def done(info: AppendInfo | None, error: BaseException | None) -> None:
            if info is not None:
                part.base_offset = info.first_offset
                part.log_append_time_ms = info.log_append_time_ms
                part.log_start_offset = info.log_start_offset
                traffic.bytes_in += info.size_bytes
                traffic.messages_in += info.last_offset - info.first_offset + 1
            elif error is not None:
                traffic.failed_produces += 1
                self._failed(partition, part, error)
            self._finish_one()

        if self.verified is not None:
            self.verified.append(partition, data.records, done)
            return
        partition.append(data.records, self.acks, self.services.now_ms(), AppendOrigin.CLIENT, done)

    def _failed(self, partition: Partition, part: PartitionResponse, error: BaseException) -> None:
        part.error_code = error_code(error)
        if isinstance(error, VerificationFailed):
            part.error_message = error.shown
        elif part.error_code not in _ERRORS_BEFORE_THE_LOG:
            part.log_start_offset = partition.log.log_start_offset
        if isinstance(error, RecordsRejected):
            part.error_message = _rejection_text(error)
            part.record_errors = [
                PartitionResponse.BatchIndexAndErrorMessage(
                    batch_index=e.batch_index, batch_index_error_message=e.message
                )
                for e in error.record_errors
            ]
        self._name_leader(partition.topic_partition.topic, part)

    def _name_leader(self, topic: str, part: PartitionResponse) -> None:
        """Name the new leader, which saves the client a metadata request (KIP-951)."""
        if (
            part.error_code not in _LEADER_ERRORS
            or self.context.api_version < versions.PRODUCE_CURRENT_LEADER
        ):
            return
        leader, epoch = self.services.replicas.leader_of(topic, part.index)
        part.current_leader = PartitionResponse.LeaderIdAndEpoch(
            leader_id=leader, leader_epoch=epoch
        )
        image = self.services.metadata.image
        endpoint = endpoint_of(image, leader, self.context.listener)
        known = {node.node_id for node in self.response.node_endpoints}
        if endpoint is not None and leader not in known:
            self.response.node_endpoints.append(
                ProduceResponse.NodeEndpoint(
                    node_id=leader,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=image.cluster.brokers[leader].rack,
                )
            )

    def _finish_one(self) -> None:
        self.left -= 1
        if self.left == 0:
            if self.timer is not None:
                self.timer.cancel()
            if not self.promise.is_done:
                self._settle()

    def _settle(self) -> None:
        if self.acks != 0:
            self.promise.settle(self.response)
        elif any(p.error_code for t in self.response.responses for p in t.partition_responses):
            # The producer expects no answer. A closed connection makes it ask for metadata.
            self.promise.settle(None, ProtocolViolation("produce with acks=0 failed"))
        else:
            self.promise.settle(None)

    def expire(self) -> None:
        """Answer after `timeout_ms`: appends without a result get REQUEST_TIMED_OUT."""
        if self.left and not self.promise.is_done:
            for topic in self.response.responses:
                for part in topic.partition_responses:
                    if part.error_code == ErrorCode.NONE and part.base_offset < 0:
                        part.error_code = ErrorCode.REQUEST_TIMED_OUT
            self._settle()


def _rejection_text(error: RecordsRejected) -> str:
    """Return Kafka's error text, which clients show, with the first three errors."""
    if error.code == ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(
        f"RecordError(batchIndex={e.batch_index}, message='{e.message}')"
        for e in error.record_errors[:3]
    )
    return (
        f"One or more records have been rejected due to {len(error.record_errors)} record errors "
        f"in total, and only showing the first three errors at most: [{shown}]"
    )


def produce(
    services: BrokerServices, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Promise[ProduceResponse | None]:
    """Append the records of a request.

    Raises:
        ProtocolViolation: acks=0 and an append failed: the connection is closed instead.
    """
    if request.acks not in (ACKS_ALL, 0, 1):
        return _refuse_all(context, request, ErrorCode.INVALID_REQUIRED_ACKS)
    operation = _Produce(services, context, request)
    if not is_transactional(request):
        _begin(operation, request)
        return operation.promise
    try:
        producer = transactional_producer(request)
        check_transactional_id(services, context, Operation.WRITE, producer.transactional_id)
    except ApiError as refusal:
        return _refuse_all(context, request, refusal.code)
    _begin_in_turn(operation, request, producer)
    return operation.promise


def _begin(operation: _Produce, request: ProduceRequest) -> None:
    operation.start(request)
    if operation.left and (request.acks == ACKS_ALL or operation.is_waiting):
        timeout_s = max(request.timeout_ms, 0) / 1000
        if request.acks != ACKS_ALL:
            # Without acks=all the client's timeout does not apply: wait for this broker's own
            # replica.
            timeout_s = max(timeout_s, CATCH_UP_S)
        operation.timer = operation.services.loop.call_later(timeout_s, operation.expire)


def _begin_in_turn(
    operation: _Produce, request: ProduceRequest, producer: ProducerOfRequest
) -> None:
    """Begin when the producer's earlier requests have been verified."""
    turns, transactional_id = operation.services.producer_turns, producer.transactional_id
    operation.verified = VerifiedAppends(
        operation.services,
        producer,
        operation.context.api_version,
        operation.acks,
        lambda: turns.leave(transactional_id),
    )
    turns.take(transactional_id, lambda: _begin(operation, request))


def _refuse_all(
    context: RequestContext, request: ProduceRequest, code: ErrorCode
) -> ProduceResponse:
    if request.acks == 0:
        raise ProtocolViolation(f"produce with acks=0 failed: {code.name}")
    return ProduceResponse(
        responses=[
            Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionResponse(
                        index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
