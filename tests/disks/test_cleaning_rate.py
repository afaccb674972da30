"""The limit of compaction's I/O."""

from spindle.disks.cleaning_rate import CleaningRate


def test_a_higher_limit_counts_at_once() -> None:
    rate = CleaningRate()
    rate.set_limit(0)
    assert rate.pause_s(3600, 0.0) == 3600.0
    rate.set_limit(1000)
    assert rate.pause_s(500, 1.0) == 0.5


def test_the_same_limit_again_forgives_nothing() -> None:
    rate = CleaningRate()
    rate.set_limit(10)
    rate.pause_s(100, 0.0)
    rate.set_limit(10)
    assert rate.pause_s(10, 1.0) == 10.0
