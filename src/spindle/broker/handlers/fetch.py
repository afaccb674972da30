"""Fetch: byte ranges of the log to consumers and followers (KIP-74, 227, 392, 516, 595, 903, 951).

A fetch is answered as soon as `min_bytes` can be served, or a partition has something else to say;
otherwise it waits until the high watermark of one of its partitions moves (for a follower: until
one of the logs grows) or `max_wait_ms` is over. What a follower asks for says what it has, which
moves the high watermark.
Reads run on the directories' I/O threads, one hop per directory, within the limits of the request.
"""

from collections.abc import Awaitable
from typing import Any, Final

from spindle.broker.context import RequestContext
from spindle.broker.partition import Partition, error_code
from spindle.broker.ports import CATCH_UP_S
from spindle.broker.services import BrokerServices
from spindle.broker.topology import endpoint_of
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.log.log import FetchedRecords, Log
from spindle.protocol.codec import encode_parts
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.records.batch import HEADER_BYTES
from spindle.replication.fetch_session import (
    INVALID_SESSION_ID,
    FetchContext,
    FetchedPartition,
    PartitionKey,
    SessionError,
)

Topic = FetchResponse.FetchableTopicResponse
PartitionData = Topic.PartitionData

_READ_COMMITTED: Final = 1
_FIRST_TOPIC_ID_VERSION: Final = 13
_FIRST_DIVERGING_VERSION: Final = 12
_FIRST_NODE_ENDPOINTS_VERSION: Final = 16
_FIRST_REPLICA_STATE_VERSION: Final = 15
_FIRST_FOLLOWER_READ_VERSION: Final = 11
_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Read:
    """What is to be read of one partition, and what came of it."""

    __slots__ = ("data", "end_offset", "key", "name", "partition", "wanted")

    def __init__(self, key: PartitionKey, name: str, wanted: FetchedPartition) -> None:
        self.key = key
        self.name = name
        self.wanted = wanted
        self.partition: Partition | None = None
        self.end_offset = -1
        self.data = PartitionData(
            partition_index=key.partition,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )

    @property
    def has_news(self) -> bool:
        """An error or a divergence: something that must not wait."""
        return self.data.error_code != ErrorCode.NONE or self.data.diverging_epoch.epoch >= 0

    @property
    def has_data(self) -> bool:
        return self.partition is not None and self.wanted.fetch_offset < self.end_offset


def _hide_positions(data: PartitionData) -> None:
    """Offsets of the log are told with records only, as Kafka does."""
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1


