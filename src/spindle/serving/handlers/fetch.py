"""Fetch: byte ranges of the log to consumers and followers (KIP-74, 227, 392, 516, 595, 903, 951).

A fetch is answered as soon as `min_bytes` can be served, or a partition has an error or another
change to report. Otherwise it waits until the high watermark of a partition moves (for a follower:
until a log grows) or `max_wait_ms` is over. It checks only the partitions of its session that had
an event. Reads run on the I/O threads of the directories,
one hop for each, within the limits of the request.
"""

from collections.abc import Awaitable
from typing import Any

from spindle.common.errors import ApiError, CorruptLog, ErrorCode, error_code
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.promise import Promise
from spindle.protocol import versions
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.replication.fetch_session import (
    INVALID_SESSION_ID,
    FetchContext,
    FetchedPartition,
    PartitionKey,
    SessionError,
)
from spindle.serving.context import RequestContext
from spindle.serving.fetch.fetch_memory import FetchShare
from spindle.serving.fetch.fetch_response import (
    charge,
    count_consumed,
    count_replicated,
    fetch_answer,
    found_bytes,
    has_bytes,
    keep_for_next_fetch,
)
from spindle.serving.fetch.fetch_states import (
    ON_CHANGE,
    ON_DUE,
    ON_RECORDS,
    ON_TOO_LITTLE,
    FetchState,
    ReadState,
)
from spindle.serving.fetch.log_reads import ReadAndSend, read_logs
from spindle.serving.fetch.partition_read import (
    FetchRequester,
    PartitionRead,
    ReadResult,
    fetcher_of,
)
from spindle.serving.fetch.sendfile_response import (
    AnswerCutOff,
    BorrowedSocket,
    PartialResponse,
    frame_of,
)
from spindle.serving.ports import CATCH_UP_S
from spindle.serving.services import BrokerServices


