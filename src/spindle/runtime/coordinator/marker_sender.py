"""Writes the markers of ended transactions to the leaders of their partitions (WriteTxnMarkers).

There is one open request for each broker, including this one; markers that arrive meanwhile go into
the next. A marker is sent until it is written, its partition is deleted, or another broker
coordinates its transaction.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import quoted
from spindle.coordinator.transactions.shard import TransactionShard
from spindle.coordinator.transactions.transaction_table import MarkedTransaction
from spindle.coordinator.transactions.txn_markers import (
    RETRIED,
    MarkerResult,
    PartitionMarker,
    codes_of,
    markers_request,
    result_of,
)
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from spindle.raft.ready import Destination
from spindle.replicas.metadata_view import MetadataView
from spindle.runtime import background
from spindle.runtime.coordinator.shard_driver import ShardDriver, ShardState
from spindle.runtime.coordinator.shard_work import Operation
from spindle.runtime.peers.port import PeerLacksVersion, Peers, PeerUnavailable
from spindle.serving.topology import endpoint_of

log = logging.getLogger(__name__)

_CODES: Final = frozenset(ErrorCode)
_RETRY_S: Final = 0.1
_MAX_IN_REQUEST: Final = 10_000
"""Markers in one request. The receiver limits the elements of a request."""

DriverOf = Callable[[int], ShardDriver[TransactionShard] | None]
"""Returns the driver of a partition of `__transaction_state` that this broker leads."""


class _Marker(NamedTuple):
    """A marker to be written, and the shard of its transaction."""

    at: int
    shard: TransactionShard
    transaction: MarkedTransaction
    partition: TopicPartition


class MarkerSender:
    """Queues of markers by destination. All calls must come from one event loop."""

    def __init__(
        self, metadata: MetadataView, listener: str, peers: Peers, driver_of: DriverOf
    ) -> None:
        """Create a sender that reaches other brokers, and this one, on the listener."""
        self._metadata = metadata
        self._listener = listener
        self._peers = peers
        self._driver_of = driver_of
        self._queues: dict[int, list[_Marker]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sending: dict[int, int] = {}
        """Markers in the open request to each broker."""
        self._without_leader: list[_Marker] = []
        self._retries: list[_Marker] = []
        self._unreported: list[_Marker] = []
        """Markers that are written or unnecessary, but not reported to their shards yet."""
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False

    def add(
        self,
        at: int,
        shard: TransactionShard,
        transaction: MarkedTransaction,
        partitions: Sequence[TopicPartition],
    ) -> None:
        """Send the markers of a transaction of the shard of partition `at`."""
        # In the next turn, because the shard is in the middle of an operation.
        markers = [_Marker(at, shard, transaction, partition) for partition in partitions]
        asyncio.get_running_loop().call_soon(self._route, markers)

    async def close(self) -> None:
        """Send nothing any more."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        await background.end(*self._tasks.values())
        self._peers.close()

    # ------------------------------------------------------------ for metrics

    def unwritten_by_broker(self) -> list[tuple[int, int]]:
        """Return (broker id, number of markers in its open request and its queue)."""
        return [
            (broker_id, self._sending.get(broker_id, 0) + len(self._queues.get(broker_id, ())))
            for broker_id in sorted(self._tasks)
        ]

    @property
    def without_leader_count(self) -> int:
        """Markers whose partition has no leader."""
        return len(self._without_leader)

    @property
    def retry_count(self) -> int:
        """Markers that are sent again, because a leader did not write them."""
        return len(self._retries)

    @property
    def unreported_count(self) -> int:
        """Transactions with written markers that are not reported to their shard yet."""
        return len({marker.transaction for marker in self._unreported})

    # ------------------------------------------------------------ routing

    def _route(self, markers: Sequence[_Marker]) -> None:
        image = self._metadata.image
        deleted: list[_Marker] = []
        for marker in markers:
            if self._is_closed or self._driver(marker) is None:
                continue
            leader = _leader_of(image, marker.partition)
            if leader is None:
                deleted.append(marker)
            elif endpoint_of(image, leader, self._listener) is None:
                self._without_leader.append(marker)
                self._set_retry()
            else:
                self._enqueue(leader, marker)
        for marker in deleted:
            log.info(
                "%s needs no marker of %s: it is deleted",
                marker.partition,
                quoted(marker.transaction.transactional_id),
            )
        self._report(deleted)

    def _enqueue(self, broker_id: int, marker: _Marker) -> None:
        self._queues.setdefault(broker_id, []).append(marker)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = background.run_once(
                self._run(broker_id), f"sending markers to broker {broker_id}"
            )

    def _try_later(self, marker: _Marker) -> None:
        if not self._is_closed:
            self._retries.append(marker)
            self._set_retry()

    def _report_later(self, markers: Sequence[_Marker], error: BaseException) -> None:
        """Repeat only the report: a leader may refuse to write a marker a second time."""
        if not self._is_closed:
            name = quoted(markers[0].transaction.transactional_id)
            log.debug("Markers of %s are reported again: %s", name, error)
            self._unreported += markers
            self._set_retry()

    def _set_retry(self) -> None:
        if self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(_RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        unreported, self._unreported = self._unreported, []
        markers = [*self._without_leader, *self._retries]
        self._without_leader, self._retries = [], []
        self._report(unreported)
        self._route(markers)

    def _driver(self, marker: _Marker) -> ShardDriver[TransactionShard] | None:
        """Return the driver of the marker's shard; None if no shard waits for it any more."""
        driver = self._driver_of(marker.at)
        if driver is None or driver.shard is not marker.shard:
            return None
        is_wanted = driver.state is ShardState.ACTIVE and marker.shard.is_marking(
            marker.transaction
        )
        return driver if is_wanted else None

    # ------------------------------------------------------------ requests

    async def _run(self, broker_id: int) -> None:
        try:
            while queue := self._queues.pop(broker_id, None):
                if len(queue) > _MAX_IN_REQUEST:
                    self._queues[broker_id] = queue[_MAX_IN_REQUEST:]
                await self._send(broker_id, queue[:_MAX_IN_REQUEST])
        finally:
            del self._tasks[broker_id]
            # After an unexpected failure: markers that came during the request.
            for marker in self._queues.pop(broker_id, ()):
                self._try_later(marker)

    async def _send(self, broker_id: int, queue: list[_Marker]) -> None:
        endpoint = endpoint_of(self._metadata.image, broker_id, self._listener)
        sent = [(marker, driver) for marker in queue if (driver := self._driver(marker))]
        if not sent:
            return
        codes: dict[tuple[int, TopicPartition], int] = {}
        self._sending[broker_id] = len(sent)
        try:
            if endpoint is not None:
                request = markers_request(
                    PartitionMarker(marker.transaction, marker.partition, driver.leader_epoch)
                    for marker, driver in sent
                )
                destination = Destination(broker_id, endpoint.host, endpoint.port)
                response = await self._peers.request(destination, request)
                assert isinstance(response, WriteTxnMarkersResponse)
                codes = codes_of(response)
        except (PeerUnavailable, PeerLacksVersion) as error:
            log.info("Markers are sent again: %s", error)
        finally:
            del self._sending[broker_id]
            # Also after an unexpected failure: without its markers a transaction would never end.
            self._receive([marker for marker, _ in sent], codes)

    def _receive(
        self, sent: Sequence[_Marker], codes: dict[tuple[int, TopicPartition], int]
    ) -> None:
        written = []
        for marker in sent:
            key = (marker.transaction.producer_id, marker.partition)
            code = codes.get(key, ErrorCode.REQUEST_TIMED_OUT)
            match result_of(code):
                case MarkerResult.WRITTEN:
                    written.append(marker)
                case MarkerResult.RETRY:
                    if code not in RETRIED:
                        _warn(marker, code, "it is sent again")
                    self._try_later(marker)
                case MarkerResult.FENCED:
                    _warn(marker, code, "it is not sent any more")
        self._report(written)

    def _report(self, markers: Sequence[_Marker]) -> None:
        """Report to the shards that these markers are written, or not needed."""
        by_transaction: dict[MarkedTransaction, list[_Marker]] = {}
        for marker in markers:
            by_transaction.setdefault(marker.transaction, []).append(marker)
        for transaction, written in by_transaction.items():
            driver = self._driver(written[0])
            if driver is None:
                continue
            operation = _markers_written(
                driver.shard, transaction, [marker.partition for marker in written]
            )
            try:
                reported = driver.submit(operation)
            except ApiError as error:
                self._report_later(written, error)
            else:
                reported.add_done_callback(partial(self._report_ended, written))

    def _report_ended(self, markers: Sequence[_Marker], reported: "asyncio.Future[Any]") -> None:
        """Report again if the shard refused the report or timed out."""
        error = reported.exception()
        if error is not None:
            self._report_later(markers, error)


def _markers_written(
    shard: TransactionShard, transaction: MarkedTransaction, partitions: list[TopicPartition]
) -> Operation[Any]:
    return lambda _, out: shard.markers_written(transaction, partitions, out)


def _leader_of(image: MetadataImage, at: TopicPartition) -> int | None:
    """Return the leader, -1 if there is none now, and None if the partition does not exist."""
    topic = image.topics.by_name.get(at.topic)
    partition = None if topic is None else topic.partitions.get(at.partition)
    return None if partition is None else partition.leader


def _warn(marker: _Marker, code: int, consequence: str) -> None:
    log.warning(
        "%s answered a marker of %s with %s: %s",
        marker.partition,
        quoted(marker.transaction.transactional_id),
        ErrorCode(code).name if code in _CODES else code,
        consequence,
    )
