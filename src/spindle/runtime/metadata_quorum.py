"""Drives the quorum's state machine: disk, peers, timers and listeners around `raft.Quorum`.

Everything runs on the event loop's thread but the file work, which goes to the metadata directory's
thread as one job per round. While a job runs, what later steps want done collects and becomes the
next job with a single flush: appends are committed in groups without waiting for one another.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import Endpoint, OffsetAndEpoch
from spindle.common.ports import RandomSource
from spindle.metadata.features import METADATA_VERSION
from spindle.metadata.record_versions import record_version
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.protocol.metadata_frame import frame
from spindle.raft.committed import decode_batches
from spindle.raft.core import LocalNode, QuorumSettings
from spindle.raft.delivery import Delivery, Subscription
from spindle.raft.listener import CommittedBatch, LeaderAndEpoch, QuorumListener
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID
from spindle.raft.metadata_log import MetadataLog
from spindle.raft.quorum import Quorum
from spindle.raft.quorum_state import ElectionState
from spindle.raft.ready import (
    Append,
    AppendRecords,
    Destination,
    Event,
    Flush,
    InstallSnapshot,
    KRaftVersionUpgrade,
    LogCleaned,
    LogFlushed,
    LogOperation,
    ReadLog,
    ReadSnapshot,
    Ready,
    Reply,
    Request,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Shutdown,
    SnapshotInstalled,
    SnapshotWritten,
    Start,
    Tick,
    Truncate,
    WriteSnapshotChunk,
)
from spindle.raft.responses import leader_destination
from spindle.raft.roles import Resigned
from spindle.raft.snapshots import SnapshotInfo, encode_snapshot, read_snapshot
from spindle.raft.voters import VoterSet

logger = logging.getLogger(__name__)

_LOAD_BYTES: Final = 1 << 20
_CLEAN_PERIOD_S: Final = 60.0
_NEWEST_METADATA_VERSION: Final = 2**15 - 1

SERVED_APIS: Final = frozenset((1, 52, 53, 54, 55, 59, 80, 81, 82))
"""Keys of the APIs that `handle` serves."""

DiskCallback = Callable[[Any, BaseException | None], None]


class DirectoryThread(Protocol):
    """The metadata directory's thread: jobs run in order, callbacks on the event loop, too."""

    def call(
        self, callback: DiskCallback | None, function: Callable[..., Any], *args: Any
    ) -> None: ...


class PeerUnavailable(Exception):
    """A peer gave no answer: it cannot be reached, was too slow, or closed the connection."""


class PeerLacksVersion(Exception):
    """A peer knows no version of the request that could carry it."""


class Peers(Protocol):
    """Connections to the other nodes of the quorum."""

    async def request(self, destination: Destination, message: Message) -> Message:
        """Send and wait for the answer.

        Raises:
            PeerUnavailable: no answer will come.
            PeerLacksVersion: the peer cannot be asked that.
        """
        ...


class RecordEncoder:
    """Frames metadata records in the versions that the cluster's metadata.version asks for."""

    def __init__(self) -> None:
        self._level = _NEWEST_METADATA_VERSION

    def encode(self, record: Message) -> bytes:
        self.note(record)
        return frame(record, record_version(record, self._level))

    def note(self, record: Message) -> None:
        """Follow the level as records set it."""
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            self._level = record.feature_level


class _Job(NamedTuple):
    """One round of file work."""

    readies: list[Ready]
    kraft_version: int
    now_ms: int


class _Outcome(NamedTuple):
    """What a job found: bytes read for replies, and a snapshot that was installed."""

    reads: dict[int, Any]
    installed: tuple[OffsetAndEpoch, SnapshotInfo] | None


class _Loaded(NamedTuple):
    """What was read from the disk for a listener that is behind."""

    snapshot_id: OffsetAndEpoch | None
    batches: list[CommittedBatch]


