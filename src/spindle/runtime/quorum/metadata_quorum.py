"""Drives the quorum's state machine: disk, peers, timers and listeners around `raft.Quorum`.

Everything runs on the event loop's thread, except for the file work (`disk`). The messages of a
step are sent when its file work is done; committed batches go to the listeners at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from spindle.common.errors import (
    ApiError,
    ErrorCode,
    LogDirectoryFailed,
    UnsupportedMetadata,
)
from spindle.common.ids import NO_LEADER, Endpoint, OffsetAndEpoch
from spindle.common.ports import RandomSource
from spindle.disks.executor import DirectoryExecutor
from spindle.metadata_log.committed import CommittedBatch
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.metadata_log import MetadataLog, UnfitSnapshot
from spindle.protocol.api import ApiKey
from spindle.protocol.message import Message
from spindle.publication.feed import ListenerFeed, QuorumListener
from spindle.raft.core import QuorumCore
from spindle.raft.quorum import Quorum
from spindle.raft.ready import (
    AppendBatches,
    AppendRecords,
    Destination,
    Event,
    Flush,
    KRaftVersionUpgrade,
    LeaderAndEpoch,
    LogFlushed,
    NotLeader,
    Ready,
    RequestReceived,
    Resign,
    Shutdown,
    SnapshotInstalled,
    SnapshotUnfit,
    StartUp,
    Tick,
)
from spindle.raft.responses import leader_destination
from spindle.raft.roles import Leader
from spindle.raft.settings import LocalNode, QuorumSettings
from spindle.raft.voters import VoterSet
from spindle.runtime.peers.port import Peers
from spindle.runtime.quorum.disk import DiskRounds, Round
from spindle.runtime.quorum.messages import QuorumMessages
from spindle.runtime.quorum.quorum_counters import QuorumHistory
from spindle.runtime.quorum.snapshot_writer import SnapshotWriter

logger = logging.getLogger(__name__)

QUORUM_APIS: Final = frozenset(
    (
        ApiKey.FETCH,  # of the metadata log
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    )
)
"""The APIs that `RaftMetadataQuorum.handle` serves."""


class RaftMetadataQuorum:
    """The local node's membership in the metadata quorum.

    Args:
        clock: milliseconds since the epoch by a clock that does not go back.
        on_fault: called once if the node cannot continue; nothing is served afterwards.

    Attributes:
        history: counters since the start.
    """

    def __init__(
        self,
        local: LocalNode,
        settings: QuorumSettings,
        static_voters: VoterSet,
        log: MetadataLog,
        thread: DirectoryExecutor,
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
        self._random = random
        self._clock = clock
        self._on_fault = on_fault
        self.history = QuorumHistory(local.key.id)
        self._loop = asyncio.get_running_loop()
        self._is_started = False
        self._is_stopped = False
        self._messages = QuorumMessages(peers, self.history, self._step)
        self._timer: asyncio.TimerHandle | None = None
        self._left = asyncio.Event()
        self._quorum: Quorum
        self._feed: ListenerFeed
        self.stored_end_offset = 0
        self._snapshots: SnapshotWriter
        self._rounds = DiskRounds(
            log, thread, clock, lambda: self.kraft_version, self._round_done, self._fail
        )

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Load log and state and take part in the quorum.

        Raises:
            CorruptLog: a file of the metadata directory is malformed.
            LogDirectoryFailed: the metadata directory cannot be read.
        """
        stored = await self._thread.submit(self._log.load, self._static_voters)
        self._feed = ListenerFeed(
            self._log,
            self._thread,
            stored.log.end_offset,
            self._fail,
            self._loop.call_soon,
        )
        self.stored_end_offset = stored.log.end_offset
        self._quorum = Quorum(self._local, self._settings, self._random, stored)
        self._is_started = True
        self._snapshots = SnapshotWriter(
            self._log,
            self._thread,
            self._random,
            self._clock,
            self._quorum.core,
            self._step,
            self._fail,
        )
        self._step(StartUp())

    async def stop(self, timeout_s: float) -> None:
        """Resign if leading, wait for the next leader, finish the file work, close the log.

        Until this returns, requests must be passed to `handle`: the next leader may need this
        node's vote.
        """
        if self._is_stopped:
            self._messages.close()
            return
        if not self._is_started:
            self._is_stopped = True
            await self._close_log()
            return
        deadline = self._loop.time() + timeout_s
        self._step(Shutdown())
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._left.wait()
        await self._rounds.until_idle(deadline)
        self._halt()
        self._messages.close()
        await self._close_log()

    async def _close_log(self) -> None:
        with suppress(LogDirectoryFailed):  # the failure itself has been logged before
            await self._thread.submit(self._log.close)

    def _halt(self) -> None:
        self._is_stopped = True
        self._left.set()
        self._rounds.stop()
        self._feed.stop()
        self._snapshots.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._messages.refuse()

    def _fail(self, fault: BaseException) -> None:
        if not self._is_stopped:
            story = " ".join(self._quorum.core.recent_roles)
            # These faults name their reason; any other one is a bug or a damaged log.
            is_explained = isinstance(fault, LogDirectoryFailed | UnsupportedMetadata)
            trace = None if is_explained else fault
            logger.error("the metadata quorum stops; its last roles: %s", story, exc_info=trace)
            if is_explained:
                self._resign_without_disk()
            self._halt()
            self._on_fault(fault)

    def _resign_without_disk(self) -> None:
        """If this node leads, ask the other voters to elect, so that no fetch timeout has to pass.

        Nothing needs to be stored: a restarted leader does not lead its last epoch again.
        """
        if self._is_started and isinstance(self._quorum.core.role, Leader):
            ready = self._quorum.step(Resign(self._quorum.core.epoch), self._clock())
            for request in ready.requests:
                self._messages.send(request)
            if ready.leader is not None:
                self._feed.leader_changed(ready.leader, 0)

    # ------------------------------------------------------------ what others see

    @property
    def is_started(self) -> bool:
        """True if log and state are loaded; they must not be used before."""
        return self._is_started

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that was announced to the listeners; none before the start."""
        return self._quorum.core.visible_leader if self._is_started else LeaderAndEpoch()

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch as far as this node knows; -1 if it knows none.

        Kafka's clients that receive -1 as the active controller do not retry for minutes.
        """
        return self._quorum.core.leader_id if self._is_started else NO_LEADER

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """The leader's default controller listener, if it is known."""
        at = leader_destination(self._quorum.core)
        return Endpoint(self._local.controller_listener, at.host, at.port) if at else None

    @property
    def high_watermark(self) -> int | None:
        return self._quorum.core.high_watermark if self._is_started else None

    @property
    def log_end_offset(self) -> int:
        return self._quorum.core.log.end_offset

    @property
    def log_start_offset(self) -> int:
        return self._quorum.core.log.start_offset

    @property
    def kraft_version(self) -> int:
        return self._quorum.core.history.kraft_version

    @property
    def voters(self) -> VoterSet:
        return self._quorum.core.voters

    @property
    def core(self) -> QuorumCore:
        """The state of the member, to be read only."""
        return self._quorum.core

    def peers_after_fault(self) -> Sequence[Destination]:
        """Return the nodes that may know the leader if this one has left the quorum, else none."""
        return self._quorum.core.known_peers() if self._is_started and self._is_stopped else ()

    def subscribe(self, listener: QuorumListener) -> None:
        """Deliver the newest snapshot and all committed batches to a listener, then new ones."""
        self._feed.subscribe(listener)

    def unsubscribe(self, listener: QuorumListener) -> None:
        self._feed.unsubscribe(listener)

    # ------------------------------------------------------------ requests

    def append(
        self, epoch: int, records: Sequence[Message], *, metadata_version: int, is_atomic: bool
    ) -> int:
        """Schedule an append as leader of `epoch`; return the offset of the last record.

        Args:
            metadata_version: the level before the first record.

        Raises:
            NotLeader: the local node does not lead `epoch` (any more).
            ValueError: nothing to append, or atomic records that exceed one batch.
        """
        if self._is_stopped:
            raise NotLeader(epoch, LeaderAndEpoch(epoch=epoch))
        values = list(encode_records(records, metadata_version))
        now_ms = self._clock()
        ready = self._quorum.step(AppendRecords(epoch, values, is_atomic), now_ms)
        batches = _batches_of(ready, records, epoch, now_ms)
        self._process(ready, batches)
        return batches[-1].last_offset

    def handle(self, request: Message) -> Awaitable[Message]:
        """Serve a request of `QUORUM_APIS`.

        Raises:
            ApiError: UNSUPPORTED_VERSION for any other API.
        """
        if request.API_KEY not in QUORUM_APIS:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not for the quorum"
            )
        if self._is_stopped:
            refused: asyncio.Future[Message] = self._loop.create_future()
            refused.set_exception(ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the node is stopping"))
            return refused
        token, answer = self._messages.expect_answer()
        self._step(RequestReceived(token, request))
        return answer

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
        """Give up the leadership of `epoch`, because the active controller cannot continue.

        This is a separate step: all listeners learn the leadership before they learn its end.
        """
        self._loop.call_soon(self._step, Resign(epoch))

    # ------------------------------------------------------------ snapshots

    async def write_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        values: Iterable[bytes],
        last_timestamp_ms: int,
    ) -> int:
        """Write a snapshot; see `SnapshotWriter.write`."""
        return await self._snapshots.write(snapshot_id, values, last_timestamp_ms)

    # ------------------------------------------------------------ steps

    def _step(self, event: Event) -> None:
        if self._is_stopped:
            return
        try:
            self._process(self._quorum.step(event, self._clock()))
        except Exception as fault:  # noqa: BLE001 - see below
            # After half a step, or without a batch of the log, every later response could be wrong:
            # this node must stop.
            self._fail(fault)

    def _process(self, ready: Ready, own_batches: list[CommittedBatch] | None = None) -> None:
        """Queue a step's file work, and deliver committed batches to the listeners."""
        self.history.stepped(self._quorum.core, ready, self._clock())
        if ready.election_state or ready.log_operations or ready.requests or ready.replies:
            self._rounds.add(ready)
        self._set_timer(ready.wake_at_ms)
        if ready.log_operations:
            self._feed.log_changed(ready.log_operations, own_batches)
        if ready.high_watermark is not None:
            self._feed.committed(ready.high_watermark)
        if ready.leader is not None:
            is_local = ready.leader.leader_id == self._local.key.id
            self._feed.leader_changed(ready.leader, (self.high_watermark or 0) if is_local else 0)
        self._feed.serve_behind()
        if self._quorum.core.has_left:
            self._left.set()

    def _set_timer(self, wake_at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at_ms is not None:
            delay_s = max(0, wake_at_ms - self._clock()) / 1000
            self._timer = self._loop.call_later(delay_s, self._step, Tick())

    def _round_done(self, finished: Round) -> None:
        """Send messages and report events of steps whose file work is done."""
        for ready in finished.readies:
            for request in ready.requests:
                self._messages.send(request)
            for reply in ready.replies:
                self._messages.answer(reply, finished.reads.get(reply.token))
        for ready in finished.readies:
            for operation in ready.log_operations:
                if isinstance(operation, Flush):
                    self._step(LogFlushed())
        if finished.installed is not None:
            snapshot_id, info = finished.installed
            if isinstance(info, UnfitSnapshot):
                logger.error("%s", info)
                self._step(SnapshotUnfit(snapshot_id))
                return
            self._feed.reset_to(snapshot_id)
            self._step(SnapshotInstalled(snapshot_id, info.voters, info.kraft_version))


def _batches_of(
    ready: Ready, records: Sequence[Message], epoch: int, now_ms: int
) -> list[CommittedBatch]:
    """Pair the batches that a step appends with the records that were to be appended."""
    batches: list[CommittedBatch] = []
    done = 0
    for operation in ready.log_operations:
        if isinstance(operation, AppendBatches):
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
    return batches
