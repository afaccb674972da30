"""Fetch: byte ranges of the log to consumers and followers (KIP-74, 227, 392, 516, 595, 903, 951).

A fetch is answered as soon as `min_bytes` can be served, or a partition has something else to say;
otherwise it waits until the high watermark of one of its partitions moves (for a follower: until
one of the logs grows) or `max_wait_ms` is over. It looks only at partitions of its session to which
something has happened. Reads run on the directories' I/O threads, one hop per directory, within the
limits of the request.
"""

from collections.abc import Awaitable
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.log.log import Log
from spindle.protocol.codec import encode_parts
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.records.batch import HEADER_BYTES
from spindle.replicas.partition import error_code
from spindle.replication.fetch_session import (
    INVALID_SESSION_ID,
    FetchContext,
    FetchedPartition,
    PartitionKey,
    SessionError,
)
from spindle.serving.context import RequestContext
from spindle.serving.fetch_memory import FetchMemory
from spindle.serving.partition_read import (
    FIRST_TOPIC_ID_VERSION,
    Found,
    PartitionRead,
    ReadResult,
    fetcher_of,
)
from spindle.serving.ports import CATCH_UP_S
from spindle.serving.services import BrokerServices
from spindle.serving.topology import endpoint_of

Topic = FetchResponse.FetchableTopicResponse


