"""The plots of the benchmarks read the page of results."""

import pytest

from documents.plots import RESULTS, Figure, figures, plot, plots_page


def test_the_results_have_figures() -> None:
    in_results = figures(RESULTS.read_text())
    assert len(in_results) > 50
    assert all(figure.ratio > 0 for figure in in_results)
    assert plots_page().count("<svg") >= 3


@pytest.mark.parametrize(
    ("unit", "gain"), [("MB/s", 2.0), ("partitions/s created", 2.0), ("s to stop", 0.5)]
)
def test_a_higher_rate_and_a_shorter_time_are_better(unit: str, gain: float) -> None:
    assert Figure("work", unit, "1", "2", 2.0, "").gain == gain


def test_a_name_is_not_markup() -> None:
    assert "<work>" not in plot("title", [Figure("<work>", "s", "1", "2", 2.0, "")])
