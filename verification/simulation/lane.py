"""A model of the native lane of a log directory: a second thread beside the event loop.

It serves Produce and Fetch with the permissions that the real code of Python grants and recalls,
and its notes to the event loop arrive late, in order. A request takes several steps, each at a time
of its own, and anything may happen between two of them. While the disk hangs, the lane waits in the
middle of a request. The model has no fetch sessions: requests with one are Python's.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import copy_context
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.log.lease import LeaseTerms
from spindle.protocol.api import APIS, FETCH, PRODUCE
from spindle.protocol.codec import TooManyElements
from spindle.protocol.framing import SIZE, RequestHeader, read_request_header
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.produce import ProduceResponse
from spindle.protocol.records.batch import BatchHeader
from spindle.protocol.requests import read_request
from spindle.runtime.lanes.native_lanes import Targets
from spindle.serving.fetch.sendfile_response import frame_of
from verification.simulation.disk import Interrupted, SimulatedDisks
from verification.simulation.lane_leases import LaneRecords, LeaseModel, check_client_batch
from verification.simulation.network import BorrowingReader, Transport

if TYPE_CHECKING:
    from spindle._native import Lane as NativeLane
    from verification.simulation.loop import SimulatedLoop
else:
    NativeLane = object

_MAX_ELEMENTS: Final = 1024
_TOPIC_IDS: Final = 13
"""Versions of Produce and Fetch from which on topics are named by id."""
_STEP_S: Final = 0.002
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class _Wait(Enum):
    WORK = "nothing is to be done"
    DISK = "the disk hangs"


class _Step(Enum):
    SERVED = "the response is to be sent"
    WAITS = "a fetch waits for records"
    RETURN = "only Python has an answer"
    CLOSE = "the connection has to end"


_Work = Generator[float | _Wait, None, None]
"""The steps of the thread. Each yields the time until the next one in s, or its wait."""
_Served = Generator[float | _Wait, None, _Step]


class _Seat(BorrowingReader):
    """A connection in the lane."""

    def __init__(self, lane: "LaneModel", token: int, transport: Transport) -> None:
        self.token = token
        self.transport = transport
        self.input = bytearray()
        self.must_return = False
        self.last_frame = b""
        """The last request that the lane has answered, with its size."""
        self.deadline_s: float | None = None
        self.response: Callable[[], bytes | None] | None = None
        """Returns the response that is to be sent; None if its records were removed meanwhile."""
        self._lane = lane

    def received(self, data: bytes) -> None:
        """Take bytes of the client."""
        self.input += data
        self._lane.bytes_in += len(data)
        self._lane.look_at(self.token)

    def ended(self) -> None:
        """Note that the client, or the network, has ended the connection."""
        self._lane.connection_ended(self.token)

    @property
    def frame(self) -> bytes | None:
        """The first complete frame; None if there is none."""
        if len(self.input) < SIZE.size:
            return None
        (size_bytes,) = SIZE.unpack_from(self.input)
        end = SIZE.size + size_bytes
        return bytes(self.input[SIZE.size : end]) if len(self.input) >= end else None


class _Part(NamedTuple):
    """A partition of a request: name or id of its topic, its number, and its fields."""

    topic: bytes
    number: int
    fields: Any


class _Produced(NamedTuple):
    error_code: int
    base_offset: int
    log_append_time_ms: int


class _Fetched(NamedTuple):
    records: LaneRecords
    high_watermark: int
    log_start_offset: int


class LaneModel(NativeLane):
    """See `spindle._native.Lane`."""

    def __init__(
        self,
        path: str,
        loop: "SimulatedLoop",
        random: Random,
        disks: SimulatedDisks,
        wall_clock_ms: Callable[[], int],
        on_interrupted: Callable[[], None],
    ) -> None:
        self.disks = disks
        self.bytes_in = self.bytes_out = 0
        self._path = path
        self._loop = loop
        self._random = random
        self._wall_clock_ms = wall_clock_ms
        self._on_interrupted = on_interrupted
        self._context = copy_context()
        self._bell = loop.new_descriptor()
        self._is_bell_rung = False
        self._leases: dict[int, LeaseModel] = {}
        self._last_number = 0
        self._ended: list[int] = []
        self._dirty: dict[int, LeaseModel] = {}
        self._progress: list[LeaseModel] = []
        self._has_progress = False
        self._events: list[tuple[int, bytes | None, bool, int, None]] = []
        self._failure: tuple[int, str] | None = None
        self._has_failed = False
        self._disk_steps = 0
        self._when_left: list[Callable[[], None]] = []
        self._seats: dict[int, _Seat] = {}
        self._commands: deque[Callable[[], None]] = deque()
        self._ready: dict[int, bool] = {}
        """Connections that get a turn, and whether the wait of their fetch is over."""
        self._is_stopped = False
        self._work = self._run()
        self._next_step: asyncio.TimerHandle | None = None
        self._waits_for: _Wait | None = _Wait.WORK

    # -- what Python sees

    @property
    def descriptor(self) -> int:
        return self._bell

    @property
    def path(self) -> str:
        return self._path

    @property
    def disk_steps(self) -> int:
        return self._disk_steps

    @property
    def has_progress(self) -> bool:
        return self._has_progress

    @property
    def held_bytes(self) -> int:
        return 0

    def enter(self) -> None:
        assert not self.is_inside, "the directory's thread has not waited for the lane"

    def leave(self) -> None:
        """Do nothing: a function of the directory's thread takes no time."""

    def grant(self, **terms: Any) -> LeaseModel:
        former = terms.pop("former")
        cuts = former.cuts if isinstance(former, LeaseModel) and not former.cuts else None
        self._last_number += 1
        lease = LeaseModel(self, self._last_number, LeaseTerms(**terms), cuts)
        self._leases[lease.id] = lease
        return lease

    def take_changes(self) -> Any:
        dirty, self._dirty = self._dirty, {}
        changes = [lease.take_changes() for lease in dirty.values() if lease.id in self._leases]
        numbers, self._ended = self._ended, []
        gone = [self._leases.pop(number) for number in numbers if number in self._leases]
        ended = [(lease.id, lease.end_offset, lease.high_watermark) for lease in gone]
        return changes, ended, None

    def adopt(
        self, descriptor: int, token: int, listener: int, received: bytes, session: Any
    ) -> None:
        assert session is None, "the model has no fetch sessions"
        transport = self._loop.network.transport_of(descriptor)

        def adopt() -> None:
            seat = self._seats[token] = _Seat(self, token, transport)
            seat.input += received
            self._ready[token] = False
            transport.lend(seat)

        self._command(adopt)

    def ask_back(self, token: int, max_idle_ms: int) -> None:
        self._command(lambda: self._ask_back([token]))

    def ask_all_back(self) -> None:
        self._command(lambda: self._ask_back(list(self._seats)))

    def _ask_back(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if token in self._seats:
                self._seats[token].must_return = True
                self._ready.setdefault(token, False)

    def take_events(self) -> Any:
        self._is_bell_rung = False
        events, self._events = self._events, []
        return events

    def take_progress(self) -> list[int]:
        self._has_progress = False
        progress, self._progress = self._progress, []
        for lease in progress:
            lease.is_reported = False
        return [lease.id for lease in progress]

    def take_request_times(self) -> Any:
        return []

    def take_traffic(self) -> tuple[int, int]:
        traffic = self.bytes_in, self.bytes_out
        self.bytes_in = self.bytes_out = 0
        return traffic

    def failure(self) -> tuple[int, str] | None:
        return self._failure

    def fail(self) -> None:
        self._has_failed = True
        self.ask_all_back()

    def stop(self) -> None:
        def stop() -> None:
            self._is_stopped = True

        self._command(stop)

    def join(self, timeout_s: float) -> bool:
        while self._next_step is not None and timeout_s > 0:
            self._advance()
        return self._waits_for is not _Wait.DISK

    # -- for the simulation

    @property
    def is_inside(self) -> bool:
        """True while the lane works with the logs: the directory's thread has to wait."""
        return self._disk_steps % 2 == 1

    def when_left(self, resume: Callable[[], None]) -> None:
        """Call back when the lane, which is inside, works with no log."""
        self._when_left.append(resume)

    def look_at(self, token: int, *, is_due: bool = False) -> None:
        """Give a connection a turn."""
        self._ready[token] = is_due or self._ready.get(token, False)
        self._wake_thread()

    def connection_ended(self, token: int) -> None:
        """Report that a connection was closed."""
        self._command(lambda: self._close(token))

    def lease_ended(self, lease: LeaseModel) -> None:
        """Note that a lease has ended; its state stays until the next `take_changes`."""
        self._ended.append(lease.id)
        if lease.waiting:
            self.wake()

    def wake(self) -> None:
        """Look again at what waits."""
        self._command(lambda: None)

    # -- the thread

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake_thread()

    def _wake_thread(self) -> None:
        if self._waits_for is _Wait.WORK:
            self._later(self._step_s())

    def _later(self, delay_s: float) -> None:
        self._waits_for = None
        when = self._loop.time() + delay_s
        self._next_step = self._loop.call_at(when, self._advance, context=self._context)

    def _step_s(self) -> float:
        """Return the time until the next step: mostly short, so that others fit between."""
        return self._random.uniform(0.0, self._random.choice((0.0, _STEP_S, 5 * _STEP_S)))

    def _advance(self) -> None:
        if self._next_step is not None:
            self._next_step.cancel()
            self._next_step = None
        try:
            waits_for = next(self._work, None)
        except Interrupted:
            self._on_interrupted()
            return
        if isinstance(waits_for, float):
            self._later(waits_for)
            return
        self._waits_for = waits_for
        if waits_for is _Wait.DISK:
            context = self._context.copy()
            self.disks.when_released(self._path, lambda: context.run(self._later, 0.0))

    def _run(self) -> _Work:
        """Serve until `stop`."""
        while not self._is_stopped:
            if self._commands:
                while self._commands:
                    self._commands.popleft()()
                # A lease may have ended, or a high watermark may have moved.
                waiting = [
                    token for token, seat in self._seats.items() if seat.deadline_s is not None
                ]
                self._ready = dict.fromkeys(waiting, False) | self._ready
            elif self._ready:
                token = next(iter(self._ready))
                yield from self._serve(token, is_due=self._ready.pop(token))
            else:
                yield _Wait.WORK

    def _serve(self, token: int, *, is_due: bool) -> _Work:
        """Serve the complete frames of a connection."""
        while (seat := self._seats.get(token)) is not None:
            if seat.must_return or self._has_failed:
                self._give_back(seat, is_served=True)
                return
            frame = seat.frame
            if frame is None:
                return
            step, is_due = (yield from self._serve_frame(seat, frame, is_due=is_due)), False
            if token not in self._seats or step is _Step.WAITS:
                return
            if step is _Step.CLOSE:
                self._close(token)
                return
            if step is _Step.RETURN:
                self._give_back(seat, is_served=self._has_failed)
                return
            seat.deadline_s = None
            end = SIZE.size + len(frame)
            seat.last_frame = bytes(seat.input[:end])
            del seat.input[:end]
            yield from self._send(seat)

    def _send(self, seat: _Seat) -> _Work:
        """Send the response, which may have to be read from the files now."""
        respond, seat.response = seat.response, None
        yield self._step_s()
        if respond is None:
            return
        yield from self._enter()
        try:
            response = respond()
        except OSError as error:
            self._disk_failed(error)
            response = None
        finally:
            self._leave()
        if response is None:
            self._close(seat.token)
        elif seat.token in self._seats:
            seat.transport.send(response)
            self.bytes_out += len(response)

    def _give_back(self, seat: _Seat, *, is_served: bool) -> None:
        """Give a connection back to the event loop, with the frames that were not served."""
        del self._seats[seat.token]
        seat.transport.take_back()
        self._report((seat.token, bytes(seat.input), is_served, 0, None))

    def _close(self, token: int) -> None:
        if self._seats.pop(token, None) is not None:
            self._report((token, None, False, 0, None))

    def _report(self, event: tuple[int, bytes | None, bool, int, None]) -> None:
        self._events.append(event)
        self._ring_loop()

    def _ring_loop(self) -> None:
        if not self._is_bell_rung:
            self._is_bell_rung = True
            self._loop.readable(self._bell, self._step_s())

    def _serve_frame(self, seat: _Seat, frame: bytes, *, is_due: bool) -> _Served:
        request = _read(frame)
        if request is None:
            return _Step.RETURN
        if request[0].api_key == PRODUCE:
            return (yield from self._produce(seat, *request))
        return (yield from self._fetch(seat, *request, is_due=is_due))

    # -- at the gate

    def _enter(self) -> _Work:
        """Pass the gate, and wait while the disk hangs."""
        self._disk_steps += 1
        yield from self._wait_for_disk()

    def _wait_for_disk(self) -> _Work:
        while self.disks.hangs(self._path, is_beside=False):
            yield _Wait.DISK

    def _leave(self) -> None:
        self._disk_steps += 1
        waiting, self._when_left = self._when_left, []
        for resume in waiting:
            self._loop.call_soon(resume, context=self._context.copy())

    def _lease_of(self, part: _Part) -> LeaseModel | None:
        """Return the valid lease of a partition."""
        for lease in self._leases.values():
            terms = lease.terms
            names = terms.topic, terms.topic_id
            if lease.is_valid and part.topic in names and part.number == terms.partition:
                return lease
        return None

    def _disk_failed(self, error: OSError) -> None:
        self._failure = self._failure or (error.errno or errno.EIO, str(error))
        self._has_failed = True
        self._ring_loop()

    # -- Produce

    def _produce(
        self, seat: _Seat, header: RequestHeader, message: Any, parts: Sequence[_Part]
    ) -> _Served:
        batches = [
            check_client_batch(bytes(part.fields.records or b""), header.api_version)
            for part in parts
        ]
        results: list[_Produced] = []
        error: OSError | None = None
        yield from self._enter()
        try:
            leases = self._admitted(parts, batches, message.acks)
            if leases is None or self._has_failed:
                return _Step.RETURN
            yield self._step_s()
            # A write that has begun may hang, and be done after the directory has failed.
            yield from self._wait_for_disk()
            for lease, part in zip(leases, parts, strict=True):
                try:
                    if error is None:
                        self._dirty[lease.id] = lease
                        records = bytearray(part.fields.records)
                        results.append(_Produced(0, *lease.append(records, self._wall_clock_ms())))
                        continue
                except OSError as failure:
                    error = failure
                    lease.end(was_cut=False)
                lease.failed()
                results.append(_Produced(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1))
            if results[0].error_code:
                return _Step.RETURN  # nothing is written: Python tries again
            yield self._step_s()
            for lease in leases:
                self._appended(lease)
        finally:
            self._leave()
            if error is not None and error.errno not in _DISK_FULL:
                self._disk_failed(error)
        if message.acks == 0:
            return _Step.SERVED if error is None else _Step.CLOSE
        starts = [lease.terms.log_start_offset for lease in leases]
        response = _produced(header, message, zip(results, starts, strict=True))
        seat.response = lambda: response
        return _Step.SERVED

    def _admitted(
        self, parts: Sequence[_Part], batches: Sequence[BatchHeader | None], acks: int
    ) -> list[LeaseModel] | None:
        """Return the leases of all partitions, if every batch may be appended now."""
        leases: list[LeaseModel] = []
        for part, batch in zip(parts, batches, strict=True):
            lease = self._lease_of(part)
            if lease is None or batch is None or lease in leases:
                return None
            if not lease.may_append(batch, acks, self._wall_clock_ms()):
                return None
            leases.append(lease)
        return leases

    def _appended(self, lease: LeaseModel) -> None:
        """Report an append, and look again at the fetches that wait for it."""
        waiting, lease.waiting = lease.waiting, {}
        for token in waiting:
            self._ready.setdefault(token, False)
        self._note(lease)
        if lease.must_wake:
            self._ring_loop()

    def _note(self, lease: LeaseModel) -> None:
        if not lease.is_reported:
            lease.is_reported = True
            self._progress.append(lease)
            self._has_progress = True

    # -- Fetch

    def _fetch(
        self,
        seat: _Seat,
        header: RequestHeader,
        message: Any,
        parts: Sequence[_Part],
        *,
        is_due: bool,
    ) -> _Served:
        if not parts or message.session_id or message.session_epoch >= 0:
            return _Step.RETURN
        yield from self._enter()
        try:
            leases = self._readable(parts, is_committed=message.isolation_level == 1)
            if leases is None:
                return _Step.RETURN
            fetched = self._located(leases, parts, message.max_bytes)
            size_bytes = sum(f.records.size_bytes for f in fetched)
            if not is_due and size_bytes < max(message.min_bytes, 1) and message.max_wait_ms > 0:
                for lease in leases:
                    lease.waiting[seat.token] = None
                self._wait(seat, message.max_wait_ms / 1000)
                return _Step.WAITS
            yield self._step_s()
            is_in_memory = self._random.random() < 0.5
            bodies = [f.records.read() for f in fetched] if is_in_memory else None
        except OSError as error:
            self._disk_failed(error)
            return _Step.RETURN
        finally:
            self._leave()
        for lease, one in zip(leases, fetched, strict=True):
            lease.fetched(one.records.size_bytes)
            self._note(lease)

        def response() -> bytes | None:
            if bodies is not None:
                return _fetched(header, message, zip(fetched, bodies, strict=True))
            if any(lease.cuts for lease in leases):
                return None
            late = [one.records.read() for one in fetched]
            return _fetched(header, message, zip(fetched, late, strict=True))

        seat.response = response
        return _Step.SERVED

    def _readable(self, parts: Sequence[_Part], *, is_committed: bool) -> list[LeaseModel] | None:
        """Return the leases of all partitions; None if one of them has another answer."""
        leases: list[LeaseModel] = []
        for part in parts:
            lease = self._lease_of(part)
            if lease is None or lease in leases:
                return None
            epoch, terms = part.fields.current_leader_epoch, lease.terms
            if (
                epoch not in (-1, terms.leader_epoch)
                or (is_committed and terms.has_transactions)
                or not terms.log_start_offset <= part.fields.fetch_offset <= lease.end_offset
            ):
                return None
            leases.append(lease)
        return leases

    def _located(
        self, leases: Sequence[LeaseModel], parts: Sequence[_Part], max_bytes: int
    ) -> list[_Fetched]:
        fetched: list[_Fetched] = []
        for lease, part in zip(leases, parts, strict=True):
            has_any = any(f.records.size_bytes for f in fetched)
            high_watermark = lease.high_watermark
            records = lease.locate(
                part.fields.fetch_offset,
                min(max_bytes, part.fields.partition_max_bytes),
                min_one_batch=not has_any,
            )
            max_bytes -= records.size_bytes
            fetched.append(_Fetched(records, high_watermark, lease.terms.log_start_offset))
        return fetched

    def _wait(self, seat: _Seat, wait_s: float) -> None:
        if seat.deadline_s is None:
            seat.deadline_s = deadline_s = self._loop.time() + wait_s
            self._loop.call_at(deadline_s, self._due, seat, deadline_s, context=self._context)

    def _due(self, seat: _Seat, deadline_s: float) -> None:
        if seat.deadline_s == deadline_s and self._seats.get(seat.token) is seat:
            seat.deadline_s = None
            self.look_at(seat.token, is_due=True)


# -- requests and responses


def _read(frame: bytes) -> tuple[RequestHeader, Any, list[_Part]] | None:
    """Return a request that a lane may serve, and its partitions; None for all others."""
    try:
        header = read_request_header(frame)
        api = APIS[header.api_key]
        version = header.api_version
        if header.api_key not in (PRODUCE, FETCH):
            return None
        if not api.first_version <= version <= api.last_version:
            return None
        message: Any = read_request(header.api_key, version, frame, header.body, _MAX_ELEMENTS)
    except (ProtocolViolation, TooManyElements):
        return None
    if header.api_key == PRODUCE:
        if message.transactional_id is not None:
            return None
        rows = [(t, p.index, p) for t in message.topic_data for p in t.partition_data]
    else:
        if message.replica_id >= 0 or message.replica_state.replica_id >= 0:
            return None
        rows = [(t, p.partition, p) for t in message.topics for p in t.partitions]
        is_compared = any(fields.last_fetched_epoch >= 0 for _, _, fields in rows)
        if message.forgotten_topics_data or is_compared:
            return None
    has_ids = version >= _TOPIC_IDS
    parts = [
        _Part(bytes(topic.topic_id) if has_ids else _name(topic).encode(), index, fields)
        for topic, index, fields in rows
    ]
    return header, message, parts


def _name(topic: Any) -> str:
    name: str = topic.name if hasattr(topic, "name") else topic.topic
    return name


def targets_of_produce(frame: bytes) -> tuple[int, bool, Targets] | None:
    """See `NativeLanes`."""
    request = _read(frame)
    if request is None or request[0].api_key != PRODUCE:
        return None
    header, message, parts = request
    return message.acks, header.api_version >= _TOPIC_IDS, [(p.topic, p.number) for p in parts]


def targets_of_fetch(frame: bytes) -> tuple[int, int, bool, Targets] | None:
    """See `NativeLanes`."""
    request = _read(frame)
    if request is None or request[0].api_key != FETCH:
        return None
    header, message, parts = request
    if message.session_id or message.session_epoch >= 0:
        return None
    targets = [(part.topic, part.number) for part in parts]
    return 0, -1, header.api_version >= _TOPIC_IDS, targets


def _response(header: RequestHeader, message: Message) -> bytes:
    parts = frame_of(message, header.api_key, header.api_version, header.correlation_id)
    return b"".join(map(bytes, parts))


def _produced(
    header: RequestHeader,
    message: Any,
    results: Iterator[tuple[_Produced, int]],
) -> bytes:
    topic_row = ProduceResponse.TopicProduceResponse
    rows = []
    for topic in message.topic_data:
        partitions = []
        for part in topic.partition_data:
            result, log_start_offset = next(results)
            partitions.append(
                topic_row.PartitionProduceResponse(
                    index=part.index,
                    error_code=result.error_code,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=-1 if result.error_code else log_start_offset,
                )
            )
        rows.append(
            topic_row(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    return _response(header, ProduceResponse(responses=rows))


def _fetched(
    header: RequestHeader, message: Any, results: Iterator[tuple[_Fetched, bytes]]
) -> bytes:
    topic_row = FetchResponse.FetchableTopicResponse
    rows = []
    for topic in message.topics:
        partitions = []
        for part in topic.partitions:
            fetched, records = next(results)
            partitions.append(
                topic_row.PartitionData(
                    partition_index=part.partition,
                    high_watermark=fetched.high_watermark,
                    last_stable_offset=fetched.high_watermark,
                    log_start_offset=fetched.log_start_offset,
                    aborted_transactions=None,
                    records=records,
                )
            )
        rows.append(topic_row(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
    return _response(header, FetchResponse(responses=rows))
