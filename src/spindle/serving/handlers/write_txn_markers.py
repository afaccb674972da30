"""WriteTxnMarkers: the coordinator of a transaction ends it in its partitions (KIP-98, KIP-890)."""

from collections.abc import Awaitable
from typing import Any

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode, error_code
from spindle.common.ids import OFFSETS_TOPIC
from spindle.log.log_values import AppendInfo
from spindle.log.producers.verification import TransactionContext
from spindle.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.validation import AppendOrigin
from spindle.protocol.sentinels import ACKS_ALL
from spindle.serving.context import RequestContext
from spindle.serving.permissions import may_use_cluster
from spindle.serving.services import BrokerServices

Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = MarkerResult.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult
Codes = dict[str, dict[int, ErrorCode]]

_NO_GROUPS_HERE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class _Markers:
    """One unanswered request: its markers that not all in-sync replicas have yet."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._codes: dict[int, Codes] = {}
        self._left = 1
        self._done: Any = services.loop.create_future()
        self._completions: list[Any] = []

    async def write(self, markers: list[Marker]) -> WriteTxnMarkersResponse:
        """Append the markers; return the result of each partition."""
        for marker in markers:
            codes = self._codes.setdefault(marker.producer_id, {})
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    # An append without a result when the time is over has this one.
                    codes.setdefault(topic.name, {})[index] = ErrorCode.REQUEST_TIMED_OUT
                    if topic.name == OFFSETS_TOPIC:
                        self._complete_offsets(marker, codes, index)
                    else:
                        self._append_when_hosted(marker, codes, topic.name, index)
        self._finish_one()
        timeout_s = self._services.config.integer("request.timeout.ms") / 1000
        timer = self._services.loop.call_later(timeout_s, self._finish)
        try:
            await self._done
        finally:
            timer.cancel()
        return WriteTxnMarkersResponse(
            markers=[_result(number, codes) for number, codes in self._codes.items() if codes]
        )

    def _append_when_hosted(self, marker: Marker, codes: Codes, topic: str, index: int) -> None:
        self._left += 1
        replicas = self._services.replicas
        if not replicas.must_wait(topic, index):
            self._append(marker, codes, topic, index)
            return
        replicas.when_hosted(topic, index, lambda: self._append(marker, codes, topic, index))

    def _append(self, marker: Marker, codes: Codes, topic: str, index: int) -> None:
        services = self._services
        partition = services.replicas.lookup(topic, index)
        if partition is None or partition.is_offline:
            codes[topic][index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._finish_one()
            return

        def appended(_: AppendInfo | None, error: BaseException | None) -> None:
            codes[topic][index] = ErrorCode.NONE if error is None else error_code(error)
            self._finish_one()

        now_ms = services.now_ms()
        records = build_end_transaction(
            EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            marker.producer_id,
            marker.producer_epoch,
            now_ms,
        )
        partition.append(
            bytearray(records),
            ACKS_ALL,
            now_ms,
            AppendOrigin.COORDINATOR,
            appended,
            terms=TransactionContext(transaction_version=marker.transaction_version),
        )

    def _complete_offsets(self, marker: Marker, codes: Codes, index: int) -> None:
        """Append the marker through the group coordinator, which has the pending offsets."""
        completion = self._services.groups.complete_transaction(
            index,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        self._left += 1
        # All are begun at once, because one of them may hang.
        waiting = self._wait_for_offsets(codes[OFFSETS_TOPIC], index, completion)
        self._completions.append(self._services.loop.create_task(waiting))

    async def _wait_for_offsets(
        self, codes: dict[int, ErrorCode], index: int, completion: Awaitable[None]
    ) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            await completion
            code = ErrorCode.NONE
        except ApiError as error:
            # The sender knows only the errors of a partition.
            is_elsewhere = error.code in _NO_GROUPS_HERE
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else error.code
        finally:
            codes[index] = code
            self._finish_one()

    def _finish_one(self) -> None:
        self._left -= 1
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


def _result(producer_id: int, codes: Codes) -> MarkerResult:
    return MarkerResult(
        producer_id=producer_id,
        topics=[
            TopicResult(
                name=topic,
                partitions=[
                    PartitionResult(partition_index=index, error_code=code)
                    for index, code in partitions.items()
                ],
            )
            for topic, partitions in codes.items()
        ],
    )


async def write_txn_markers(
    services: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Append a control batch to each partition, and answer when it is committed there.

    A partition without a result after `request.timeout.ms` gets REQUEST_TIMED_OUT, and its marker
    may be appended later. The coordinator then sends it again, which changes nothing.
    """
    if not (
        may_use_cluster(services, context, Operation.ALTER, is_logged=False)
        or may_use_cluster(services, context, Operation.CLUSTER_ACTION)
    ):
        return _denied(request)
    return await _Markers(services).write(request.markers)


def _denied(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return WriteTxnMarkersResponse(
        markers=[
            _result(
                marker.producer_id,
                {t.name: dict.fromkeys(t.partition_indexes, code) for t in marker.topics},
            )
            for marker in request.markers
        ]
    )
