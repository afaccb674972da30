"""The share coordinator's shard: epochs, snapshots and updates, deletion, records (KIP-932)."""

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import ApiError, CorruptRecords, ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.coordinator.coordinator_result import CoordinatorResult
from spindle.coordinator.share.delivery import StateBatch
from spindle.coordinator.share.state_records import (
    ShareKey,
    Snapshot,
    StateRecord,
    Update,
    encode_state,
    parse_state,
)
from spindle.coordinator.share.state_shard import (
    ShareCoordinatorConfig,
    ShareStateShard,
    StateResult,
    WrittenState,
)

TOPIC = b"t" * 16
KEY = ShareKey("g", TOPIC, 0)
CONFIG = ShareCoordinatorConfig(updates_per_snapshot=3, cold_snapshot_interval_ms=1_000)


class States:
    """A shard with a log in memory; every operation is committed at once."""

    def __init__(self) -> None:
        self.log: list[StateRecord] = []
        self.now_ms = 0
        self.topics = {TOPIC}
        self.shard = self.new_shard()

    def new_shard(self) -> ShareStateShard:
        return ShareStateShard(
            CONFIG, lambda topic_id, index: topic_id in self.topics and index < 9
        )

    def result(self) -> StateResult:
        return CoordinatorResult(self.now_ms)

    def commit(self, out: StateResult) -> list[StateRecord]:
        base = len(self.log)
        self.log += [
            record._replace(record_offset=at) for at, record in enumerate(out.records, base)
        ]
        self.shard.committed(out.records, base, None, self.result())
        return out.records

    def initialize(self, epoch: int = 0, start_offset: int = 0, key: ShareKey = KEY) -> None:
        out = self.result()
        self.shard.initialize(key, epoch, start_offset, out)
        self.commit(out)

    def write(
        self,
        start_offset: int = 0,
        *batches: StateBatch,
        epoch: int = 0,
        leader_epoch: int = 0,
        count: int = 0,
        key: ShareKey = KEY,
    ) -> list[StateRecord]:
        out = self.result()
        written = WrittenState(epoch, leader_epoch, start_offset, count, batches)
        self.shard.write(key, written, out)
        return self.commit(out)

    def read(self, leader_epoch: int = 0, key: ShareKey = KEY) -> Snapshot:
        out = self.result()
        state = self.shard.read(key, leader_epoch, out)
        self.commit(out)
        return state

    def restart(self) -> None:
        """Continue with a shard that has replayed the log."""
        self.shard = self.new_shard()
        for record in self.log:
            self.shard.replay(record, -1)

    def state(self, key: ShareKey = KEY) -> Snapshot:
        state = self.shard.summary(key)
        assert state is not None
        return state