class RaftMetadataQuorum:
    """The local node's membership in the metadata quorum.

    Args:
        clock: milliseconds since the epoch by a clock that does not go back.
        on_fault: called once if the node cannot go on; nothing is served afterwards.
    """

    def __init__(
        self,
        local: LocalNode,
        settings: QuorumSettings,
        static_voters: VoterSet,
        log: MetadataLog,
        thread: DirectoryThread,
        peers: Peers,
        random: RandomSource,
        clock: Callable[[], int],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._local = local
        self._settings = settings
        self._static_voters = static_voters
        self._log = log
        self._thread = thread
        self._peers = peers
        self._random = random
        self._clock = clock
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._encoder = RecordEncoder()
        self._waiting: deque[Ready] = deque()
        self._is_disk_busy = False
        self._is_round_due = False
        self._is_stopped = False
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._next_token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._clean_timer: asyncio.TimerHandle | None = None
        self._exchanges: set[asyncio.Task[None]] = set()
        self._pending_append: list[CommittedBatch] | None = None
        self._snapshots_in_work: set[OffsetAndEpoch] = set()
        self._settled: list[asyncio.Future[None]] = []
        self._quorum: Quorum
        self._delivery: Delivery

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Load log and state and take part in the quorum.

        Raises:
            CorruptLog: a file of the metadata directory is not what it should be.
            LogDirectoryFailed: the metadata directory cannot be read.
        """
        stored = await self._on_disk(self._log.load, self._static_voters)
        self._quorum = Quorum(self._local, self._settings, self._random, stored)
        self._delivery = Delivery(stored.log.end_offset)
        self._step(Start())
        self._clean_timer = self._loop.call_later(_CLEAN_PERIOD_S, self._clean_periodically)

    async def stop(self, timeout_s: float) -> None:
        """Resign if leading, let the voters know, finish the file work, close the log."""
        if self._is_stopped:
            return
        deadline = self._loop.time() + timeout_s
        self._step(Shutdown())
        while self._loop.time() < deadline and not self._is_stopped and self._has_farewells():
            await asyncio.wait(
                self._exchanges,
                timeout=max(0.0, deadline - self._loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
        await self._until_settled(deadline)
        self._halt()
        await self._on_disk(self._log.close)

    def _has_farewells(self) -> bool:
        role = self._quorum.core.role
        return isinstance(role, Resigned) and bool(role.unacknowledged_ids and self._exchanges)

    async def _until_settled(self, deadline: float) -> None:
        if (self._waiting or self._is_disk_busy) and not self._is_stopped:
            settled: asyncio.Future[None] = self._loop.create_future()
            self._settled.append(settled)
            await asyncio.wait([settled], timeout=max(0.0, deadline - self._loop.time()))

    def _halt(self) -> None:
        self._is_stopped = True
        for timer in (self._timer, self._clean_timer):
            if timer is not None:
                timer.cancel()
        for exchange in list(self._exchanges):
            exchange.cancel()
        for future in list(self._answers.values()):
            if not future.done():
                future.set_exception(
                    ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the node leaves the quorum")
                )
        self._answers.clear()

    def _fail(self, fault: BaseException) -> None:
        if not self._is_stopped:
            story = list(self._quorum.core.story) if hasattr(self, "_quorum") else []
            logger.error("the metadata quorum stops here; last roles: %s", story, exc_info=fault)
            self._halt()
            self._on_fault(fault)

    # ------------------------------------------------------------ what others see

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader as the listeners know it."""
        return self._quorum.core.visible_leader

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The leader's default controller listener, if it is known."""
        at = leader_destination(self._quorum.core)
        return Endpoint(self._local.controller_listener, at.host, at.port) if at else None

    @property
    def high_watermark(self) -> int | None:
        return self._quorum.core.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._quorum.core.log.end_offset

    @property
    def kraft_version(self) -> int:
        return self._quorum.core.history.kraft_version

    @property
    def voters(self) -> VoterSet:
        return self._quorum.core.voters

    def subscribe(self, listener: QuorumListener) -> None:
        """Deliver the newest snapshot and all committed batches, then whatever follows."""
        subscription = self._delivery.subscribe(listener)
        leader = self.leader
        is_local = leader.leader_id == self._local.key.id
        after_offset = (self.high_watermark or 0) if is_local else 0
        self._loop.call_soon(self._introduce, subscription, leader, after_offset)

    def unsubscribe(self, listener: QuorumListener) -> None:
        self._delivery.unsubscribe(listener)

    def _introduce(
        self, subscription: Subscription, leader: LeaderAndEpoch, after_offset: int
    ) -> None:
        if subscription.leader is None and leader == self.leader:
            self._delivery.announce(subscription, leader, after_offset)
        self._load_for(subscription)

    # ------------------------------------------------------------ requests

    def append(self, epoch: int, records: Sequence[Message], *, is_atomic: bool) -> int:
        """Schedule an append as leader of `epoch`; the offset of the last record.

        Raises:
            NotLeader: the local node does not lead `epoch` (any more).
            ValueError: nothing to append, or atomic records that exceed one batch.
        """
        values = [self._encoder.encode(record) for record in records]
        now_ms = self._clock()
        ready = self._quorum.step(AppendRecords(epoch, values, is_atomic), now_ms)
        done = 0
        batches: list[CommittedBatch] = []
        for operation in ready.log_operations:
            if isinstance(operation, Append):
                count = operation.end_offset - operation.base_offset
                batches.append(
                    CommittedBatch(
                        operation.base_offset,
                        operation.end_offset - 1,
                        epoch,
                        now_ms,
                        len(operation.batches),
                        list(records[done : done + count]),
                    )
                )
                done += count
        self._pending_append = batches
        self._process(ready)
        return batches[-1].last_offset

    def handle(self, api_key: int, request: Message) -> Awaitable[Message]:
        """Serve Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, DescribeQuorum,
        AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter.

        Raises:
            ApiError: UNSUPPORTED_VERSION for any other API.
        """
        if api_key not in SERVED_APIS or api_key != request.API_KEY:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"API {api_key} with a {type(request).__name__} is not for the quorum",
            )
        future: asyncio.Future[Message] = self._loop.create_future()
        if self._is_stopped:
            future.set_exception(ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the node is stopping"))
            return future
        self._next_token += 1
        self._answers[self._next_token] = future
        self._step(RequestReceived(self._next_token, request))
        return future

    def upgrade_kraft_version(
        self, epoch: int, version: int, *, is_validate_only: bool = False
    ) -> None:
        """Raise kraft.version as leader of `epoch`.

        Raises:
            ApiError: it cannot be raised now.
        """
        event = KRaftVersionUpgrade(epoch, version, is_validate_only)
        self._process(self._quorum.step(event, self._clock()))

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`: the active controller cannot go on."""
        self._step(Resign(epoch))

    # ------------------------------------------------------------ snapshots

    async def write_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        records: Iterable[Message],
        last_timestamp_ms: int,
    ) -> None:
        """Write a snapshot of the state below `snapshot_id.offset`, then clean up old ones.

        Raises:
            ValueError: the offset is not committed, or lies before the log's start.
        """
        core = self._quorum.core
        if core.high_watermark is None or snapshot_id.offset > core.high_watermark:
            raise ValueError(f"{snapshot_id} is above the high watermark {core.high_watermark}")
        if snapshot_id.offset <= core.log.start_offset:
            raise ValueError(f"{snapshot_id} is below the log's start {core.log.start_offset}")
        if snapshot_id in core.log.snapshots or snapshot_id in self._snapshots_in_work:
            return
        history = core.history
        info = SnapshotInfo(
            last_timestamp_ms,
            history.kraft_version_before(snapshot_id.offset),
            history.voters_before(snapshot_id.offset),
        )
        token = str(self._random.randrange(0, 2**63))
        self._snapshots_in_work.add(snapshot_id)
        try:
            # Encoding a large image takes a while: not on this thread, nor on that of the disk.
            content = await self._loop.run_in_executor(
                None, _encode, records, info, snapshot_id.epoch, self._clock()
            )
            await self._on_disk(self._log.write_snapshot, snapshot_id, content, token)
        finally:
            self._snapshots_in_work.discard(snapshot_id)
        self._step(SnapshotWritten(snapshot_id))
        self._clean()

    def _clean_periodically(self) -> None:
        self._clean_timer = self._loop.call_later(_CLEAN_PERIOD_S, self._clean_periodically)
        self._clean()

    def _clean(self) -> None:
        high_watermark = self.high_watermark
        if high_watermark is not None and not self._is_stopped:
            self._thread.call(self._cleaned, self._clean_on_disk, high_watermark, self._clock())

    def _clean_on_disk(self, high_watermark: int, now_ms: int) -> LogCleaned | None:
        if not self._log.clean(high_watermark, now_ms):
            return None
        return LogCleaned(self._log.start_offset, self._log.snapshot_ids)

    def _cleaned(self, event: LogCleaned | None, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)
        elif event is not None:
            self._step(event)

    # ------------------------------------------------------------ steps

    def _step(self, event: Event) -> None:
        if self._is_stopped:
            return
        try:
            ready = self._quorum.step(event, self._clock())
        except Exception as fault:  # noqa: BLE001 - whatever it is, this node must not go on
            self._fail(fault)
            return
        self._process(ready)

    def _process(self, ready: Ready) -> None:
        """Queue what has to be done in order and tell the listeners what is committed."""
        if ready.election_state or ready.log_operations or ready.requests or ready.replies:
            self._waiting.append(ready)
            if not self._is_round_due and not self._is_disk_busy:
                self._is_round_due = True
                self._loop.call_soon(self._begin_round)
        self._note_log_operations(ready.log_operations)
        self._set_timer(ready.wake_at_ms)
        if ready.high_watermark is not None:
            self._delivery.high_watermark = ready.high_watermark
            self._delivery.deliver()
        if ready.leader is not None:
            is_local = ready.leader.leader_id == self._local.key.id
            after_offset = (self.high_watermark or 0) if is_local else 0
            self._delivery.leader_changed(ready.leader, after_offset)
        for subscription in self._delivery.subscriptions:
            self._load_for(subscription)

    def _note_log_operations(self, operations: list[LogOperation]) -> None:
        decoded, self._pending_append = self._pending_append, None
        for operation in operations:
            match operation:
                case Append(batches=batches):
                    if decoded is None:
                        fetched = list(decode_batches(batches))
                        self._note_levels(fetched)
                        self._delivery.appended(fetched)
                case Truncate(offset):
                    self._delivery.truncated_to(offset)
        if decoded is not None:
            self._delivery.appended(decoded)

    def _set_timer(self, wake_at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at_ms is not None:
            delay_s = max(0, wake_at_ms - self._clock()) / 1000
            self._timer = self._loop.call_later(delay_s, self._step, Tick())

    # ------------------------------------------------------------ rounds of file work

    def _begin_round(self) -> None:
        self._is_round_due = False
        if self._is_disk_busy or self._is_stopped:
            return
        readies = list(self._waiting)
        self._waiting.clear()
        if any(_needs_disk(ready) for ready in readies):
            self._is_disk_busy = True
            job = _Job(readies, self.kraft_version, self._clock())
            self._thread.call(
                lambda outcome, error: self._end_round(job, outcome, error), self._run_job, job
            )
        else:
            self._finish(readies, _Outcome({}, None))

    def _run_job(self, job: _Job) -> _Outcome:
        """On the directory's thread: everything of these steps that touches files, in order."""
        reads: dict[int, Any] = {}
        installed: tuple[OffsetAndEpoch, SnapshotInfo] | None = None
        last_flush = max(
            (index for index, ready in enumerate(job.readies) if _flushes(ready)), default=-1
        )
        for index, ready in enumerate(job.readies):
            state: ElectionState | None = ready.election_state
            if state is not None:
                self._log.write_election_state(state, job.kraft_version)
            for operation in ready.log_operations:
                match operation:
                    case Append(batches=batches):
                        self._log.append(batches, job.now_ms)
                    case Truncate(offset):
                        self._log.truncate_to(offset)
                    case WriteSnapshotChunk(snapshot_id, position, data):
                        self._log.write_fetched_chunk(snapshot_id, position, data)
                    case InstallSnapshot(snapshot_id):
                        installed = snapshot_id, self._log.install_snapshot(snapshot_id)
            if index == last_flush:
                self._log.flush()
            for reply in ready.replies:
                if reply.read is not None:
                    reads[reply.token] = self._read(reply.read)
        return _Outcome(reads, installed)

    def _read(self, read: ReadLog | ReadSnapshot) -> Any:
        if isinstance(read, ReadSnapshot):
            return self._log.read_snapshot_slice(read.snapshot_id, read.position, read.max_bytes)
        if self._log.start_offset <= read.offset < self._log.end_offset:
            return self._log.read(read.offset, read.max_bytes)
        return b""

    def _end_round(self, job: _Job, outcome: _Outcome, error: BaseException | None) -> None:
        self._is_disk_busy = False
        if error is not None:
            self._fail(error)
        elif not self._is_stopped:
            self._finish(job.readies, outcome)

    def _finish(self, readies: list[Ready], outcome: _Outcome) -> None:
        """The files are as these steps want them: send, answer, report back."""
        for ready in readies:
            for request in ready.requests:
                self._send(request)
            for reply in ready.replies:
                self._answer(reply, outcome.reads.get(reply.token))
        for ready in readies:
            for operation in ready.log_operations:
                if isinstance(operation, Flush):
                    self._step(LogFlushed())
        if outcome.installed is not None:
            snapshot_id, info = outcome.installed
            self._delivery.reset_to(snapshot_id)
            self._step(SnapshotInstalled(snapshot_id, info.voters, info.kraft_version))
        if self._waiting and not self._is_round_due and not self._is_disk_busy:
            self._begin_round()
        if not self._waiting and not self._is_disk_busy:
            for settled in self._settled:
                if not settled.done():
                    settled.set_result(None)
            self._settled.clear()

    # ------------------------------------------------------------ messages

    def _send(self, request: Request) -> None:
        task = self._loop.create_task(self._exchange(request))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, request: Request) -> None:
        event: Event
        try:
            response = await self._peers.request(request.destination, request.message)
        except PeerUnavailable as error:
            logger.debug("%s: %s", request.destination, error)
            event = RequestFailed(request.request_id)
        except PeerLacksVersion:
            event = RequestFailed(request.request_id, is_unsupported_version=True)
        else:
            event = ResponseReceived(request.request_id, response)
        self._step(event)

    def _answer(self, reply: Reply, found: Any) -> None:
        response = reply.response
        if reply.read is not None:
            _add_bytes(response, reply.read, found)
        future = self._answers.pop(reply.token, None)
        if future is not None and not future.done():
            future.set_result(response)

    # ------------------------------------------------------------ listeners that are behind

    def _load_for(self, subscription: Subscription) -> None:
        if not self._delivery.is_behind(subscription):
            return
        end_offset = self._delivery.high_watermark
        next_offset = subscription.next_offset
        subscription.is_loading = True

        def loaded(found: _Loaded, error: BaseException | None) -> None:
            subscription.is_loading = False
            if error is not None:
                self._fail(error)
            elif subscription in self._delivery.subscriptions and not self._is_stopped:
                self._give(subscription, next_offset, found)

        self._thread.call(loaded, self._load, next_offset, end_offset)

    def _load(self, next_offset: int | None, end_offset: int) -> _Loaded:
        """On the directory's thread: what follows for a listener that has got to `next_offset`."""
        newest = self._log.snapshot_ids[-1] if self._log.snapshot_ids else None
        if newest == BOOTSTRAP_SNAPSHOT_ID:
            newest = None
        if newest is not None and (next_offset is None or next_offset < self._log.start_offset):
            data = self._log.read_snapshot_bytes(newest)
            return _Loaded(newest, list(read_snapshot(data, self._log.snapshot_path(newest))))
        offset = next_offset or 0
        batches: list[CommittedBatch] = []
        if offset < min(end_offset, self._log.end_offset):
            for batch in decode_batches(self._log.read(offset, _LOAD_BYTES)):
                if batch.last_offset >= end_offset:
                    break
                if batch.base_offset >= offset:
                    batches.append(batch)
        return _Loaded(None, batches)

    def _give(self, subscription: Subscription, next_offset: int | None, found: _Loaded) -> None:
        if subscription.next_offset != next_offset:
            self._load_for(subscription)  # the log began anew while this was read
            return
        self._note_levels(found.batches)
        if found.snapshot_id is not None:
            self._delivery.give_snapshot(subscription, found.snapshot_id, found.batches)
        elif found.batches:
            self._delivery.give(subscription, found.batches)
        elif next_offset is None:
            subscription.next_offset = 0
        self._load_for(subscription)

    # ------------------------------------------------------------ internals

    def _note_levels(self, batches: Iterable[CommittedBatch]) -> None:
        for batch in batches:
            for record in batch.records:
                self._encoder.note(record)

    def _on_disk(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._thread.call(settle, function, *args)
        return future


def _needs_disk(ready: Ready) -> bool:
    return (
        ready.election_state is not None
        or bool(ready.log_operations)
        or any(reply.read is not None for reply in ready.replies)
    )


def _flushes(ready: Ready) -> bool:
    return any(isinstance(operation, Flush) for operation in ready.log_operations)


def _encode(records: Iterable[Message], info: SnapshotInfo, epoch: int, now_ms: int) -> list[bytes]:
    encoder = RecordEncoder()
    values = (encoder.encode(record) for record in records)
    return list(encode_snapshot(values, info, epoch=epoch, now_ms=now_ms))


def _add_bytes(response: Message, read: ReadLog | ReadSnapshot, found: Any) -> None:
    """Put what was read into a response."""
    if isinstance(response, FetchResponse):
        response.responses[0].partitions[0].records = found
    elif isinstance(response, FetchSnapshotResponse) and isinstance(read, ReadSnapshot):
        partition = response.topics[0].partitions[0]
        data, size_bytes = found
        if read.position >= size_bytes:
            partition.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            partition.size = size_bytes
            partition.unaligned_records = data