class _Fetch:
    """One unanswered request; see `fetch_states` for its states.

    Attributes:
        reads: the partitions that it has checked.
        memory: the memory that this fetch may use.
        waits_for_metadata: it checks again when this broker has newer metadata.
        is_looking: a check is running, which also sees new events.
        loan: the socket of the client, while a directory's thread may use it.
        shown: reads in a response that a disk thread has already sent.
    """

    def __init__(
        self,
        services: BrokerServices,
        context: RequestContext,
        request: FetchRequest,
        fetched: FetchContext,
        fetcher: FetchRequester,
    ) -> None:
        self.services = services
        self.context = context
        self.request = request
        self.fetched = fetched
        self.session = fetched.session
        self.fetcher = fetcher
        memory = services.replica_memory if fetcher.is_replica else services.fetch_memory
        self.memory = FetchShare(memory, context.socket_owner)
        self.promise: Promise[Any] = Promise(services.loop)
        self.promise.on_cancel = self.close
        self.timer: Any = None
        self.state = FetchState.PARKED
        self.waits_for_metadata = False
        self.is_looking = False
        self.reads: dict[PartitionKey, PartitionRead] = {}
        self.loan: BorrowedSocket | None = None
        self.shown: list[PartitionRead] = []

    # -- deciding

    def start(self) -> None:
        """Answer at once if possible, else park."""
        self._look()
        max_wait_ms = self.request.max_wait_ms
        if max_wait_ms <= 0 or not self.session.partitions:
            self._give_up_waiting()
        self._try()
        if self.state < FetchState.FINISHING:
            self.session.on_dirty = self._on_dirty
            if self._is_ahead():
                self.waits_for_metadata = True
                self.services.metadata.when_applied(self._on_metadata)
            self.timer = self.services.loop.call_later(max_wait_ms / 1000, self._expire)

    def _look(self) -> None:
        """Check the partitions that had an event.

        If only the offsets of a log can have changed since the last check, update only these.
        """
        for wanted in self.session.take_dirty():
            known = self.reads.get(wanted.key)
            if known is not None and wanted.is_checked:
                known.take_offsets(self.services, self.fetcher)
                continue
            read = PartitionRead(wanted, self._name(wanted))
            read.prepare(self.services, self.fetcher)
            self.reads[wanted.key] = read

    def _name(self, wanted: FetchedPartition) -> str:
        """Return the name of the topic, "" for an unknown id; remember it for the session."""
        if self.context.api_version < versions.FETCH_TOPIC_IDS:
            return wanted.key.topic
        if not wanted.topic:
            topic = self.services.metadata.image.topics.by_id.get(wanted.key.topic_id)
            wanted.topic = topic.name if topic is not None else ""
        return wanted.topic

    def _is_ahead(self) -> bool:
        for read in self.reads.values():  # noqa: SIM110 - a generator costs as much as the rest
            if read.state is ReadState.AHEAD:
                return True
        return False

    def _try(self) -> None:
        """Read if an event requires it; otherwise stay parked."""
        has_data = False
        for read in self.reads.values():
            if read.state.must_answer:
                self.state = ON_DUE[self.state]
                break
            has_data = has_data or read.has_data
        else:
            if has_data:
                self.state = ON_RECORDS[self.state]
        if self.state is not FetchState.PARKED:
            self._read()

    def _on_dirty(self) -> None:
        """Handle an event of a partition of the session."""
        self.state = ON_CHANGE[self.state]
        if self.state is FetchState.PARKED and not self.is_looking:
            # Reading partitions can advance a high watermark, whose event would re-enter here.
            self.is_looking = True
            try:
                self._look()
            finally:
                self.is_looking = False
            self._try()

    def _on_metadata(self) -> None:
        """Recheck partitions that waited for newer metadata."""
        if self.state is FetchState.ANSWERED:
            return
        for read in self.reads.values():
            if read.state is ReadState.AHEAD:
                self.session.mark_changed(read.wanted, must_wake=False)
        self._on_dirty()
        if self._is_ahead():
            self.services.metadata.when_applied(self._on_metadata)

    def _expire(self) -> None:
        """`max_wait_ms` is over: answer with the available records."""
        is_parked = self.state is FetchState.PARKED
        self._give_up_waiting()
        if is_parked:
            self._look()
            self._read()

    def _give_up_waiting(self) -> None:
        self.state = ON_DUE[self.state]
        for read in self.reads.values():
            read.give_up_waiting()

    # -- reading

    def _read(self) -> None:
        """Read with one hop to the I/O thread of each directory that has records.

        The batches of the append that woke this fetch are still in memory: use them where they are
        all that a partition needs. A read_committed consumer also needs the aborted transactions
        from the log.
        """
        ready, wanted = [], 0
        for read in self.reads.values():
            if read.has_data:
                ready.append(read)
                wanted += max(read.wanted.max_bytes, 0)
        wanted = min(wanted, self._max_bytes())
        if self.fetcher.is_replica or not ready:
            self.memory.take(wanted)
        else:
            self.memory.forget(self._on_room)
            self.memory.ask(wanted, max(read.largest_batch for read in ready))
        room, from_disk = self.memory.room, list[PartitionRead]()
        for read in ready:
            partition = read.partition
            assert partition is not None
            appended = None
            if not (self.fetcher.is_committed or self.memory.is_refused):
                appended = partition.current_append_bytes(read.wanted.fetch_offset, read.end_offset)
            if appended is not None and len(appended) <= min(room, read.wanted.max_bytes):
                read.data.records = appended
                room -= len(appended)
            else:
                from_disk.append(read)
        if from_disk:
            self._read_logs(from_disk, room, room < self.memory.room)
        else:
            self._done_reading()

    def _max_bytes(self) -> int:
        """Return the client's limit, at most what its quota can ever pay for."""
        quotas = self.services.quotas
        wanted = max(self.request.max_bytes, 0)
        if not quotas.is_active or self.fetcher.is_replica:
            return wanted
        return min(wanted, quotas.max_fetch_bytes(self.context))

    def _read_logs(self, reads: list[PartitionRead], room: int, has_any: bool) -> None:
        """Read one directory after another, each within the remaining room.

        Each step looks up the directories of the logs again, because a log may have moved
        (KIP-113).
        """
        if not reads:
            self._done_reading()
            return
        directory = reads[0].directory
        group = [read for read in reads if read.directory is directory]
        rest = [read for read in reads if read.directory is not directory]
        self.loan = loan = None if rest else self._borrow()
        if loan is None and self.memory.is_refused:
            self._read_logs(rest, room, has_any)
            return
        requests = [
            (r.partition.log, r.wanted.fetch_offset, r.wanted.max_bytes, r.end_offset)
            for r in group
            if r.partition is not None
        ]

        def done(results: Any, error: BaseException | None) -> None:
            if loan is not None and not loan.take_back():
                self._done_sending(results, error)
                return
            if error is not None:
                for read in group:
                    read.fail(error_code(error))
                    read.restore()
                self._read_logs(rest, room, has_any)
                return
            left, value = room, has_any
            for read, result, request in zip(group, results, requests, strict=True):
                if isinstance(result, ApiError) and result.code == ErrorCode.CORRUPT_MESSAGE:
                    where = TopicPartition(read.name, read.wanted.key.partition)
                    self.services.refusals.report_damage(where, result)
                    if isinstance(result.__cause__, CorruptLog):
                        self.services.replicas.damages.note(request[0], result.__cause__)
                size = read.take(result)
                left -= size
                value = value or size > 0
            self._read_logs(rest, max(left, 0), value)

        is_committed = self.fetcher.is_committed
        if loan is None:
            directory.executor.call(done, read_logs, requests, room, has_any, is_committed)
            return
        missing_bytes = 0 if self._must_answer() else self._min_bytes() - found_bytes(self.reads)
        executor = directory.executor
        work = ReadAndSend(
            executor,
            loan,
            missing_bytes,
            lambda results: self._compose(group, results),
            not self.memory.is_refused,
        )
        executor.call(done, work.run, requests, room, has_any, is_committed)

    def _borrow(self) -> BorrowedSocket | None:
        """Return the connection's socket if records may go straight from a file to the client.

        Followers get records from memory, because a truncation may replace those in the file; so
        do clients with a quota, which is charged before the response is sent.
        """
        owner = self.context.socket_owner
        if owner is None or self.fetcher.is_replica:
            return None
        return None if self.services.quotas.is_active else owner.borrow_socket()

    def _must_answer(self) -> bool:
        if self.state is FetchState.FINISHING:
            return True
        for read in self.reads.values():  # noqa: SIM110 - see `_is_ahead`
            if read.state.must_answer:
                return True
        return False

    def _min_bytes(self) -> int:
        return min(self.request.min_bytes, self.memory.room)

    def _compose(self, group: list[PartitionRead], results: list[ReadResult]) -> list[Bytes]:
        """Build the response on the directory's thread; nothing else uses the reads meanwhile."""
        for read, result in zip(group, results, strict=True):
            read.take(result)
        response, self.shown = self._response()
        context = self.context
        return frame_of(response, context.api_key, context.api_version, context.correlation_id)

    def _done_sending(self, sent: PartialResponse | None, error: BaseException | None) -> None:
        """Continue after the directory's thread has sent as much of the response as possible."""
        self.memory.give_back()
        if self.state is FetchState.ANSWERED:
            # If the socket was taken back, the result may be that of a read.
            if isinstance(sent, PartialResponse) and sent.rest is not None:
                sent.rest.give_up()
            return
        self.state = FetchState.ANSWERED
        if sent is None:
            self.close()
            cut_off = AnswerCutOff(f"its answer cannot be completed: {error}")
            self.promise.settle(None, cut_off)
            return
        self._note_shown(self.shown)
        self._end(sent)

    def _done_reading(self) -> None:
        """Answer, or park again if the read returned less than `min_bytes`."""
        self.memory.give_back()
        if self.state is FetchState.ANSWERED:
            return
        was_changed = self.state is FetchState.READING_AGAIN
        is_enough = self._must_answer() or (
            not self.memory.is_refused and has_bytes(self.reads, self._min_bytes())
        )
        self.state = ON_TOO_LITTLE[self.state]
        if is_enough or self.state is not FetchState.PARKED:
            self._answer()
            return
        # A parked fetch holds no memory; it reads anew when there is more.
        for read in self.reads.values():
            read.restore()
        self.memory.wait(self._on_room)
        if was_changed:
            self._on_dirty()

    def _on_room(self) -> None:
        """Schedule a read, because memory may be available."""
        self.services.loop.call_later(0, self._on_dirty)

    # -- answering

    def _answer(self) -> None:
        self.state = FetchState.ANSWERED
        response, shown = self._response()
        wait_ms = charge(self.services, self.context, self.fetcher, response)
        if wait_ms:
            response = self._throttled(wait_ms)
        else:
            self._note_shown(shown)
        self._end(response)

    def _end(self, answer: FetchResponse | PartialResponse) -> None:
        """Send the response. The client may send the next fetch of the session at once."""
        self.close()
        self.promise.settle(answer)

    def _note_shown(self, shown: list[PartitionRead]) -> None:
        """Record what the response contains."""
        if self.fetcher.is_replica:
            count_replicated(self.services, shown)
        else:
            count_consumed(self.services, shown)
        for read in shown:
            read.wanted.remember(read.data.high_watermark, read.data.log_start_offset)
        reads, self.reads = self.reads, {}
        keep_for_next_fetch(self.session, reads)

    def _throttled(self, wait_ms: int) -> FetchResponse:
        """Return only the throttle time; discard a session that begins here (KIP-219)."""
        session_id = self.fetched.session_id
        if not self.fetched.is_incremental:
            self.services.fetch_sessions.forget(self.session)
            session_id = INVALID_SESSION_ID
        return FetchResponse(session_id=session_id, throttle_time_ms=wait_ms)

    def _response(self) -> tuple[FetchResponse, list[PartitionRead]]:
        return fetch_answer(self.services, self.context, self.fetched, self.fetcher, self.reads)

    def close(self) -> None:
        """Stop waiting; unsent changes stay in the session for the next fetch."""
        self.state = FetchState.ANSWERED
        if self.timer is not None:
            self.timer.cancel()
        if self.loan is not None:
            self.loan.take_back()
        self.memory.forget(self._on_room)
        if self.waits_for_metadata:
            self.services.metadata.forget(self._on_metadata)
        if self.session.on_dirty == self._on_dirty:
            self.session.on_dirty = None
        for key, read in self.reads.items():
            self.session.dirty[key] = read.wanted
        if not self.fetched.is_remembered:
            self.session.close()


