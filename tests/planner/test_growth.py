"""Growth is that of the data: moves, retention, restarts and silent brokers do not disturb it."""

from random import Random

import pytest
from sampled_clusters import CAPACITY, GIB, HOUR_S, alone, directory, led, part, sample

from spindle.cli.history.forecast_text import time_to_full_text
from spindle.planner.forecast.growth import DirectoryGrowth, directory_growths, partition_rates
from spindle.planner.forecast.samples import BrokerSample, ClusterSample
from spindle.planner.forecast.time_to_full import Filling, time_to_full
from spindle.planner.forecast.trend import MIN_POINTS, Trend, fit_trend

GIB_PER_HOUR = GIB / HOUR_S


def growth_of(samples: list[ClusterSample], path: str = "/a", broker: int = 1) -> float:
    """Return the growth of a directory in GiB per hour."""
    trend = directory_growths(samples)[broker, path].all_files
    assert trend is not None
    return trend.slope / GIB_PER_HOUR


def test_a_line_has_its_slope_and_no_uncertainty() -> None:
    trend = fit_trend([(100.0 * n, 300.0 * n + 1) for n in range(10)])
    assert trend is not None
    assert (trend.slope, trend.low, trend.high) == (3.0, 3.0, 3.0)


def test_the_interval_has_the_true_slope_nine_times_out_of_ten() -> None:
    hits = 0
    for seed in range(200):
        random = Random(seed)
        trend = fit_trend([(60.0 * n, 120.0 * n + random.gauss(0, 1200)) for n in range(40)])
        assert trend is not None
        assert trend.low <= trend.slope <= trend.high
        hits += trend.low <= 2.0 <= trend.high
    assert 165 <= hits <= 200


def test_one_wrong_value_in_five_does_not_change_the_trend() -> None:
    points = [(60.0 * n, 1e9 if n % 5 == 3 else 120.0 * n) for n in range(30)]
    trend = fit_trend(points)
    assert trend is not None
    assert trend.slope == pytest.approx(2.0)


def test_too_few_points_and_a_short_time_have_no_trend() -> None:
    assert fit_trend([(3600.0 * n, 1.0) for n in range(MIN_POINTS - 1)]) is None
    assert fit_trend([(0.2 * n, 1.0) for n in range(MIN_POINTS)]) is None
    assert fit_trend([(1.0, float(n)) for n in range(MIN_POINTS)]) is None


def test_a_replica_that_arrives_is_no_growth() -> None:
    """Partition 1, of 300 GiB, moves to /a in the middle; only partition 0 grows, 1 GiB an hour."""
    samples = []
    for hour in range(24):
        is_there = hour >= 12
        copied = 150.0 if hour == 11 else 0.0
        a = directory({0: 100.0 + hour} | ({1: 300.0} if is_there else {}), moving=copied)
        b = directory({} if is_there else {1: 300.0})
        samples.append(alone(hour, {"/a": a, "/b": b}))
    assert growth_of(samples) == pytest.approx(1.0)
    assert growth_of(samples, "/b") == pytest.approx(0.0)


def test_a_replica_of_another_broker_counts_with_its_size_there() -> None:
    samples = []
    for hour in range(24):
        there, here = (directory({}), directory({0: 50.0 + 2 * hour}))
        pair = (there, here) if hour < 12 else (here, there)
        samples.append(
            sample(
                hour, {n: BrokerSample({"/a": d}, {}) for n, d in zip((1, 2), pair, strict=True)}
            )
        )
    assert growth_of(samples) == pytest.approx(2.0)


def test_a_broker_that_is_silent_for_hours_keeps_its_rates() -> None:
    samples = []
    for hour in range(24):
        answer = BrokerSample({"/a": directory({0: 100.0 + hour})}, {part(0): led(0, 1000 * hour)})
        samples.append(
            sample(hour, {1: None if 6 <= hour < 14 else answer, 2: BrokerSample({}, {})})
        )
    assert growth_of(samples) == pytest.approx(1.0)
    produced = partition_rates(samples)[part(0)].produced_bytes_per_second
    assert produced == pytest.approx(GIB_PER_HOUR)