class _Fetch:
    """One request under way. `reads` are the partitions that it has looked at."""

    def __init__(
        self,
        services: BrokerServices,
        context: RequestContext,
        request: FetchRequest,
        fetched: FetchContext,
    ) -> None:
        self.services = services
        self.context = context
        self.request = request
        self.fetched = fetched
        self.session = fetched.session
        self.fetcher = fetcher_of(context, request)
        self.promise: Any = services.loop.create_future()
        self.timer: Any = None
        self.is_expired = False
        self.is_reading = False
        self.is_stale = False
        self.granted = 0
        self.reads: dict[PartitionKey, PartitionRead] = {}

    # -- deciding

    def start(self) -> None:
        self._look()
        max_wait_ms = self.request.max_wait_ms
        if max_wait_ms <= 0 or not self.session.partitions:
            self.is_expired = True
            for read in self.reads.values():
                read.give_up_waiting()
        self._try()
        if not self.promise.done() and not self.is_expired:
            self.session.on_dirty = self._on_dirty
            if any(read.is_ahead for read in self.reads.values()):
                self.services.metadata.when_applied(self._on_metadata)
            self.timer = self.services.loop.call_later(max_wait_ms / 1000, self._expire)

    def _look(self) -> None:
        """Look anew at the partitions to which something has happened."""
        for wanted in self.session.take_dirty():
            read = PartitionRead(wanted, self._name(wanted))
            read.check(self.services, self.fetcher)
            self.reads[wanted.key] = read

    def _name(self, wanted: FetchedPartition) -> str:
        if self.context.api_version < FIRST_TOPIC_ID_VERSION:
            return wanted.key.topic
        if not wanted.topic:
            topic = self.services.metadata.image.topics.by_id.get(wanted.key.topic_id)
            wanted.topic = topic.name if topic is not None else ""
        return wanted.topic

    def _try(self) -> None:
        """Read if there is reason to; wait otherwise."""
        reads = self.reads.values()
        if any(read.is_urgent for read in reads):
            self.is_expired = True
        if self.is_expired or any(read.has_data for read in reads):
            self._read()

    def _on_dirty(self) -> None:
        if self.promise.done() or self.is_reading:
            self.is_stale = True
            return
        self._look()
        self._try()

    def _on_metadata(self) -> None:
        """What this broker did not know may be known now."""
        if self.promise.done():
            return
        ahead = [read for read in self.reads.values() if read.is_ahead]
        for read in ahead:
            self.session.touch(read.wanted, must_wake=False)
        self._on_dirty()
        if any(read.is_ahead for read in self.reads.values()):
            self.services.metadata.when_applied(self._on_metadata)

    def _expire(self) -> None:
        self.is_expired = True
        for read in self.reads.values():
            read.give_up_waiting()
        self._on_dirty()

    # -- reading

    def _read(self) -> None:
        """One hop to the I/O thread of each directory that holds something to read.

        What was appended just now, and is all that is wanted of a partition, needs no reading;
        unless it has to be known which transactions were aborted.
        """
        self.is_reading = True
        self.is_stale = False
        ready = [read for read in self.reads.values() if read.has_data]
        wanted = sum(max(read.wanted.max_bytes, 0) for read in ready)
        self.granted = self._memory.grant(min(wanted, self._max_bytes()))
        room = self.granted
        groups: dict[int, list[PartitionRead]] = {}
        for read in ready:
            partition = read.partition
            assert partition is not None
            fresh = None
            if not self.fetcher.is_committed:
                fresh = partition.fresh_records(read.wanted.fetch_offset, read.end_offset)
            if fresh is not None and len(fresh) <= min(room, read.wanted.max_bytes):
                read.data.records = fresh
                room -= len(fresh)
            else:
                groups.setdefault(id(partition.directory), []).append(read)
        self._read_groups(list(groups.values()), room, room < self.granted)

    @property
    def _memory(self) -> FetchMemory:
        services = self.services
        return services.replica_memory if self.fetcher.is_replica else services.fetch_memory

    def _max_bytes(self) -> int:
        """The client's limit, or what its quota could ever pay for."""
        quotas = self.services.quotas
        wanted = max(self.request.max_bytes, 0)
        if not quotas.is_active or self.fetcher.is_replica:
            return wanted
        return min(wanted, quotas.max_fetch_bytes(self.context))

    def _read_groups(self, groups: list[list[PartitionRead]], room: int, has_any: bool) -> None:
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
                    read.fail(error_code(error))
                self._read_groups(groups, room, has_any)
                return
            left, found = room, has_any
            for read, result in zip(group, results, strict=True):
                size = read.take(result)
                left -= size
                found = found or size > 0
            self._read_groups(groups, max(left, 0), found)

        partition.directory.executor.call(
            done, read_logs, items, room, has_any, self.fetcher.is_committed
        )

    def _done_reading(self) -> None:
        self.is_reading = False
        self._memory.give_back(self.granted)
        reads = self.reads.values()
        total = sum(len(read.data.records or b"") for read in reads)
        min_bytes = min(self.request.min_bytes, self.granted)
        if total >= min_bytes or self.is_expired or any(read.is_urgent for read in reads):
            self._answer()
            return
        # It is read anew when there is more: whoever waits holds no memory.
        for read in reads:
            read.put_back()
        if self.is_stale:
            self._on_dirty()

    # -- answering

    def _answer(self) -> None:
        if self.promise.done():
            return
        response, shown = self._response()
        wait_ms = self._charge(response)
        if wait_ms:
            self.promise.set_result(self._throttled(wait_ms))
            return
        if self.fetcher.is_replica:
            self._count_replicated(shown)
        else:
            self._count(shown)
        for read in shown:
            read.wanted.remember(read.data.high_watermark, read.data.log_start_offset)
        self._keep_in_mind()
        self.promise.set_result(response)

    def _keep_in_mind(self) -> None:
        """What the next fetch has to look at again: first what found no room, then the others."""
        dirty = self.session.dirty
        reads, self.reads = self.reads, {}
        for key, read in reads.items():
            if not read.is_settled and not read.data.records:
                dirty[key] = read.wanted
        for key, read in reads.items():
            if not read.is_settled and read.data.records:
                dirty.setdefault(key, read.wanted)

    def _count(self, shown: list[PartitionRead]) -> None:
        of = self.services.traffic.of
        for read in shown:
            if read.partition is not None:
                traffic = of(read.name)
                traffic.fetches += 1
                traffic.bytes_out += len(read.data.records or b"")
                traffic.failed_fetches += read.data.error_code != ErrorCode.NONE

    def _count_replicated(self, shown: list[PartitionRead]) -> None:
        services = self.services
        for read in shown:
            size = len(read.data.records or b"")
            services.traffic.replicated_bytes += size
            if size and read.partition is not None and read.partition.is_throttled_as_leader:
                services.leader_throttle.record(size)

    def _charge(self, response: FetchResponse) -> int:
        """The ms that the client's quotas make it wait."""
        quotas = self.services.quotas
        if not quotas.is_active or self.fetcher.is_replica:
            return 0
        version = self.context.api_version
        return quotas.charge_fetch(
            self.context, lambda: sum(map(len, encode_parts(response, version)))
        )

    def _throttled(self, wait_ms: int) -> FetchResponse:
        """Nothing but the time to wait; a session that has just begun is not begun (KIP-219)."""
        session_id = self.fetched.session_id
        if not self.fetched.is_incremental:
            self.services.fetch_sessions.forget(self.session)
            session_id = INVALID_SESSION_ID
        return FetchResponse(session_id=session_id, throttle_time_ms=wait_ms)

    def close(self) -> None:
        """Stop waiting; what was not told is for the next fetch."""
        if self.timer is not None:
            self.timer.cancel()
        self.services.metadata.forget(self._on_metadata)
        if self.session.on_dirty == self._on_dirty:
            self.session.on_dirty = None
        for key, read in self.reads.items():
            self.session.dirty[key] = read.wanted
        if not self.fetched.is_remembered:
            self.session.close()

    def _response(self) -> tuple[FetchResponse, list[PartitionRead]]:
        """The answer, and the reads that it shows."""
        response = FetchResponse(session_id=self.fetched.session_id)
        topics: dict[tuple[str, bytes], Topic] = {}
        shown: list[PartitionRead] = []
        by_id = self.context.api_version >= FIRST_TOPIC_ID_VERSION
        leaders: dict[int, None] = {}
        for topic_key, read in self.reads.items():
            data = read.data
            is_news = not read.is_ahead and read.wanted.is_news(
                data.high_watermark, data.log_start_offset
            )
            if self.fetched.is_incremental and not (data.records or is_news or read.has_news):
                continue
            shown.append(read)
            name = "" if by_id else read.name
            key = (name, topic_key.topic_id)
            if key not in topics:
                topics[key] = Topic(topic=name, topic_id=topic_key.topic_id)
                response.responses.append(topics[key])
            topics[key].partitions.append(data)
            if data.current_leader.leader_id >= 0:
                leaders[data.current_leader.leader_id] = None
        self._add_endpoints(response, leaders)
        return response, shown

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
    items: list[tuple[Log, int, int, int]], room: int, has_any: bool, is_committed: bool
) -> list[ReadResult]:
    """Read several logs of one directory, on its thread, within `room` bytes.

    The first batch of an answer is given whole, however large (KIP-74), so that a consumer can
    always get on; None where there was no room left. `is_committed` asks for the aborted
    transactions, too (KIP-98).
    """
    results: list[ReadResult] = []
    for log, offset, max_bytes, end_offset in items:
        if room < HEADER_BYTES and has_any:
            results.append(None)
            continue
        try:
            found = log.read(offset, min(max_bytes, room), end_offset, min_one_batch=not has_any)
        except ApiError as error:
            results.append(error)
            continue
        records = found.records
        aborted = log.aborted_transactions(offset, end_offset) if is_committed and records else ()
        results.append(Found(records, aborted))
        if len(records):
            has_any = True
            room -= len(records)
    return results