def fetch(
    services: BrokerServices, context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse | PartialResponse]:
    """Serve the fetch of a consumer or a follower."""
    fetcher = fetcher_of(context, request)
    is_replica = fetcher.is_replica
    try:
        fetched = services.fetch_sessions.open(
            request, context.api_version, services.steady_ms(), is_replica=is_replica
        )
    except SessionError as error:
        return FetchResponse(error_code=error.code)
    fetched.session.serves_consumers = services.is_rack_aware
    operation = _Fetch(services, context, request, fetched, fetcher)
    # A follower's partitions wait one by one (ReadState.AHEAD), so that the others are served.
    if not is_replica and services.metadata.is_behind and _misses_a_replica(services, fetched):
        return _after_reactions(operation)
    operation.start()
    return operation.promise


def _misses_a_replica(services: BrokerServices, fetched: FetchContext) -> bool:
    by_id = services.metadata.image.topics.by_id
    for key in fetched.session.dirty:
        topic = by_id.get(key.topic_id)
        if services.replicas.is_expected(topic.name if topic else key.topic, key.partition):
            return True
    return False


async def _after_reactions(operation: _Fetch) -> FetchResponse | PartialResponse:
    """Serve the fetch when the replicas have applied the metadata of a recently created topic."""
    await operation.services.metadata.catch_up(CATCH_UP_S)
    operation.start()
    answer: FetchResponse | PartialResponse = await operation.promise
    return answer