def code_of(error: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return error.value.code


def test_updates_are_merged_and_a_restart_has_the_same_state() -> None:
    s = States()
    s.initialize()
    s.write(2, StateBatch(5, 9, 2, 1))
    s.write(4, StateBatch(8, 12, 0, 2), count=3)
    state = s.state()
    assert state.start_offset == 4
    assert state.batches == (StateBatch(5, 7, 2, 1), StateBatch(8, 12, 0, 2))
    assert state.delivery_complete_count == 3
    s.restart()
    assert s.state() == state


def test_many_updates_are_followed_by_a_snapshot_with_the_next_epoch() -> None:
    s = States()
    s.initialize()
    kinds = [type(s.write(at)[0].value) for at in range(1, 7)]
    assert kinds == [Update, Update, Snapshot, Update, Update, Snapshot]
    assert s.state().snapshot_epoch == 2
    s.restart()
    assert s.state().start_offset == 6


def test_an_older_leader_cannot_write_after_the_next_one_has_read() -> None:
    s = States()
    s.initialize()
    s.write(1, leader_epoch=4)
    s.read(leader_epoch=5)
    for act in (lambda: s.write(2, leader_epoch=4), lambda: s.read(leader_epoch=4)):
        with pytest.raises(ApiError) as error:
            act()
        assert code_of(error) is ErrorCode.FENCED_LEADER_EPOCH
    s.restart()
    assert s.state().leader_epoch == 5
    assert s.state().start_offset == 1


def test_a_reset_fences_leaders_that_have_the_former_state() -> None:
    s = States()
    s.initialize(epoch=1)
    s.write(5, StateBatch(6, 6, 2, 1), epoch=1)
    s.initialize(epoch=2, start_offset=0)
    with pytest.raises(ApiError) as error:
        s.write(7, epoch=1)
    assert code_of(error) is ErrorCode.FENCED_STATE_EPOCH
    with pytest.raises(ApiError) as error:
        s.initialize(epoch=1)
    assert code_of(error) is ErrorCode.FENCED_STATE_EPOCH
    assert s.state()[3:5] == (0, 0)
    assert s.state().batches == ()


def test_an_initialization_that_is_repeated_late_changes_nothing() -> None:
    s = States()
    s.initialize(epoch=1, start_offset=-1)
    s.write(5, StateBatch(6, 6, 2, 1), epoch=1)
    written = len(s.log)
    s.initialize(epoch=1, start_offset=-1)
    assert len(s.log) == written
    s.initialize(epoch=1, start_offset=2)
    assert s.state().start_offset == 2


def test_the_start_offset_never_goes_back() -> None:
    s = States()
    s.initialize()
    s.write(9, count=2)
    s.write(4, count=7)
    assert s.state().start_offset == 9
    assert s.state().delivery_complete_count == 2


def test_a_state_that_is_not_initialized_can_be_neither_read_nor_written() -> None:
    s = States()
    for act in (s.write, s.read):
        with pytest.raises(ApiError) as error:
            act()
        assert code_of(error) is ErrorCode.INVALID_REQUEST
    assert s.shard.summary(KEY) is None


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (ShareKey("g", ZERO_UUID, 0), ErrorCode.INVALID_REQUEST),
        (ShareKey("g", TOPIC, -1), ErrorCode.INVALID_REQUEST),
        (ShareKey("g", TOPIC, 9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ShareKey("g", b"u" * 16, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_that_does_not_exist_gets_no_state(key: ShareKey, code: ErrorCode) -> None:
    s = States()
    with pytest.raises(ApiError) as error:
        s.initialize(key=key)
    assert code_of(error) is code
    with pytest.raises(ApiError):
        s.shard.delete(key, s.result())


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(5, 4, 0, 1),
        StateBatch(-2, 4, 0, 1),
        StateBatch(0, 4, 1, 1),
        StateBatch(0, 4, 0, -1),
    ],
)
def test_malformed_batches_are_refused(batch: StateBatch) -> None:
    s = States()
    s.initialize()
    with pytest.raises(ApiError) as error:
        s.write(0, batch)
    assert code_of(error) is ErrorCode.INVALID_REQUEST


def test_deleted_states_and_those_of_deleted_topics_are_gone_after_a_restart() -> None:
    s = States()
    other = KEY._replace(partition=1)
    s.initialize()
    s.initialize(key=other)
    out = s.result()
    s.shard.delete(KEY, out)
    s.commit(out)
    s.restart()
    assert list(s.shard.states) == [other]
    out = s.result()
    s.shard.delete_topics([TOPIC], out)
    s.commit(out)
    s.restart()
    assert s.shard.states == {}
    assert s.shard.redundant_offset() == len(s.log)


def test_records_before_the_oldest_snapshot_are_redundant() -> None:
    s = States()
    other = KEY._replace(partition=1)
    s.initialize()
    s.initialize(key=other)
    assert s.shard.redundant_offset() == 0
    for at in range(1, 7):
        s.write(at)
    # The other state has not changed for long, and holds all older records.
    assert s.shard.redundant_offset() == 1
    s.now_ms = 1_000
    out = s.result()
    s.shard.snapshot_cold_states(out)
    s.commit(out)
    redundant = s.shard.redundant_offset()
    assert redundant == 8
    states = dict(s.shard.states)
    s.log = s.log[redundant:]
    s.restart()
    assert {k: v.snapshot for k, v in s.shard.states.items()} == {
        k: v.snapshot for k, v in states.items()
    }


def test_cold_states_without_changes_get_no_further_snapshots() -> None:
    s = States()
    s.initialize()
    s.now_ms = 10_000
    out = s.result()
    s.shard.snapshot_cold_states(out)
    assert out.records == []


def test_a_share_partition_is_busy_until_its_record_is_committed_or_failed() -> None:
    s = States()
    s.initialize()
    out = s.result()
    s.shard.write(KEY, WrittenState(0, 0, 3, 0, ()), out)
    assert s.shard.is_busy(KEY)
    assert s.state().start_offset == 0
    s.shard.failed(out.records, s.result())
    assert not s.shard.is_busy(KEY)
    assert s.state().start_offset == 0


def test_records_are_byte_for_byte_those_of_kafka() -> None:
    key, value = encode_state(StateRecord(KEY, Update(0, 3, 7, 2, (StateBatch(8, 9, 2, 1),))))
    assert key == pack(">hh", 1, 1) + b"g" + TOPIC + pack(">i", 0)
    # Tag 0 is the delivery complete count.
    assert value == (
        pack(">hiiq", 0, 0, 3, 7)
        + b"\x02"
        + pack(">qqbh", 8, 9, 2, 1)
        + b"\0"
        + b"\1\0\4"
        + pack(">i", 2)
    )
    key, value = encode_state(StateRecord(KEY, None))
    assert (key[:2], value) == (pack(">h", 0), None)


batches = st.lists(
    st.builds(
        StateBatch, st.integers(0, 9), st.integers(0, 9), st.integers(0, 4), st.integers(0, 5)
    ),
    max_size=3,
).map(tuple)
counts = st.integers(0, 2**31 - 1)


@given(
    st.builds(ShareKey, st.text(max_size=9), st.binary(min_size=16, max_size=16), counts),
    st.none()
    | st.builds(Update, counts, counts, counts, counts, batches)
    | st.builds(Snapshot, counts, counts, counts, counts, counts, counts, counts, batches),
)
def test_records_are_read_as_they_were_written(
    key: ShareKey, value: Snapshot | Update | None
) -> None:
    encoded = encode_state(StateRecord(key, value))
    assert parse_state(*encoded, 5) == StateRecord(key, value, 5)


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_any_bytes_are_a_record_or_corrupt(key: bytes | None, value: bytes | None) -> None:
    with suppress(CorruptRecords):
        parse_state(key, value, 0)
