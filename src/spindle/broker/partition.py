"""A partition that this broker hosts: its log, its leadership, and who waits on it.

All state here belongs to the event loop; the log's files belong to the directory's I/O thread. What
the loop reads of the log between the two are plain integers.
"""

from collections.abc import Callable
from typing import Any, Final

from spindle.broker.directories import BrokerDirectory
from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import Uuid
from spindle.log.log import AppendInfo, Log
from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.records.validation import AppendOrigin
from spindle.replication.leader_state import LeaderState

ACKS_ALL: Final = -1

Appended = Callable[[AppendInfo | None, BaseException | None], None]
Waiter = Callable[[], None]


class Partition:
    """One hosted replica.

    Invariant: `leader` is set exactly while the committed metadata names this broker as leader.
    """

    __slots__ = (
        "_commit_waiters",
        "_watchers",
        "directory",
        "is_deleted",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "registration",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: Uuid, log: Log, directory: BrokerDirectory
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
        self._watchers: dict[Waiter, None] = {}
        self._commit_waiters: list[tuple[int, Appended, AppendInfo]] = []

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
        return min(self.log.last_stable_offset, self.high_watermark)

    def become_leader(
        self, local_id: int, registration: PartitionRegistration, min_isr: int
    ) -> None:
        """Lead in a new epoch, or take over a changed ISR in the present one."""
        self.registration = registration
        self.leader_id = local_id
        known = self.leader
        if known is not None and known.leader_epoch == registration.leader_epoch:
            known.update(
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
            )
            self._on_progress(known.advance())
            return
        self.leader_epoch = registration.leader_epoch
        self.leader = LeaderState(
            local_id=local_id,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=registration.isr,
            min_isr=min_isr,
            log_end_offset=self.log.log_end_offset,
            high_watermark=min(self.log.high_watermark, self.log.log_end_offset),
        )
        self._on_progress(self.leader.advance())

    def become_follower(self, registration: PartitionRegistration) -> None:
        self.registration = registration
        self.leader = None
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.wake(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def follower_advanced(self) -> None:
        """As a follower: the high watermark or the log start moved; consumers may wait here."""
        if self._watchers:
            self._notify()

    def wake(self, error: ApiError) -> None:
        """The fate of everything parked here is known: answer it now (fail what waits)."""
        waiters, self._commit_waiters = self._commit_waiters, []
        for _, callback, _ in waiters:
            callback(None, error)
        self._notify()

    # -- watching

    def watch(self, waiter: Waiter) -> None:
        """Call `waiter` whenever the high watermark or the leadership moves, until `unwatch`."""
        self._watchers[waiter] = None

    def unwatch(self, waiter: Waiter) -> None:
        self._watchers.pop(waiter, None)

    def _notify(self) -> None:
        for waiter in list(self._watchers):
            waiter()

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
            appended,
            self._append_on_thread,
            records,
            leader.leader_epoch,
            now_ms,
            origin,
            leader.is_alone,
        )

    def _append_on_thread(
        self, records: Bytes, leader_epoch: int, now_ms: int, origin: AppendOrigin, is_alone: bool
    ) -> AppendInfo:
        log = self.log
        info = log.append_as_leader(records, leader_epoch, now_ms, origin=origin)
        if is_alone:
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
        has_moved = leader.on_append(max(info.last_offset + 1, leader.log_end_offset))
        if required_acks != ACKS_ALL or leader.high_watermark > info.last_offset:
            callback(info, None)
        else:
            self._commit_waiters.append((info.last_offset, callback, info))
        self._on_progress(has_moved)

    def _on_progress(self, has_moved: bool) -> None:
        if not has_moved or self.leader is None:
            return
        high_watermark = self.leader.high_watermark
        if self.log.high_watermark < high_watermark:
            self.directory.executor.call(None, self.log.update_high_watermark, high_watermark)
        if self._commit_waiters:
            self._answer_committed(high_watermark)
        self._notify()

    def _answer_committed(self, high_watermark: int) -> None:
        assert self.leader is not None
        ready = [w for w in self._commit_waiters if w[0] < high_watermark]
        if not ready:
            return
        self._commit_waiters = [w for w in self._commit_waiters if w[0] >= high_watermark]
        has_min_isr = self.leader.has_min_isr
        for _, callback, info in ready:
            if has_min_isr:
                callback(info, None)
            else:
                callback(None, ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))


def error_code(error: BaseException) -> ErrorCode:
    """What a client is told of a failed append or read."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, LogDirectoryFailed):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_SERVER_ERROR
