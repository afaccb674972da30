"""A partition that this broker hosts: its log, its leadership, and its waiting requests.

All state here belongs to the event loop, the log's files to the directory's I/O thread. The event
loop only reads integers of the log, never its files.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol, TypeVar

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import Uuid
from spindle.disks.executor import Callback
from spindle.disks.log_directory import LogDirectory
from spindle.log.append_batches import writable
from spindle.log.lease import LogLease
from spindle.log.log import LOG_END, Log
from spindle.log.log_config import LogConfig
from spindle.log.log_values import AppendInfo
from spindle.log.producers.verification import NO_TRANSACTION, TransactionContext
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.records.validation import (
    AppendOrigin,
    AppendRules,
    ValidRecords,
    must_be_decoded_first,
    validate_for_append,
)
from spindle.protocol.sentinels import ACKS_ALL
from spindle.replicas.isr_eligibility import CommittedEligibility
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.record_decoding import RecordDecoding
from spindle.replication.fetch_session import FetchSession
from spindle.replication.leader_state import IsrProposal, LeaderState

_log = logging.getLogger(__name__)

T = TypeVar("T")

Appended = Callable[[AppendInfo | None, BaseException | None], None]
LowWatermarkReached = Callable[[int, BaseException | None], None]
"""Called with (low watermark, None), or (-1, error)."""


class Watcher(Protocol):
    """Receives the events of a partition."""

    def log_moved(self) -> None:
        """Handle that the log has grown, or its start has moved; only for watchers of appends."""
        ...

    def committed(self) -> None:
        """Handle that the high watermark or the last stable offset has moved."""
        ...

    def changed(self) -> None:
        """Handle a new leader or epoch, or that the partition can no longer be served."""
        ...


class CurrentAppend(NamedTuple):
    """The append being announced to parked fetches: [offset, end_offset) and its bytes."""

    offset: int
    end_offset: int
    records: Bytes


class PendingAppend(NamedTuple):
    """An append on its way to the log; see `Partition.append`.

    Attributes:
        leader, leader_epoch: the leadership that accepted it.
        rules: the rules by which the records were validated; None if they were not.
    """

    records: Bytes
    required_acks: int
    now_ms: int
    origin: AppendOrigin
    callback: Appended
    leader: LeaderState
    leader_epoch: int
    terms: TransactionContext
    rules: AppendRules | None = None


@dataclass(slots=True)
class ReplicationContext:
    """The objects that all partitions of a broker share.

    Attributes:
        steady_ms: a clock for durations.
        max_lag_ms: `replica.lag.time.max.ms`.
        propose: sends a proposed ISR to the controller (AlterPartition), and passes the result to
            the partition.
        decoding: decodes the larger batches of clients.
    """

    broker_id: int
    metadata: MetadataView
    steady_ms: Callable[[], int]
    max_lag_ms: int
    propose: "Callable[[Partition, IsrProposal], None]"
    decoding: RecordDecoding = field(default_factory=RecordDecoding)


class Partition:
    """One hosted replica.

    Attributes:
        registration: the partition in the newest metadata that its replica has applied.
        leader: state of the leader; None unless that metadata names this broker as leader.
        leader_id: -1 if there is no leader.
        is_deleted: this broker no longer hosts the replica.
    """

    __slots__ = (
        "_append_watchers",
        "_commit_waiters",
        "_context",
        "_eligibility",
        "_held",
        "_last_append",
        "_lease",
        "_lease_ended",
        "_low_waiters",
        "_undecoded",
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
        self._eligibility = CommittedEligibility(
            context.metadata, topic_id, topic_partition.partition
        )
        self._watchers: dict[Watcher, None] = {}
        self._append_watchers: dict[Watcher, None] = {}
        self._last_append: CurrentAppend | None = None
        # A heap by offset; the count keeps the order of arrival among equal offsets.
        self._commit_waiters: list[tuple[int, int, Appended, AppendInfo]] = []
        self._waiter_count = 0
        self._low_waiters: list[tuple[int, LowWatermarkReached]] = []
        self._held: list[Callable[[], None]] | None = None
        self._undecoded: deque[PendingAppend] = deque()
        self._lease: LogLease | None = None
        self._lease_ended: Callable[[], None] | None = None

    # -- state

    @property
    def is_offline(self) -> bool:
        return self.directory.is_offline

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark if self.leader else self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Return the first offset of an open transaction, at most the high watermark."""
        return min(self.log.first_unstable_offset, self.high_watermark)

    @property
    def low_watermark(self) -> int:
        """Return the smallest log start of all replicas alive; on a follower its own."""
        start = self.log.log_start_offset
        return self.leader.low_watermark(start) if self.leader else start

    def become_leader(self, registration: PartitionRegistration, min_isr: int) -> None:
        """Become leader in a new epoch, or apply changed replicas or ISR in the same epoch."""
        context = self._context
        now_ms = context.steady_ms()
        self.registration = registration
        self.leader_id = context.broker_id
        known = self.leader
        log = self.log
        if known is None or not known.is_same(registration):
            self.end_lease()
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
                eligibility=self._eligibility,
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
            # Parked fetches name the previous epoch.
            self._tell_changed()
        self._on_progress(has_moved)
        # The controller refuses a proposal for the previous partition epoch. An idle follower names
        # the partition in no fetch that would lead to a new proposal, so propose again here.
        self._maybe_expand_isr(known)
        self._answer_low_waiters()

    def become_follower(self, registration: PartitionRegistration) -> None:
        """Become follower, or a replica of a partition without leader; answer waiting requests."""
        self.registration = registration
        self.leader = None
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.fail_waiters(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def fail_waiters(self, error: ApiError) -> None:
        """Fail waiting appends and deletions with `error`, and wake parked fetches."""
        self.end_lease()
        waiters, self._commit_waiters = self._commit_waiters, []
        for _, _, callback, _ in sorted(waiters, key=lambda waiter: waiter[:2]):
            callback(None, error)
        low_waiters, self._low_waiters = self._low_waiters, []
        for _, reached in low_waiters:
            reached(-1, error)
        self._tell_changed()

    # -- watching

    def watch(self, watcher: Watcher, *, appends: bool) -> None:
        """Pass events to `watcher` until `unwatch`; with `appends`, appends, too."""
        self._watchers[watcher] = None
        if appends:
            self._append_watchers[watcher] = None
        self._tell_lease()

    @property
    def has_watchers(self) -> bool:
        """True while a fetch waits for an event of the partition."""
        return bool(self._watchers)

    @property
    def has_append_watchers(self) -> bool:
        """True while a watcher gets the events of appends."""
        return bool(self._append_watchers)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        self._append_watchers.pop(watcher, None)
        self._tell_lease()

    def current_append_bytes(self, offset: int, end_offset: int) -> Bytes | None:
        """Return the current append's bytes if they are exactly [offset, end_offset).

        The records are in memory only while the watchers run; at other times return None.
        """
        fresh = self._last_append
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
        """Notify consumers parked here that the high watermark of this follower may have moved."""
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
        terms: TransactionContext = NO_TRANSACTION,
    ) -> None:
        """Append as leader; call back on the event loop when `required_acks` is satisfied.

        Appends to a partition are made in the order of the calls.

        Args:
            records: one or more batches.
            required_acks: 0 or 1 when the leader has appended, -1 when the high watermark passed.
            now_ms: the wall clock, for log append times.
            callback: is given (info, None), or (None, error) with an ApiError or
                LogDirectoryFailed.
            expected_leader_epoch: refuse the append in any other epoch; -1 for any.
            terms: of transactional records and of markers.
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
        if required_acks == ACKS_ALL and leader.is_under_min_isr:
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

        append = PendingAppend(
            records, required_acks, now_ms, origin, callback, leader, leader.leader_epoch, terms
        )
        if self._undecoded:
            self._undecoded.append(append)  # it keeps its place behind the one that is decoded
        elif self._must_be_decoded(append):
            self._undecoded.append(append)
            self._decode_first()
        else:
            self._write(append)

    def _must_be_decoded(self, append: "PendingAppend") -> bool:
        rules = self.log.config.append_rules
        return must_be_decoded_first(append.records, rules, append.now_ms, append.origin)

    def _decode_first(self) -> None:
        """Decode the first waiting append outside the directory's thread."""
        append = self._undecoded[0]
        rules = self.log.config.append_rules

        def decoded(valid: ValidRecords | None, error: BaseException | None) -> None:
            self._undecoded.popleft()
            if valid is not None:
                self._write(append._replace(records=valid.records, rules=rules))
            while self._undecoded and not self._must_be_decoded(self._undecoded[0]):
                self._write(self._undecoded.popleft())
            if self._undecoded:
                self._decode_first()
            if error is not None:
                append.callback(None, error)

        self._context.decoding.call(
            self.topic_partition.topic,
            decoded,
            validate_for_append,
            writable(append.records),
            rules,
            append.now_ms,
            append.origin,
            self.topic_partition,
        )

    def _write(self, append: "PendingAppend") -> None:
        """Pass an append to the directory's thread, unless this leadership has ended."""
        if self._held is not None:
            self._held.append(partial(self._write, append))
            return
        leader, callback = append.leader, append.callback
        if leader is not self.leader or leader.leader_epoch != append.leader_epoch:
            callback(None, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return

        def appended(result: Any, error: BaseException | None) -> None:
            self._appended(leader, result, error, append.required_acks, callback)

        self.directory.executor.call(appended, self._append_on_thread, append)

    def _append_on_thread(self, append: "PendingAppend") -> AppendInfo:
        log = self.log
        latest = log.epochs.latest
        if latest is not None and latest > append.leader_epoch:
            # A newer epoch has begun in the log since the append was submitted.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        info = log.append_as_leader(
            append.records,
            append.leader_epoch,
            append.now_ms,
            origin=append.origin,
            terms=append.terms,
            validated=append.rules is not None and append.rules == log.config.append_rules,
        )
        if append.leader.is_sole_replica:
            # No other replica has to have it, so it is committed as soon as it is written.
            log.update_high_watermark(LOG_END)
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
            # The leadership ended while the disk wrote: the next leader may truncate the records.
            callback(None, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        end_offset = info.last_offset + 1
        has_grown = end_offset > leader.log_end_offset
        has_moved = has_grown and leader.on_append(end_offset, self._context.steady_ms())
        if required_acks != ACKS_ALL or leader.high_watermark > info.last_offset:
            callback(info, None)
        else:
            self._waiter_count += 1
            # An append that waits for its commit holds no memory.
            waiting = info._replace(records=b"")
            waiter = (info.last_offset, self._waiter_count, callback, waiting)
            heappush(self._commit_waiters, waiter)
        if self._watchers:
            self._last_append = CurrentAppend(info.first_offset, end_offset, info.records)
        if has_grown and self.has_append_watchers:
            self._tell_log_moved()
        if has_moved:
            self._on_progress(has_moved)
        self._last_append = None

    def _on_progress(self, has_moved: bool) -> None:
        if not has_moved or self.leader is None:
            return
        self._update_log_high_watermark(self.leader.high_watermark)
        if self._commit_waiters:
            self._answer_committed(self.leader)
        if self._watchers:
            self._tell_committed()

    def _update_log_high_watermark(self, high_watermark: int) -> None:
        """Raise the high watermark of the log to that of its leader, if it is lower."""
        executor, update = self.directory.executor, self.log.update_high_watermark
        if self.log.high_watermark >= high_watermark:
            return
        lease = self._lease
        if lease is not None:
            lease.raise_high_watermark(high_watermark)
            # The directory's thread may have ended the lease: then the log does not follow it.
            if not lease.has_ended:
                return
        if self.log.has_open_transactions:
            # The log learns which transactions are over, which moves the last stable offset.
            executor.call(self._stable_moved, update, high_watermark)
        else:
            executor.note(update, high_watermark)

    def _stable_moved(self, _: Any, error: BaseException | None) -> None:
        if error is None:
            self._tell_committed()

    def _answer_committed(self, leader: LeaderState) -> None:
        waiters = self._commit_waiters
        while waiters and waiters[0][0] < leader.high_watermark:
            _, _, callback, info = heappop(waiters)
            if not leader.is_maximal_isr_under_min:
                callback(info, None)
            else:
                callback(None, ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    # -- a lane serves the partition

    @property
    def is_held(self) -> bool:
        """True while changes of the log are held back."""
        return self._held is not None

    def lend(self, lease: LogLease, on_end: Callable[[], None]) -> None:
        """Let a lane append and read, until `end_lease`, which calls `on_end`."""
        self.end_lease()
        self._lease, self._lease_ended = lease, on_end
        self._tell_lease()

    def end_lease(self) -> None:
        """End the lane's permission: what it was granted for has changed.

        The appends of the lane count before the change: an only replica has committed them, so a
        replica that is added has to have them.
        """
        lease, on_end = self._lease, self._lease_ended
        if lease is not None and on_end is not None:
            self._lease = self._lease_ended = None
            lease.end()
            self.lane_appended()
            on_end()

    def _tell_lease(self) -> None:
        if self._lease is not None:
            is_waiting = bool(self._watchers) or not (self.leader and self.leader.is_sole_replica)
            self._lease.wake_for_appends(is_waiting=is_waiting)

    def lane_appended(self) -> None:
        """Handle that the log has grown by appends of the lane.

        The last of them may have been made while a leader epoch began; its client has an answer.
        """
        leader, end_offset = self.leader, self.log.log_end_offset
        if leader is None or end_offset <= leader.log_end_offset:
            return
        has_moved = leader.on_append(end_offset, self._context.steady_ms())
        if self.has_append_watchers:
            self._tell_log_moved()
        if has_moved:
            self._on_progress(has_moved)

    # -- another log takes the place of this one (KIP-113)

    def pause_changes(self) -> None:
        """Hold back all changes of the log until `resume_changes`; reads continue."""
        self.end_lease()
        self._held = []

    def resume_changes(self) -> None:
        """Run the changes that were held back, in their order."""
        held, self._held = self._held, None
        for begin in held or ():
            begin()

    def change_log(self, change: Callable[[Log], T], callback: Callback[T]) -> None:
        """Run `change` with the log on its directory's thread, then `callback` on the loop."""
        if self._held is not None:
            self._held.append(partial(self.change_log, change, callback))
        else:
            self.directory.executor.call(callback, change, self.log)

    def replace_log(self, log: Log, directory: LogDirectory) -> None:
        """Use an equal log in another directory from now on.

        Allowed only between `pause_changes` and `resume_changes`.
        """
        assert self._held is not None, "a log is replaced while it may change"
        self.log = log
        self.directory = directory
        if self.leader is not None:
            self._update_log_high_watermark(self.leader.high_watermark)

    # -- replicas

    def replica_error(
        self, replica_id: int, broker_epoch: int, current_leader_epoch: int
    ) -> ErrorCode:
        """Return NONE if the fetch of this replica may be served here, else the error.

        Args:
            broker_epoch: of the replica's broker; -1 if the request version has none (KIP-903).
            current_leader_epoch: the leader epoch that the follower sent; -1 if it sent none.
        """
        leader = self.leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leader.follower(replica_id) is None:
            # Newer metadata may name it as a replica: have the follower ask again.
            has_epoch = current_leader_epoch >= 0
            return ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._eligibility.is_broker_epoch_stale(replica_id, broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        fetches: FetchSession,
    ) -> None:
        """Record that a follower has all records below `fetch_offset`.

        Move the high watermark as far as that allows, and propose to add the follower to the ISR if
        it has caught up.
        """
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

    def review_isr(self) -> None:
        """Check the ISR again, because time has passed or brokers have changed.

        Move the high watermark if a replica that held it cannot join any more. Propose to add
        followers that have caught up, and to remove those that lag.
        """
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

    def require_new_fetch(self, broker_id: int, trusted: Collection[Uuid]) -> None:
        """Require a follower to fetch again before it may join the ISR, unless it is trusted.

        Its directory has been offline, and may have lost records.

        Args:
            trusted: directories that have been online all the time.
        """
        leader, registration = self.leader, self.registration
        if leader is None or registration is None or broker_id not in registration.replicas:
            return
        if registration.directory(broker_id) not in trusted:
            leader.require_new_fetch(broker_id)

    def use_settings(self, config: LogConfig) -> None:
        """Apply the topic's settings to the log."""
        if self.log.config != config:
            self.end_lease()
        self.log.config = config

    def set_min_isr(self, min_isr: int) -> None:
        """Apply the topic's `min.insync.replicas`."""
        leader = self.leader
        if leader is not None and leader.min_isr != min_isr:
            self.end_lease()
            leader.min_isr = min_isr
            self._on_progress(leader.advance(self._context.steady_ms()))

    def isr_committed(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
    ) -> None:
        """Apply the ISR that the controller committed for a proposal."""
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
        # Other followers may have caught up while this change was in flight.
        self._maybe_expand_isr(leader)

    def isr_refused(self, proposal: IsrProposal, code: ErrorCode) -> None:
        """Handle the refusal of a proposal; propose again if that can succeed."""
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
        """Notify followers at once that records were deleted here."""
        self._tell_log_moved()
        self._answer_low_waiters()

    def when_deleted(self, offset: int, reached: LowWatermarkReached) -> None:
        """Call back as soon as no live replica has records below `offset` (KIP-107)."""
        self._low_waiters.append((offset, reached))
        self._answer_low_waiters()

    def forget_deletion(self, reached: LowWatermarkReached) -> None:
        """Cancel `when_deleted` for `reached`."""
        self._low_waiters = [w for w in self._low_waiters if w[1] is not reached]

    def _answer_low_waiters(self) -> None:
        if not self._low_waiters:
            return
        low = self.low_watermark
        ready = [reached for offset, reached in self._low_waiters if offset <= low]
        self._low_waiters = [w for w in self._low_waiters if w[0] > low]
        for reached in ready:
            reached(low, None)
