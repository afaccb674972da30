"""A partition that this broker hosts: its log, its leadership, and who waits on it.

All state here belongs to the event loop; the log's files belong to the directory's I/O thread. What
the loop reads of the log between the two are plain integers.
"""

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Protocol

from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import Uuid
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import AppendInfo, Log
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.records.validation import AppendOrigin
from spindle.replicas.replication_context import ReplicationContext, Standing
from spindle.replication.followers import FetchTimes
from spindle.replication.leader_state import IsrProposal, LeaderState

_log = logging.getLogger(__name__)

ACKS_ALL: Final = -1

Appended = Callable[[AppendInfo | None, BaseException | None], None]
LowWatermarkReached = Callable[[int, BaseException | None], None]
"""Called with (low watermark, None), or (-1, error)."""


class Watcher(Protocol):
    """Who is told what happens to a partition."""

    def log_moved(self) -> None:
        """The leader's log has grown, or begins later. Only for watchers of appends."""
        ...

    def committed(self) -> None:
        """The high watermark or the last stable offset has moved."""
        ...

    def changed(self) -> None:
        """Who leads, in which epoch, or whether the partition can be served at all."""
        ...


class Fresh(NamedTuple):
    """Batches that were appended just now, from offset to offset (exclusive)."""

    offset: int
    end_offset: int
    records: Bytes


