"""Replication throttles (KIP-73): the throttled partitions, and the rate limit."""

from spindle.replication.throttling import throttled_partitions
from spindle.serving.quotas.rates import WindowedRate
from spindle.serving.quotas.replication import ReplicationQuota


def test_replicas_of_this_broker_are_throttled() -> None:
    throttled = throttled_partitions(("0:1", "1:2", "2:1", ""), 1)
    assert [throttled.has(partition) for partition in range(4)] == [True, False, True, False]


def test_a_star_means_all_and_nothing_means_none() -> None:
    assert throttled_partitions(("*",), 1).has(7)
    assert not throttled_partitions((), 1).has(7)


def is_exceeded(quota: ReplicationQuota) -> bool:
    return quota.is_exceeded


def test_the_rate_counts_from_the_first_byte_and_forgets() -> None:
    now_ms = 0
    quota = ReplicationQuota(WindowedRate(3, 1000, is_spread=False), 100, lambda: now_ms)
    quota.record(100)
    assert not is_exceeded(quota)
    quota.record(1)
    assert is_exceeded(quota)
    now_ms = 1100
    assert not is_exceeded(quota)  # 101 bytes in 1.1 s
    quota.record(200)
    assert is_exceeded(quota)
    now_ms = 20_000
    assert not is_exceeded(quota)
