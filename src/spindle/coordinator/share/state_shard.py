"""The share coordinator of one partition of `__share_group_state` (KIP-932).

It stores for each share partition what its leader writes: the start offset and the states of
records above it. Each change is a record; after many updates comes a snapshot. An operation decides
on committed state: while a change of its share partition is being appended (`is_busy`), it is
exclusive.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, TypeAlias

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.coordinator.coordinator_result import CoordinatorResult, TimerKeyT, Transaction
from spindle.coordinator.ports import ShardRecordFormat
from spindle.coordinator.share.delivery import (
    UNINITIALIZED_OFFSET,
    UNKNOWN_COUNT,
    DeliveryState,
    StateBatch,
    combine,
)
from spindle.coordinator.share.state_records import (
    ShareKey,
    Snapshot,
    StateRecord,
    Update,
    encode_state,
    parse_state,
)
from spindle.protocol.records.batch import NO_PRODUCER_ID

SHARE_STATE_RECORDS: Final[ShardRecordFormat[StateRecord]] = ShardRecordFormat(
    encode_state, parse_state, base_sequence=0
)
_UNCHANGED: Final = -1

StateResult: TypeAlias = CoordinatorResult[StateRecord, None, None]


class ShareCoordinatorConfig(NamedTuple):
    """Settings of the share coordinator."""

    updates_per_snapshot: int = 500
    """`share.coordinator.snapshot.update.records.per.snapshot`."""
    cold_snapshot_interval_ms: int = 300_000
    """`share.coordinator.cold.partition.snapshot.interval.ms`."""


class _Stored(NamedTuple):
    """The state of one share partition.

    Attributes:
        snapshot_offset: offset of the last snapshot in the log; older records are redundant.
        update_count: updates since then.
    """

    snapshot: Snapshot
    snapshot_offset: int
    update_count: int


class WrittenState(NamedTuple):
    """A change that the leader of a share partition writes.

    A leader epoch or start offset of -1 changes nothing.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class ShareStateShard:
    """The states of share partitions. Only one driver may use it."""

    __slots__ = ("_busy", "_config", "_next_offset", "_partition_exists", "states")

    def __init__(
        self, config: ShareCoordinatorConfig, partition_exists: Callable[[Uuid, int], bool]
    ) -> None:
        """Create an empty shard.

        Args:
            partition_exists: returns whether the cluster has the partition of a topic id.
        """
        self.states: dict[ShareKey, _Stored] = {}
        self._config = config
        self._partition_exists = partition_exists
        self._busy: dict[ShareKey, int] = {}
        self._next_offset = 0

    def is_busy(self, key: ShareKey) -> bool:
        """Return True while a change of the share partition is being appended."""
        return key in self._busy

    # ------------------------------------------------------------ operations

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int, out: StateResult
    ) -> None:
        """Begin or reset the state of a share partition.

        A state that already begins in this epoch stays if no start offset is given: the request is
        a repetition, which may arrive late, when members have acknowledged records.

        Raises:
            ApiError: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, or FENCED_STATE_EPOCH if the
                present state has a higher epoch.
        """
        self._check_key(key)
        if state_epoch < 0:
            raise _invalid("The state epoch cannot be a negative number.")
        stored = self.states.get(key)
        if stored is not None and stored.snapshot.state_epoch > state_epoch:
            raise _fenced_state_epoch()
        self._check_exists(key)
        is_repeated = stored is not None and stored.snapshot.state_epoch == state_epoch
        if is_repeated and start_offset == UNINITIALIZED_OFFSET:
            return
        snapshot_epoch = 0 if stored is None else stored.snapshot.snapshot_epoch + 1
        count = UNKNOWN_COUNT if start_offset == UNINITIALIZED_OFFSET else 0
        value = Snapshot(
            snapshot_epoch, state_epoch, 0, start_offset, count, out.now_ms, out.now_ms, ()
        )
        self._add(StateRecord(key, value), out)

    def write(self, key: ShareKey, written: WrittenState, out: StateResult) -> None:
        """Store a change of a share partition.

        Raises:
            ApiError: INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, or
                UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._check_key(key)
        if written.leader_epoch < 0:
            raise _invalid("The leader epoch cannot be a negative number.")
        if written.state_epoch < 0:
            raise _invalid("The state epoch cannot be a negative number.")
        _check_batches(written.batches)
        stored = self.states.get(key)
        if stored is None:
            raise _invalid("Write operation on uninitialized share partition not allowed.")
        state = stored.snapshot
        if written.leader_epoch < state.leader_epoch:
            raise _fenced_leader_epoch()
        if written.state_epoch < state.state_epoch:
            raise _fenced_state_epoch()
        self._check_exists(key)
        start_offset = max(written.start_offset, state.start_offset)
        update = Update(
            state.snapshot_epoch,
            written.leader_epoch,
            start_offset,
            _complete_count(written, state),
            tuple(written.batches),
        )
        if stored.update_count + 1 < self._config.updates_per_snapshot:
            self._add(StateRecord(key, update), out)
        else:
            self._add(StateRecord(key, _next_snapshot(_merged(state, update), out.now_ms)), out)

    def read(self, key: ShareKey, leader_epoch: int, out: StateResult) -> Snapshot:
        """Return a state; a higher leader epoch is stored, so that older leaders cannot write.

        Raises:
            ApiError: INVALID_REQUEST, FENCED_LEADER_EPOCH or UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._check_key(key)
        if leader_epoch < 0:
            raise _invalid("The leader epoch cannot be a negative number.")
        stored = self.states.get(key)
        if stored is None:
            raise _invalid("Read operation on uninitialized share partition not allowed.")
        state = stored.snapshot
        if leader_epoch < state.leader_epoch:
            raise _fenced_leader_epoch()
        self._check_exists(key)
        if leader_epoch > state.leader_epoch:
            update = Update(
                state.snapshot_epoch,
                leader_epoch,
                _UNCHANGED,
                state.delivery_complete_count,
                (),
            )
            self._add(StateRecord(key, update), out)
        return state

    def summary(self, key: ShareKey) -> Snapshot | None:
        """Return a state for a description; None if there is none.

        Raises:
            ApiError: INVALID_REQUEST or UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._check_key(key)
        self._check_exists(key)
        stored = self.states.get(key)
        return None if stored is None else stored.snapshot

    def delete(self, key: ShareKey, out: StateResult) -> None:
        """Delete a state, if there is one.

        Raises:
            ApiError: INVALID_REQUEST or UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._check_key(key)
        self._check_exists(key)
        if key in self.states:
            self._add(StateRecord(key, None), out)

    def delete_topics(self, topic_ids: Collection[Uuid], out: StateResult) -> None:
        """Delete the states of topics that the cluster has deleted."""
        out.is_atomic = False
        for key in self.states:
            if key.topic_id in topic_ids:
                self._add(StateRecord(key, None), out)

    def snapshot_cold_states(self, out: StateResult) -> None:
        """Write snapshots of states whose last one is old, so that old records can be deleted.

        If the log has nothing but the newest snapshots, there is nothing to delete.
        """
        out.is_atomic = False
        due_ms = out.now_ms - self._config.cold_snapshot_interval_ms
        due = {
            key: stored
            for key, stored in self.states.items()
            if stored.snapshot.write_timestamp_ms <= due_ms
        }
        if self._next_offset - self.redundant_offset() <= len(self.states):
            return
        for key, stored in due.items():
            self._add(StateRecord(key, _next_snapshot(stored.snapshot, out.now_ms)), out)

    def redundant_offset(self) -> int:
        """Return the offset below which all records of the log are redundant."""
        offsets = [stored.snapshot_offset for stored in self.states.values()]
        return min(offsets, default=self._next_offset)

    def _add(self, record: StateRecord, out: StateResult) -> None:
        self._busy[record.key] = self._busy.get(record.key, 0) + 1
        out.records.append(record)

    def _check_key(self, key: ShareKey) -> None:
        if key.topic_id == ZERO_UUID:
            raise _invalid("The topic id cannot be null.")
        if key.partition < 0:
            raise _invalid("The partition id cannot be a negative number.")

    def _check_exists(self, key: ShareKey) -> None:
        if not self._partition_exists(key.topic_id, key.partition):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )

    # ------------------------------------------------------------ the log

    def replay(self, record: StateRecord, producer_id: int) -> None:
        """Apply a record of the log."""
        key, value, record_offset = record
        self._next_offset = record_offset + 1
        if value is None:
            self.states.pop(key, None)
            return
        if isinstance(value, Snapshot):
            self.states[key] = _Stored(value, record_offset, 0)
            return
        stored = self.states.get(key)
        if stored is not None and value.snapshot_epoch == stored.snapshot.snapshot_epoch:
            self.states[key] = stored._replace(
                snapshot=_merged(stored.snapshot, value), update_count=stored.update_count + 1
            )

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """Ignore a marker: this log has no transactions."""

    def loaded(self, out: StateResult) -> None:
        """Do nothing: there are no timers."""

    def unloaded(self, out: StateResult) -> None:
        """Do nothing: no request is parked."""

    def committed(
        self,
        records: Sequence[StateRecord],
        base_offset: int,
        transaction: Transaction,
        out: StateResult,
    ) -> None:
        """Apply a batch of this shard's own records, committed from `base_offset` on."""
        for record_offset, record in enumerate(records, base_offset):
            self._settled(record)
            self.replay(record._replace(record_offset=record_offset), NO_PRODUCER_ID)

    def failed(self, records: Sequence[StateRecord], out: StateResult) -> None:
        """Forget records that will never be appended."""
        for record in records:
            self._settled(record)

    def _settled(self, record: StateRecord) -> None:
        count = self._busy.get(record.key, 0) - 1
        if count > 0:
            self._busy[record.key] = count
        else:
            self._busy.pop(record.key, None)

    def complete(self, completion: None, code: ErrorCode, out: StateResult) -> None:
        """Do nothing: no operation has completions."""

    def on_timer(self, key: TimerKeyT, out: StateResult) -> None:
        """Do nothing: no operation sets a timer."""

    def is_exclusive_timer(self, key: TimerKeyT) -> bool:
        """Return False: there are no timers."""
        return False


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


