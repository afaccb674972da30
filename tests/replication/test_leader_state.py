"""The high watermark follows the in-sync replicas (KIP-497, KIP-966)."""

from spindle.replication.leader_state import LeaderState


def leader(
    replicas: tuple[int, ...], isr: tuple[int, ...], min_isr: int = 1, end: int = 0
) -> LeaderState:
    return LeaderState(
        local_id=1,
        leader_epoch=3,
        partition_epoch=0,
        replicas=replicas,
        isr=isr,
        min_isr=min_isr,
        log_end_offset=end,
        high_watermark=0,
    )


def test_a_sole_replica_commits_what_it_appends() -> None:
    state = leader((1,), (1,))
    assert state.is_alone
    assert state.on_append(10)
    assert state.high_watermark == 10


def test_the_slowest_in_sync_replica_holds_the_mark() -> None:
    state = leader((1, 2, 3), (1, 2, 3))
    assert not state.on_append(10)
    assert not state.on_follower_fetch(2, 10)
    assert state.on_follower_fetch(3, 7)
    assert state.high_watermark == 7


def test_a_replica_outside_the_isr_does_not_hold_the_mark() -> None:
    state = leader((1, 2, 3), (1, 2))
    state.on_append(10)
    assert state.on_follower_fetch(2, 9)
    assert state.high_watermark == 9


def test_the_mark_never_goes_back() -> None:
    state = leader((1, 2), (1, 2))
    state.on_append(10)
    state.on_follower_fetch(2, 8)
    assert not state.on_follower_fetch(2, 5)
    assert state.high_watermark == 8


def test_below_min_isr_the_mark_stands_still() -> None:
    state = leader((1, 2, 3), (1,), min_isr=2)
    assert not state.on_append(10)
    assert state.high_watermark == 0
    state.update(partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2))
    assert state.on_follower_fetch(2, 10)
    assert state.high_watermark == 10


def test_min_isr_is_capped_by_the_replica_count() -> None:
    state = leader((1,), (1,), min_isr=2)
    assert state.effective_min_isr == 1
    assert state.on_append(4)


def test_a_fetch_of_a_stranger_changes_nothing() -> None:
    state = leader((1, 2), (1, 2))
    state.on_append(5)
    assert not state.on_follower_fetch(9, 5)
    assert state.follower_end_offsets == {2: -1}


def test_what_followers_have_survives_an_isr_change() -> None:
    state = leader((1, 2, 3), (1, 2, 3))
    state.on_append(10)
    state.on_follower_fetch(2, 10)
    state.update(partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2))
    assert state.advance()
    assert state.high_watermark == 10
