"""The history of directories stays within its size."""

from spindle.console.disk_history import MAX_DIRECTORIES, MAX_SAMPLES, DiskHistory, DiskSample


def sample(time_s: float) -> DiskSample:
    return DiskSample(time_s, 1.0, 0.0, 0.0, 0.0)


def test_the_oldest_sample_goes_when_a_directory_has_all_of_its_samples() -> None:
    history = DiskHistory()
    for number in range(MAX_SAMPLES + 2):
        history.add((1, "/disk"), sample(number))
    samples = history.samples((1, "/disk"))
    assert len(samples) == MAX_SAMPLES
    assert [s.time_s for s in (samples[0], samples[-1])] == [2.0, MAX_SAMPLES + 1.0]


def test_the_directory_without_a_sample_for_the_longest_time_goes() -> None:
    history = DiskHistory()
    for broker in range(MAX_DIRECTORIES):
        history.add((broker, "/disk"), sample(0))
    history.add((0, "/disk"), sample(1))
    history.add((MAX_DIRECTORIES, "/disk"), sample(1))
    assert history.samples((1, "/disk")) == []
    assert len(history.samples((0, "/disk"))) == 2