def _fenced_leader_epoch() -> ApiError:
    return ApiError(
        ErrorCode.FENCED_LEADER_EPOCH,
        "The leader epoch in the request is older than the epoch on the broker.",
    )


def _fenced_state_epoch() -> ApiError:
    return ApiError(
        ErrorCode.FENCED_STATE_EPOCH,
        "The coordinator rejected the request because the state epoch did not match.",
    )


def _check_batches(batches: Sequence[StateBatch]) -> None:
    for first, last, state, count in batches:
        known = state in (
            DeliveryState.AVAILABLE,
            DeliveryState.ACKNOWLEDGED,
            DeliveryState.ARCHIVING,
            DeliveryState.ARCHIVED,
        )
        if not 0 <= first <= last or not known or count < 0:
            raise _invalid(
                f"State batch {first} to {last} with state {state} and delivery count {count} is "
                "not valid."
            )


def _complete_count(written: WrittenState, state: Snapshot) -> int:
    """Return the number of done records above the start offset after a write."""
    if written.start_offset == state.start_offset:
        return max(written.delivery_complete_count, state.delivery_complete_count)
    if written.start_offset < state.start_offset:
        return state.delivery_complete_count
    return written.delivery_complete_count


def _merged(state: Snapshot, update: Update) -> Snapshot:
    start_offset = update.start_offset
    if start_offset == _UNCHANGED:
        start_offset = state.start_offset
    leader_epoch = update.leader_epoch
    if leader_epoch == _UNCHANGED:
        leader_epoch = state.leader_epoch
    return state._replace(
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=update.delivery_complete_count,
        batches=tuple(combine(list(state.batches), list(update.batches), start_offset)),
    )


def _next_snapshot(state: Snapshot, now_ms: int) -> Snapshot:
    return state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms)
