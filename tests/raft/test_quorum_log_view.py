"""The log as the state machine sees it, and how it compares other logs with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorum_node import log_with

from spindle.common.epoch_history import EpochHistory
from spindle.common.ids import OffsetAndEpoch
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID, Diverging, LogView, SnapshotNeeded


def test_a_flush_acknowledges_what_was_appended_before_it() -> None:
    log = LogView()
    log.append(0, 3, 1)
    log.flush_started()
    log.append(3, 5, 1)
    log.flush_finished()
    assert (log.flushed_offset, log.end_offset, log.is_flushed) == (3, 5, False)


def test_a_flush_says_nothing_about_what_replaced_its_records() -> None:
    log = LogView()
    log.append(0, 10, 1)
    log.flush_started()
    log.truncate_to(4)
    log.append(4, 8, 2)
    log.flush_finished()
    assert log.flushed_offset == 4


def test_appends_follow_each_other() -> None:
    log = LogView(0, 4)
    with pytest.raises(ValueError, match="the log ends at 4"):
        log.append(5, 6, 1)


def test_a_reset_log_knows_its_epoch_from_the_snapshot() -> None:
    log = log_with((1, 0), end_offset=7)
    log.reset_to(OffsetAndEpoch(20, 4))
    assert log.end == OffsetAndEpoch(20, 4)
    assert (log.start_offset, log.flushed_offset) == (20, 20)


VALIDATION = [
    # fetch offset and epoch against epochs 1: 0-9, 3: 10-19, 4: 20-24
    (0, 0, None),
    (5, 1, None),
    (10, 1, None),
    (25, 4, None),
    (11, 1, Diverging(OffsetAndEpoch(10, 1))),
    (15, 2, Diverging(OffsetAndEpoch(10, 1))),
    (26, 4, Diverging(OffsetAndEpoch(25, 4))),
    (25, 5, Diverging(OffsetAndEpoch(25, 4))),
    (3, 0, Diverging(OffsetAndEpoch(0, 0))),
]


@pytest.mark.parametrize(("offset", "epoch", "expected"), VALIDATION)
def test_another_log_is_compared_by_epoch_and_offset(
    offset: int, epoch: int, expected: Diverging | None
) -> None:
    log = log_with((1, 0), (3, 10), (4, 20), end_offset=25)
    assert log.validate(offset, epoch) == expected


SNAPSHOT_VALIDATION = [
    # the log is 10-25; snapshots (10, 1) and (20, 3)
    (0, 0, True),
    (9, 1, True),
    (10, 0, True),
    (10, 1, False),
    (25, 4, False),
    (12, 0, True),
]


@pytest.mark.parametrize(("offset", "epoch", "needs_snapshot"), SNAPSHOT_VALIDATION)
def test_a_log_from_before_the_start_needs_the_newest_snapshot(
    offset: int, epoch: int, needs_snapshot: bool
) -> None:
    ids = [OffsetAndEpoch(10, 1), OffsetAndEpoch(20, 3)]
    log = LogView(10, 25, [(3, 10), (4, 20)], ids)
    expected = SnapshotNeeded(ids[1]) if needs_snapshot else None
    assert log.validate(offset, epoch) == expected


def test_an_empty_replica_gets_the_snapshot_even_if_the_log_is_whole() -> None:
    log = LogView(0, 25, [(1, 0)], [OffsetAndEpoch(20, 1)])
    assert log.validate(0, 0) == SnapshotNeeded(OffsetAndEpoch(20, 1))


def test_the_bootstrap_snapshot_is_never_offered() -> None:
    log = LogView(0, 25, [(1, 0)], [BOOTSTRAP_SNAPSHOT_ID])
    assert log.latest_snapshot is None
    assert log.validate(0, 0) is None


def test_a_node_with_nothing_but_its_snapshot_fits_the_log_that_begins_there() -> None:
    snapshot_id = OffsetAndEpoch(20, 3)
    follower = LogView()
    follower.reset_to(snapshot_id)
    leader = LogView(20, 30, [(3, 20)], [snapshot_id])
    assert leader.validate(*follower.end) is None


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8),
    st.integers(0, 40),
)
def test_truncation_leaves_the_epochs_of_what_stays(
    pieces: list[tuple[int, int]], cut: int
) -> None:
    history = EpochHistory()
    by_offset: list[int] = []
    epoch = 0
    for rise, length in pieces:
        epoch += rise
        history.assign(epoch, len(by_offset))
        by_offset += [epoch] * length
    history.truncate_from_end(cut)
    for offset, written in enumerate(by_offset[:cut]):
        assert history.epoch_at(offset) == written
    assert history.latest == (by_offset[min(cut, len(by_offset)) - 1] if cut else None)


def test_the_start_of_the_history_moves_with_the_log() -> None:
    history = EpochHistory([(1, 0), (3, 10), (4, 20)])
    history.truncate_from_start(15)
    assert history.entries == [(3, 15), (4, 20)]
    history.truncate_from_start(20)
    assert history.entries == [(4, 20)]