def fetch(
    services: BrokerServices, context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Serve the fetch of a consumer or a follower."""
    is_replica = fetcher_of(context, request).is_replica
    try:
        fetched = services.fetch_sessions.open(
            request, context.api_version, services.steady_ms(), is_replica=is_replica
        )
    except SessionError as error:
        return FetchResponse(error_code=error.code)
    fetched.session.serves_consumers = services.is_rack_aware
    # A follower waits for each partition by itself: others need not wait for those.
    if not is_replica and services.metadata.is_behind and _misses_a_replica(services, fetched):
        return _after_reactions(services, context, request, fetched)
    return _start(services, context, request, fetched)


def _misses_a_replica(services: BrokerServices, fetched: FetchContext) -> bool:
    by_id = services.metadata.image.topics.by_id
    for key in fetched.session.dirty:
        topic = by_id.get(key.topic_id)
        if services.replicas.is_coming(topic.name if topic else key.topic, key.partition):
            return True
    return False


async def _after_reactions(
    services: BrokerServices, context: RequestContext, request: FetchRequest, fetched: FetchContext
) -> FetchResponse:
    """A topic was created a moment ago: its logs are on their way."""
    await services.metadata.catch_up(CATCH_UP_S)
    return await _start(services, context, request, fetched)


def _start(
    services: BrokerServices, context: RequestContext, request: FetchRequest, fetched: FetchContext
) -> Awaitable[FetchResponse]:
    operation = _Fetch(services, context, request, fetched)
    promise: Awaitable[FetchResponse] = operation.promise
    operation.promise.add_done_callback(lambda _: operation.close())
    operation.start()
    return promise