class _Fetch:
    """One request under way."""

    def __init__(
        self,
        services: BrokerServices,
        context: RequestContext,
        request: FetchRequest,
        session: FetchContext,
    ) -> None:
        self.services = services
        self.context = context
        self.request = request
        self.session = session
        self.promise: Any = services.loop.create_future()
        self.timer: Any = None
        self.watched: list[Partition] = []
        self.is_expired = False
        self.is_reading = False
        self.is_stale = False
        self.granted = 0
        self.reads: list[_Read] = []
        self.replica_id, self.broker_epoch = _fetcher(context, request)
        self.is_replica = self.replica_id >= 0
        self.needs_leader = self.is_replica or context.api_version < _FIRST_FOLLOWER_READ_VERSION

    # -- deciding

    def start(self) -> None:
        if self.is_replica:
            self._take_progress()
        self._resolve()
        max_wait_ms = self.request.max_wait_ms
        if max_wait_ms <= 0 or not self.reads or any(read.has_news for read in self.reads):
            self.is_expired = True
        self._try()
        if not self.promise.done() and not self.is_expired:
            self.timer = self.services.loop.call_later(max_wait_ms / 1000, self._expire)

    def _take_progress(self) -> None:
        """What the follower asks for is what it does not have yet."""
        self._resolve()
        for read in self.reads:
            if read.partition is not None and not read.has_news:
                wanted = read.wanted
                read.partition.follower_fetched(
                    self.replica_id,
                    wanted.fetch_offset,
                    wanted.fetcher_log_start_offset,
                    self.broker_epoch,
                )

    def _resolve(self) -> None:
        """Look at every partition anew: who leads it, how far it may be read."""
        self.reads = []
        names = self.services.metadata.image.topics.by_id
        by_id = self.context.api_version >= _FIRST_TOPIC_ID_VERSION
        for key, wanted in self.session.partitions.items():
            if by_id and not wanted.topic:
                topic = names.get(key.topic_id)
                wanted.topic = topic.name if topic is not None else ""
            name = wanted.topic if by_id else key.topic
            read = _Read(key, name, wanted)
            self.reads.append(read)
            if by_id and not name:
                read.data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                read.data.aborted_transactions = []
                continue
            self._check(read)

    def _check(self, read: _Read) -> None:
        replicas = self.services.replicas
        partition = replicas.lookup(read.name, read.key.partition)
        data, wanted = read.data, read.wanted
        if partition is None:
            data.error_code = replicas.absent_error(
                read.name, read.key.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            data.aborted_transactions = []
            self._tell_leader(read)
            return
        read.partition = partition
        if read.key.topic_id not in (ZERO_UUID, partition.topic_id):
            data.error_code = ErrorCode.INCONSISTENT_TOPIC_ID
            return
        data.error_code = replicas.leader_error(
            partition, wanted.current_leader_epoch, needs_leader=self.needs_leader
        )
        if self.is_replica and not data.error_code:
            data.error_code = partition.replica_error(
                self.replica_id, self.broker_epoch, wanted.current_leader_epoch
            )
        if data.error_code:
            self._tell_leader(read)
            return
        log = partition.log
        data.high_watermark = partition.high_watermark
        data.last_stable_offset = partition.last_stable_offset
        data.log_start_offset = log.log_start_offset
        is_committed = self.request.isolation_level == _READ_COMMITTED and not self.is_replica
        if self.is_replica:
            read.end_offset = log.log_end_offset
        else:
            read.end_offset = data.last_stable_offset if is_committed else data.high_watermark
        if (
            self.context.api_version >= _FIRST_DIVERGING_VERSION
            and wanted.last_fetched_epoch >= 0
            and self._diverges(log, wanted, data)
        ):
            _hide_positions(data)
            return
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            _hide_positions(data)
        elif is_committed:
            data.aborted_transactions = []

    def _diverges(self, log: Log, wanted: FetchedPartition, data: PartitionData) -> bool:
        end = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if end.epoch < 0 or wanted.fetch_offset < log.log_start_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return True
        if end.epoch < wanted.last_fetched_epoch or end.offset < wanted.fetch_offset:
            data.diverging_epoch = PartitionData.EpochEndOffset(
                epoch=end.epoch, end_offset=end.offset
            )
            return True
        return False

    def _tell_leader(self, read: _Read) -> None:
        """The new leader saves the client a metadata request (KIP-951)."""
        if (
            read.data.error_code in _LEADER_ERRORS
            and self.context.api_version >= _FIRST_NODE_ENDPOINTS_VERSION
        ):
            leader, epoch = self.services.replicas.leader_of(read.name, read.key.partition)
            read.data.current_leader = PartitionData.LeaderIdAndEpoch(
                leader_id=leader, leader_epoch=epoch
            )

    # -- waiting

    def _try(self) -> None:
        """Read if there is reason to; wait otherwise."""
        if self.promise.done() or self.is_reading:
            self.is_stale = True
            return
        if self.is_expired or any(read.has_data for read in self.reads):
            self._read()
        else:
            self._watch()

    def _watch(self) -> None:
        if not self.watched:
            for read in self.reads:
                if read.partition is not None:
                    read.partition.watch(self._on_progress, appends=self.is_replica)
                    self.watched.append(read.partition)

    def _on_progress(self) -> None:
        if self.promise.done() or self.is_reading:
            self.is_stale = True
            return
        self._resolve()
        if any(read.has_news for read in self.reads):
            self.is_expired = True
        self._try()

    def _expire(self) -> None:
        self.is_expired = True
        self._on_progress()

    # -- reading

    def _read(self) -> None:
        """One hop to the I/O thread of each directory that holds something to read."""
        self.is_reading = True
        self.is_stale = False
        groups: dict[int, list[_Read]] = {}
        for read in self.reads:
            if read.has_data and not read.has_news:
                assert read.partition is not None
                groups.setdefault(id(read.partition.directory), []).append(read)
        wanted = sum(max(r.wanted.max_bytes, 0) for group in groups.values() for r in group)
        self.granted = self.services.fetch_memory.grant(min(wanted, self._max_bytes()))
        self._read_groups(list(groups.values()), self.granted, False)

    def _max_bytes(self) -> int:
        """The client's limit, or what its quota could ever pay for."""
        quotas = self.services.quotas
        wanted = max(self.request.max_bytes, 0)
        if not quotas.is_active or self.is_replica:
            return wanted
        return min(wanted, quotas.max_fetch_bytes(self.context))

    def _read_groups(self, groups: list[list[_Read]], room: int, has_any: bool) -> None:
        if not groups:
            self._done_reading()
            return
        group = groups.pop(0)
        partition = group[0].partition
        assert partition is not None
        items = [
            (r.partition.log, r.wanted.fetch_offset, r.wanted.max_bytes, r.end_offset)
            for r in group
            if r.partition is not None
        ]

        def done(results: Any, error: BaseException | None) -> None:
            if error is not None:
                for read in group:
                    read.data.error_code = error_code(error)
                self._read_groups(groups, room, has_any)
                return
            left, found = room, has_any
            for read, result in zip(group, results, strict=True):
                left -= self._take(read, result)
                found = found or len(read.data.records or b"") > 0
            self._read_groups(groups, max(left, 0), found)

        partition.directory.executor.call(done, read_logs, items, room, has_any)

    def _take(self, read: _Read, result: FetchedRecords | ApiError | None) -> int:
        data = read.data
        if result is None:
            return 0
        if isinstance(result, ApiError):
            data.error_code = result.code
            return 0
        data.records = result.records
        return len(result.records)

    def _done_reading(self) -> None:
        self.is_reading = False
        self.services.fetch_memory.give_back(self.granted)
        total = sum(len(read.data.records or b"") for read in self.reads)
        has_news = any(read.has_news for read in self.reads)
        min_bytes = min(self.request.min_bytes, self.granted)
        if total >= min_bytes or self.is_expired or has_news:
            self._answer_when_complete()
        elif self.is_stale:
            self._on_progress()
        else:
            # It is read anew when there is more: whoever waits holds no memory.
            for read in self.reads:
                read.data.records = b""
            self._watch()

    def _answer_when_complete(self) -> None:
        if self.request.isolation_level != _READ_COMMITTED or self.is_replica:
            self._answer()
            return
        waiting = [r for r in self.reads if r.data.records and r.partition is not None]
        self._find_aborted(waiting)

    def _find_aborted(self, waiting: list[_Read]) -> None:
        """The aborted transactions of what was read (KIP-98), one partition after another."""
        if not waiting:
            self._answer()
            return
        read = waiting.pop()
        partition = read.partition
        assert partition is not None
        start = read.wanted.fetch_offset

        def done(found: Any, error: BaseException | None) -> None:
            if error is not None:
                read.data.error_code, read.data.records = error_code(error), b""
            else:
                read.data.aborted_transactions = [
                    PartitionData.AbortedTransaction(
                        producer_id=t.producer_id, first_offset=t.first_offset
                    )
                    for t in found
                ]
            self._find_aborted(waiting)

        partition.directory.executor.call(
            done, partition.log.aborted_transactions, start, read.end_offset
        )

    def _answer(self) -> None:
        self.close()
        if self.promise.done():
            return
        response, shown = self._response()
        wait_ms = self._charge(response)
        if wait_ms:
            self.promise.set_result(self._throttled(wait_ms))
            return
        if self.is_replica:
            self.services.traffic.replicated_bytes += sum(
                len(read.data.records or b"") for read in shown
            )
        else:
            self._count(shown)
        self._remember(shown)
        self.promise.set_result(response)

    def _count(self, shown: list[_Read]) -> None:
        of = self.services.traffic.of
        for read in shown:
            if read.partition is not None:
                traffic = of(read.name)
                traffic.fetches += 1
                traffic.bytes_out += len(read.data.records or b"")
                traffic.failed_fetches += read.data.error_code != ErrorCode.NONE

    def _charge(self, response: FetchResponse) -> int:
        """The ms that the client's quotas make it wait."""
        quotas = self.services.quotas
        if not quotas.is_active or self.is_replica:
            return 0
        version = self.context.api_version
        return quotas.charge_fetch(
            self.context, lambda: sum(map(len, encode_parts(response, version)))
        )

    def _throttled(self, wait_ms: int) -> FetchResponse:
        """Nothing but the time to wait; a session that has just begun is not begun (KIP-219)."""
        session = self.session.session
        if session is not None and not self.session.is_incremental:
            self.services.fetch_sessions.forget(session)
            session = None
        session_id = session.session_id if session is not None else INVALID_SESSION_ID
        return FetchResponse(session_id=session_id, throttle_time_ms=wait_ms)

    def close(self) -> None:
        """Stop waiting."""
        if self.timer is not None:
            self.timer.cancel()
        for partition in self.watched:
            partition.unwatch(self._on_progress)
        self.watched = []

    def _response(self) -> tuple[FetchResponse, list[_Read]]:
        """The answer, and the reads that it shows."""
        session = self.session
        response = FetchResponse(session_id=session.session_id)
        topics: dict[tuple[str, bytes], Topic] = {}
        shown: list[_Read] = []
        by_id = self.context.api_version >= _FIRST_TOPIC_ID_VERSION
        leaders: dict[int, None] = {}
        for read in self.reads:
            data = read.data
            is_news = read.wanted.is_news(data.high_watermark, data.log_start_offset)
            if session.is_incremental and not (data.records or is_news or read.has_news):
                continue
            shown.append(read)
            name = "" if by_id else read.name
            key = (name, read.key.topic_id)
            if key not in topics:
                topics[key] = Topic(topic=name, topic_id=read.key.topic_id)
                response.responses.append(topics[key])
            topics[key].partitions.append(data)
            if data.current_leader.leader_id >= 0:
                leaders[data.current_leader.leader_id] = None
        self._add_endpoints(response, leaders)
        return response, shown

    def _remember(self, shown: list[_Read]) -> None:
        """What the fetcher has been told, and who goes last next time."""
        session = self.session.session
        if session is None:
            return
        for read in shown:
            read.wanted.remember(read.data.high_watermark, read.data.log_start_offset)
        session.move_to_end(read.key for read in shown if read.data.records)

    def _add_endpoints(self, response: FetchResponse, leaders: dict[int, None]) -> None:
        image = self.services.metadata.image
        for leader in leaders:
            endpoint = endpoint_of(image, leader, self.context.listener)
            if endpoint is not None:
                response.node_endpoints.append(
                    FetchResponse.NodeEndpoint(
                        node_id=leader,
                        host=endpoint.host,
                        port=endpoint.port,
                        rack=image.cluster.brokers[leader].rack,
                    )
                )


def read_logs(
    items: list[tuple[Log, int, int, int]], room: int, has_any: bool
) -> list[FetchedRecords | ApiError | None]:
    """Read several logs of one directory, on its thread, within `room` bytes.

    The first batch of an answer is given whole, however large (KIP-74), so that a consumer can
    always get on; None where there was no room left.
    """
    results: list[FetchedRecords | ApiError | None] = []
    for log, offset, max_bytes, end_offset in items:
        if room < HEADER_BYTES and has_any:
            results.append(None)
            continue
        try:
            found = log.read(offset, min(max_bytes, room), end_offset, min_one_batch=not has_any)
        except ApiError as error:
            results.append(error)
            continue
        results.append(found)
        if len(found.records):
            has_any = True
            room -= len(found.records)
    return results


def _fetcher(context: RequestContext, request: FetchRequest) -> tuple[int, int]:
    """(replica id, its broker epoch); both are -1 for a consumer."""
    if context.api_version >= _FIRST_REPLICA_STATE_VERSION:
        return request.replica_state.replica_id, request.replica_state.replica_epoch
    return request.replica_id, -1


def fetch(
    services: BrokerServices, context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Serve the fetch of a consumer or a follower."""
    try:
        session = services.fetch_sessions.open(request, context.api_version, services.now_ms())
    except SessionError as error:
        return FetchResponse(error_code=error.code)
    if services.metadata.is_behind and _misses_a_replica(services, session):
        return _after_reactions(services, context, request, session)
    return _start(services, context, request, session)


def _misses_a_replica(services: BrokerServices, session: FetchContext) -> bool:
    by_id = services.metadata.image.topics.by_id
    for key in session.partitions:
        topic = by_id.get(key.topic_id)
        if services.replicas.is_coming(topic.name if topic else key.topic, key.partition):
            return True
    return False


async def _after_reactions(
    services: BrokerServices, context: RequestContext, request: FetchRequest, session: FetchContext
) -> FetchResponse:
    """A topic was created a moment ago: its logs are on their way."""
    await services.metadata.catch_up(CATCH_UP_S)
    return await _start(services, context, request, session)


def _start(
    services: BrokerServices, context: RequestContext, request: FetchRequest, session: FetchContext
) -> Awaitable[FetchResponse]:
    operation = _Fetch(services, context, request, session)
    promise: Awaitable[FetchResponse] = operation.promise
    operation.promise.add_done_callback(lambda _: operation.close())
    operation.start()
    return promise