def test_retention_stops_growth_but_not_what_is_produced() -> None:
    """10 GiB an hour come in; from hour 10 on, as much is deleted every hour."""
    samples = []
    for hour in range(40):
        start, end = max(0, hour - 10) * 1000, hour * 1000
        size = (end - start) / 1000 * 10.0
        samples.append(alone(hour, {"/a": directory({0: size})}, {0: led(start, end)}))
    rates = partition_rates(samples)[part(0)]
    assert rates.growth is not None
    assert rates.growth.slope / GIB_PER_HOUR == pytest.approx(0.0, abs=0.01)
    assert rates.produced_bytes_per_second / GIB_PER_HOUR == pytest.approx(10.0)
    assert growth_of(samples) == pytest.approx(0.0, abs=0.01)


def test_compaction_keeps_the_size_and_what_is_produced_is_counted() -> None:
    """Every fourth hour a compaction removes what came in before; offsets go on."""
    samples = []
    for hour in range(40):
        size = 20.0 + 5.0 * (hour % 4)
        samples.append(alone(hour, {"/a": directory({0: size})}, {0: led(0, 500 * hour)}))
    rates = partition_rates(samples)[part(0)]
    assert rates.growth is not None
    assert rates.growth.low <= 0 <= rates.growth.high
    assert rates.produced_bytes_per_second / GIB_PER_HOUR == pytest.approx(5.0)


def test_a_topic_that_was_created_again_starts_over() -> None:
    samples = []
    for hour in range(24):
        age = hour if hour < 12 else hour - 12
        led_sample = led(0, 100 * age, "old" if hour < 12 else "new")
        samples.append(alone(hour, {"/a": directory({0: 3.0 * age})}, {0: led_sample}))
    rates = partition_rates(samples)[part(0)]
    assert rates.growth is not None
    assert rates.growth.slope / GIB_PER_HOUR == pytest.approx(3.0)
    assert rates.produced_bytes_per_second / GIB_PER_HOUR == pytest.approx(3.0)


def test_other_files_fill_a_directory_as_well() -> None:
    samples = [alone(h, {"/a": directory({0: 5.0}, others=10.0 + 4 * h)}) for h in range(10)]
    growth = directory_growths(samples)[1, "/a"]
    assert growth.other_files is not None
    assert growth.replicas is not None
    assert growth.other_files.slope / GIB_PER_HOUR == pytest.approx(4.0)
    assert growth.replicas.slope == 0
    assert growth_of(samples) == pytest.approx(4.0)


def test_the_time_to_full_says_when_or_that_nobody_knows() -> None:
    samples = [alone(h, {"/a": directory({0: 100.0 + h})}) for h in range(10)]
    growth = directory_growths(samples)[1, "/a"]
    forecast = time_to_full(90 * GIB, growth)
    assert forecast.filling is Filling.FILLING
    assert forecast.expected_s == pytest.approx(90 * HOUR_S)
    few = directory_growths(samples[:3])[1, "/a"]
    forecast = time_to_full(90 * GIB, few)
    assert (forecast.filling, forecast.reason) == (Filling.UNKNOWN, "too few samples (3 of 6)")
    still = directory_growths([alone(h, {"/a": directory({0: 1.0})}) for h in range(9)])[1, "/a"]
    assert time_to_full(CAPACITY, still).filling is Filling.NOT_FILLING
    assert time_to_full(-1, growth).reason == "the free space is unknown"


def test_a_history_says_nothing_about_times_far_beyond_its_span() -> None:
    """A burst in six samples within a second is no growth; 9 hours say nothing about 91."""
    samples = [alone(n / 18_000, {"/a": directory({0: 100.0 + n})}) for n in range(6)]
    forecast = time_to_full(90 * GIB, directory_growths(samples)[1, "/a"])
    assert forecast.reason == "the history spans 1 of at least 600 s"
    samples = [alone(h, {"/a": directory({0: 100.0 + h})}) for h in range(10)]
    growth = directory_growths(samples)[1, "/a"]
    assert time_to_full(90 * GIB, growth).filling is Filling.FILLING
    far = time_to_full(91 * GIB, growth)
    assert far.filling is Filling.FAR
    assert time_to_full_text(far) == "not within 3.8 d"
    wide = DirectoryGrowth(9, 3600.0, None, None, Trend(1.0, 0.5, 3.0))
    assert time_to_full_text(time_to_full(60_000, wide)) == (
        "not within 10.0 h (at the earliest in 5.6 h)"
    )
    assert time_to_full_text(time_to_full(36_000, wide)) == "in 10.0 h (3.3 h to 20.0 h)"