class Partition:
    """One hosted replica.

    Invariant: `leader` is set exactly while the committed metadata names this broker as leader.
    """

    __slots__ = (
        "_append_watchers",
        "_commit_waiters",
        "_context",
        "_fresh",
        "_low_waiters",
        "_standing",
        "_waiter_count",
        "_watchers",
        "directory",
        "is_deleted",
        "is_throttled_as_follower",
        "is_throttled_as_leader",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "registration",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: Log,
        directory: LogDirectory,
        context: ReplicationContext,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.directory = directory
        self.registration: PartitionRegistration | None = None
        self.leader: LeaderState | None = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.is_deleted = False
        self.is_throttled_as_leader = False
        self.is_throttled_as_follower = False
        self._context = context
        self._standing = Standing(context.metadata, topic_id, topic_partition.partition)
        self._watchers: dict[Watcher, None] = {}
        self._append_watchers: dict[Watcher, None] = {}
        self._fresh: Fresh | None = None
        # A heap by offset; the count keeps equal offsets in the order in which they came.
        self._commit_waiters: list[tuple[int, int, Appended, AppendInfo]] = []
        self._waiter_count = 0
        self._low_waiters: list[tuple[int, LowWatermarkReached]] = []

    # -- state

    @property
    def is_offline(self) -> bool:
        return self.directory.is_offline

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark if self.leader else self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset of an open transaction, at most the high watermark."""
        return min(self.log.first_unstable_offset, self.high_watermark)

    @property
    def low_watermark(self) -> int:
        """What no replica that is alive holds any more (exclusive); of the log alone elsewhere."""
        start = self.log.log_start_offset
        return self.leader.low_watermark(start) if self.leader else start

    def become_leader(self, registration: PartitionRegistration, min_isr: int) -> None:
        """Lead in a new epoch, or take over a changed ISR in the present one."""
        context = self._context
        now_ms = context.steady_ms()
        self.registration = registration
        self.leader_id = context.broker_id
        known = self.leader
        log = self.log
        if known is None:
            self.leader_epoch = registration.leader_epoch
            self.leader = known = LeaderState(
                local_id=context.broker_id,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
                min_isr=min_isr,
                log_end_offset=log.log_end_offset,
                high_watermark=min(log.high_watermark, log.log_end_offset),
                standing=self._standing,
                max_lag_ms=context.max_lag_ms,
                now_ms=now_ms,
            )
            has_moved = known.advance(now_ms)
        elif known.leader_epoch == registration.leader_epoch:
            has_moved = known.update(
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
                now_ms=now_ms,
            )
        else:
            self.leader_epoch = registration.leader_epoch
            has_moved = known.begin_epoch(
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
                log_end_offset=log.log_end_offset,
                now_ms=now_ms,
            )
            # Fetches under way name the epoch before.
            self._tell_changed()
        self._on_progress(has_moved)
        # What was proposed for the state before is refused, and an idle follower asks for nothing
        # that would propose it again.
        self._maybe_expand_isr(known)
        self._answer_low_waiters()

    def become_follower(self, registration: PartitionRegistration) -> None:
        self.registration = registration
        self.leader = None
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.wake(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def wake(self, error: ApiError) -> None:
        """The fate of everything parked here is known: answer it now (fail what waits)."""
        waiters, self._commit_waiters = self._commit_waiters, []
        for _, _, callback, _ in sorted(waiters, key=lambda waiter: waiter[:2]):
            callback(None, error)
        low_waiters, self._low_waiters = self._low_waiters, []
        for _, reached in low_waiters:
            reached(-1, error)
        self._tell_changed()

    # -- watching

    def watch(self, watcher: Watcher, *, appends: bool) -> None:
        """Tell `watcher` what happens here, until `unwatch`."""
        self._watchers[watcher] = None
        if appends:
            self._append_watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        self._append_watchers.pop(watcher, None)

    def fresh_records(self, offset: int, end_offset: int) -> Bytes | None:
        """Exactly what is between the offsets, if it was appended just now.

        Only whoever is told of that append by `watch` can have it, while being told: it is in
        memory anyway and need not be read back. Others read the log.
        """
        fresh = self._fresh
        if fresh is None or (fresh.offset, fresh.end_offset) != (offset, end_offset):
            return None
        return fresh.records

    def _tell_changed(self) -> None:
        for watcher in list(self._watchers):
            watcher.changed()

    def _tell_committed(self) -> None:
        for watcher in list(self._watchers):
            watcher.committed()

    def _tell_log_moved(self) -> None:
        for watcher in list(self._append_watchers):
            watcher.log_moved()

    def follower_advanced(self) -> None:
        """As a follower: the high watermark or the log start moved; consumers may wait here."""
        if self._watchers:
            self._tell_committed()

    # -- appending

    def append(
        self,
        records: Bytes,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin,
        callback: Appended,
        expected_leader_epoch: int = -1,
    ) -> None:
        """Append as leader; call back on the event loop when `required_acks` is satisfied.

        The call back gets (info, None), or (None, error) with an ApiError or LogDirectoryFailed.
        Appends to a partition are made in the order of the calls.
        """
        leader = self.leader
        if self.is_offline:
            callback(None, ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
            return
        if leader is None or (
            expected_leader_epoch >= 0 and expected_leader_epoch != leader.leader_epoch
        ):
            callback(None, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if required_acks == ACKS_ALL and not leader.has_min_isr:
            callback(
                None,
                ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"The size of the current ISR {list(leader.isr)} is insufficient to satisfy "
                    f"the min.isr requirement of {leader.effective_min_isr} for partition "
                    f"{self.topic_partition}",
                ),
            )
            return

        def appended(result: Any, error: BaseException | None) -> None:
            self._appended(leader, result, error, required_acks, callback)

        self.directory.executor.call(
            appended, self._append_on_thread, records, leader, leader.leader_epoch, now_ms, origin
        )

    def _append_on_thread(
        self,
        records: Bytes,
        leader: LeaderState,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
    ) -> AppendInfo:
        log = self.log
        latest = log.latest_epoch()
        if latest is not None and latest > leader_epoch:
            # A newer epoch has begun in the log since: what was meant for the older one is refused.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        info = log.append_as_leader(records, leader_epoch, now_ms, origin=origin)
        if leader.is_sole_replica:
            # Nobody else has to have it: committed as soon as it is written.
            log.update_high_watermark(log.log_end_offset)
        return info

    def _appended(
        self,
        leader: LeaderState,
        info: AppendInfo | None,
        error: BaseException | None,
        required_acks: int,
        callback: Appended,
    ) -> None:
        if info is None:
            callback(None, error)
            return
        if leader is not self.leader:
            # Leadership moved while the disk wrote: the records are there, but not ours to promise.
            callback(None, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        end_offset = info.last_offset + 1
        has_grown = end_offset > leader.log_end_offset
        has_moved = has_grown and leader.on_append(end_offset, self._context.steady_ms())
        fresh = Fresh(info.first_offset, end_offset, info.records)
        info = info._replace(records=b"")  # whoever waits for the commit holds no memory
        if required_acks != ACKS_ALL or leader.high_watermark > info.last_offset:
            callback(info, None)
        else:
            self._waiter_count += 1
            waiter = (info.last_offset, self._waiter_count, callback, info)
            heappush(self._commit_waiters, waiter)
        self._fresh = fresh
        if has_grown and self._append_watchers:
            self._tell_log_moved()
        if has_moved:
            self._on_progress(has_moved)
        self._fresh = None

    def _on_progress(self, has_moved: bool) -> None:
        if not has_moved or self.leader is None:
            return
        high_watermark = self.leader.high_watermark
        if self.log.high_watermark < high_watermark:
            executor, update = self.directory.executor, self.log.update_high_watermark
            if self.log.has_open_transactions:
                # The log then knows which ones are over: that moves the last stable offset.
                executor.call(self._stable_moved, update, high_watermark)
            else:
                executor.note(update, high_watermark)
        if self._commit_waiters:
            self._answer_committed(self.leader)
        if self._watchers:
            self._tell_committed()

    def _stable_moved(self, _: Any, error: BaseException | None) -> None:
        if error is None:
            self._tell_committed()

    def _answer_committed(self, leader: LeaderState) -> None:
        waiters = self._commit_waiters
        while waiters and waiters[0][0] < leader.high_watermark:
            _, _, callback, info = heappop(waiters)
            if leader.had_min_isr:
                callback(info, None)
            else:
                callback(None, ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    # -- replicas

    def replica_error(
        self, replica_id: int, broker_epoch: int, current_leader_epoch: int
    ) -> ErrorCode:
        """NONE if a fetch of this replica, in this epoch of its broker, may be served here."""
        leader = self.leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leader.follower(replica_id) is None:
            # It may be one in metadata that is still on its way here: it shall ask again.
            has_epoch = current_leader_epoch >= 0
            return ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._standing.is_from_the_past(replica_id, broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        fetches: FetchTimes,
    ) -> None:
        """A follower has everything before `fetch_offset`: moves the high watermark, and proposes
        to take it into the ISR once it has what it must have."""
        leader = self.leader
        if leader is None:
            return
        has_moved = leader.on_follower_fetch(
            replica_id,
            fetch_offset,
            log_start_offset,
            broker_epoch,
            self._context.steady_ms(),
            fetches,
        )
        if has_moved:
            self._on_progress(has_moved)
        self._maybe_expand_isr(leader)
        if self._low_waiters:
            self._answer_low_waiters()

    def _maybe_expand_isr(self, leader: LeaderState) -> None:
        proposal = leader.propose_expansion()
        if proposal is not None:
            _log.info(
                "%s: expanding ISR from %s to %s", self.topic_partition, leader.isr, proposal.isr
            )
            self._context.propose(self, proposal)

    def check_isr(self) -> None:
        """Called as time passes and as brokers come and go: replicas that lag leave the ISR, others
        may join, and none that cannot join holds the high watermark."""
        leader = self.leader
        if leader is None or self.is_offline or leader.is_sole_replica:
            return
        now_ms = self._context.steady_ms()
        self._on_progress(leader.advance(now_ms))
        self._maybe_expand_isr(leader)
        proposal = leader.propose_shrink(now_ms)
        if proposal is not None:
            _log.info(
                "%s: shrinking ISR from %s to %s (high watermark %d, log end %d)",
                self.topic_partition,
                leader.isr,
                proposal.isr,
                leader.high_watermark,
                leader.log_end_offset,
            )
            self._context.propose(self, proposal)
        self._answer_low_waiters()

    def set_min_isr(self, min_isr: int) -> None:
        """`min.insync.replicas` of the topic changed."""
        leader = self.leader
        if leader is not None and leader.min_isr != min_isr:
            leader.min_isr = min_isr
            self._on_progress(leader.advance(self._context.steady_ms()))

    def isr_committed(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
    ) -> None:
        """The controller took over what was proposed."""
        leader = self.leader
        if leader is None:
            return
        has_moved = leader.on_committed(
            proposal,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=isr,
            now_ms=self._context.steady_ms(),
        )
        self._on_progress(has_moved)
        # Others may have come into sync while this change was under way.
        self._maybe_expand_isr(leader)

    def isr_refused(self, proposal: IsrProposal, code: ErrorCode) -> None:
        """The controller did not take it over."""
        leader = self.leader
        if leader is None:
            return
        must_retry, has_moved = leader.on_refused(proposal, code, self._context.steady_ms())
        _log.info("%s: ISR %s was refused: %s", self.topic_partition, proposal.isr, code.name)
        self._on_progress(has_moved)
        if must_retry:
            self._context.propose(self, proposal)

    # -- deleted records

    def log_start_moved(self) -> None:
        """Records were deleted here: followers that wait for news are told at once."""
        self._tell_log_moved()
        self._answer_low_waiters()

    def when_deleted(self, offset: int, reached: LowWatermarkReached) -> None:
        """Call back as soon as no replica that is alive holds records below `offset`."""
        self._low_waiters.append((offset, reached))
        self._answer_low_waiters()

    def forget_deletion(self, reached: LowWatermarkReached) -> None:
        """Nobody waits any more."""
        self._low_waiters = [w for w in self._low_waiters if w[1] is not reached]

    def _answer_low_waiters(self) -> None:
        if not self._low_waiters:
            return
        low = self.low_watermark
        ready = [reached for offset, reached in self._low_waiters if offset <= low]
        self._low_waiters = [w for w in self._low_waiters if w[0] > low]
        for reached in ready:
            reached(low, None)


def error_code(error: BaseException) -> ErrorCode:
    """What a client is told of a failed append or read."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, LogDirectoryFailed):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_SERVER_ERROR
