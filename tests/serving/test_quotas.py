"""Rates and buckets measure as Kafka's do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.serving.quotas.rates import MAX_THROTTLE_MS, TokenBucket, WindowedRate, throttle_ms

RECORDED = Path(__file__).parent / "recorded" / "rates.txt"
START_MS = 1_000_000

Steps = list[tuple[int, int, float, int]]


def recorded(kind: str) -> Iterator[tuple[dict[str, float], Steps]]:
    settings: dict[str, float] = {}
    steps: Steps = []
    for line in [*RECORDED.read_text().splitlines(), "# end"]:
        words = line.split()
        if words[0] == "#":
            if steps:
                yield settings, steps
            is_wanted = words[1] == kind
            pairs = (word.split("=") for word in words[2:] if is_wanted)
            settings = {key: float(value) for key, value in pairs}
            steps = []
        elif settings:
            steps.append((int(words[0]), int(words[1]), float(words[2]), int(words[3])))


def test_rates_are_those_of_kafka() -> None:
    scenarios = list(recorded("scenario"))
    assert len(scenarios) == 4
    for settings, steps in scenarios:
        rate = WindowedRate(int(settings["samples"]), int(settings["window"]))
        now_ms = START_MS
        for pause_ms, amount, per_second, wait_ms in steps:
            now_ms += pause_ms
            rate.record(amount, now_ms)
            assert rate.per_second(now_ms) == per_second
            assert throttle_ms(rate, settings["bound"], now_ms) == wait_ms


def test_buckets_are_those_of_kafka() -> None:
    ((settings, steps),) = recorded("bucket")
    bucket = TokenBucket(
        int(settings["samples"]), int(settings["window"]), settings["bound"], START_MS
    )
    now_ms = START_MS
    for pause_ms, amount, tokens, _ in steps:
        now_ms += pause_ms
        bucket.take(amount, now_ms)
        assert bucket.tokens == pytest.approx(tokens)
        assert (bucket.wait_ms(now_ms) > 0) == (tokens < 0)


def test_a_client_that_obeys_throttle_times_stays_within_the_quota() -> None:
    for amount in (700, 5000, 50_000):
        rate = WindowedRate(11, 1000)
        now_ms = START_MS
        for _ in range(2000):
            rate.record(amount, now_ms)
            now_ms += 1 + throttle_ms(rate, 1000.0, now_ms)
        per_second = 2000 * amount / (now_ms - START_MS) * 1000
        # One request that takes all windows is spread over ten of eleven, in Kafka too.
        assert 950 < per_second < 1300


def test_an_amount_can_be_taken_back() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(500, START_MS)
    rate.record(9000, START_MS)
    rate.record(-9000, START_MS)
    assert rate.per_second(START_MS) == 50.0


def test_a_rate_is_forgotten_after_all_its_windows() -> None:
    rate = WindowedRate(3, 1000)
    rate.record(500, START_MS)
    assert not rate.is_forgotten(START_MS + 2999)
    assert rate.is_forgotten(START_MS + 3000)
    assert rate.per_second(START_MS + 3000) == 0.0


def test_a_limit_of_nothing_waits_for_ever() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(1, START_MS)
    assert throttle_ms(rate, 0.0, START_MS) == MAX_THROTTLE_MS
    rate.record(1e300, START_MS)
    assert throttle_ms(rate, 1e-3, START_MS) == MAX_THROTTLE_MS


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10**9)), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(1, 2000),
)
def test_a_rate_counts_no_more_than_was_recorded(
    steps: list[tuple[int, int]], samples: int, window_ms: int
) -> None:
    rate = WindowedRate(samples, window_ms)
    now_ms, total = START_MS, 0
    for pause_ms, amount in steps:
        now_ms += pause_ms
        total += amount
        rate.record(amount, now_ms)
        counted = rate.per_second(now_ms) * rate.elapsed_ms(now_ms) / 1000
        assert amount - 1e-3 <= counted <= total + 1e-3
        assert len(rate._amounts) <= samples + 1


def test_a_bucket_is_overdrawn_once() -> None:
    bucket = TokenBucket(11, 1000, 1.0, START_MS)
    bucket.take(31, START_MS)
    assert bucket.wait_ms(START_MS) == 20_000
    assert bucket.wait_ms(START_MS + 19_999) == 1
    assert bucket.wait_ms(START_MS + 20_000) == 0
    bucket.take(-1000, START_MS + 20_000)
    assert bucket.tokens == 11


def test_a_bucket_changes_its_pace_and_keeps_what_is_owed() -> None:
    bucket = TokenBucket(10, 1000, 1.0, START_MS)
    bucket.take(20, START_MS)
    bucket.set_pace(10.0, START_MS + 5_000)
    assert bucket.wait_ms(START_MS + 5_000) == 500
    bucket.set_pace(0.0, START_MS + 5_100)
    assert bucket.wait_ms(START_MS + 5_100) == MAX_THROTTLE_MS
    bucket.set_pace(1000.0, START_MS + 9_000)
    assert bucket.wait_ms(START_MS + 60_000) == 0
    assert bucket.tokens == 10_000
