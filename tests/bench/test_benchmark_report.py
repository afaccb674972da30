"""`make bench`: verdicts, the table, the page of results, and runs in which something fails."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import click
import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks import page_cache, spark
from benchmarks.catalogue import NODE_ITEMS, SETS, selected
from benchmarks.interpreter import describe
from benchmarks.items import Item, Metric, Sizes, Subject
from benchmarks.report import Line, Results, table
from benchmarks.results import line_of, page
from benchmarks.session import Session, in_turn
from benchmarks.spark import ITEMS as SPARK_ITEMS
from benchmarks.spark_table import ROWS as SPARK_ROWS

SUBJECT = Subject("a node", lambda node_class, folder: node_class(folder))


def line(kafka: list[float], spindle: list[float], more: bool = True, goal: float = 2.0) -> Line:
    return Line("work", "rate", "MB/s", more, {"kafka": kafka, "spindle": spindle}, {"kafka": goal})


@pytest.mark.parametrize(
    ("more", "spindle", "verdict"),
    [
        (True, 200.0, "met"),
        (True, 199.0, "missed"),
        (False, 200.0, "met"),
        (False, 201.0, "missed"),
    ],
)
def test_a_goal_is_a_bound_for_the_ratio_of_medians(
    more: bool, spindle: float, verdict: str
) -> None:
    assert line([90, 100, 900], [1, spindle, 999], more).verdict() == verdict


def test_a_goal_without_figures_is_not_met() -> None:
    assert line([], [1]).verdict() == "not measured"
    assert line([1], []).verdict() == "not measured"
    assert line([0], [1]).ratio("kafka") is None


def test_every_goal_has_to_be_met() -> None:
    values = {"kafka": [1.0], "before": [2.0], "spindle": [2.0]}
    assert Line("w", "m", "u", True, values, {"kafka": 2, "before": 1}).verdict() == "met"
    assert Line("w", "m", "u", True, values, {"kafka": 2, "before": 1.1}).verdict() == "missed"
    assert Line("w", "m", "u", True, values).verdict() == ""


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        ({"kafka": [1.0, 1.0], "spindle": [3.0, 3.0]}, ""),
        ({"kafka": [1.0, 1.0], "spindle": [1.5, 1.6]}, ""),
        ({"kafka": [1.0, 1.2], "spindle": [2.5, 2.3]}, "within the spread"),
        ({"kafka": [1.0], "spindle": [1.5], "floor": [2.5]}, ""),
        ({"kafka": [1.0], "spindle": [1.5], "floor": [1.7]}, "the floor has 1.70x"),
        ({"kafka": [1.0], "spindle": [2.5], "floor": [1.7]}, ""),
        ({"kafka": [], "spindle": [2.5]}, ""),
    ],
)
def test_a_remark_says_what_weakens_a_verdict(values: dict[str, list[float]], remark: str) -> None:
    assert Line("w", "m", "u", True, values, {"kafka": 2.0}).remark() == remark


def test_goals_against_kafka_are_not_those_against_an_earlier_spindle() -> None:
    metrics = (Metric("a", "u", True, 1.7), Metric("b", "u", False, 0.25, goal_of_before=1.05))
    item = Item("work", lambda *_: {}, metrics, SUBJECT)
    for programs, goals in [
        (("kafka", "spindle"), [{"kafka": 1.7}, {"kafka": 0.25}]),
        (("before", "spindle"), [{}, {"before": 1.05}]),
        (("kafka", "before", "spindle"), [{"kafka": 1.7}, {"kafka": 0.25, "before": 1.05}]),
    ]:
        assert [line.goals for line in Results(programs).lines([item])] == goals


def test_the_table_has_goal_and_verdict_in_each_row() -> None:
    output = io.StringIO()
    Console(file=output, width=200).print(
        table([line([1], [3]), line([1], [1.5])], ("kafka", "spindle"))
    )
    met, missed = (text for text in output.getvalue().splitlines() if "MB/s" in text)
    assert ">= 2x" in met
    assert "3.00x" in met
    assert met.split("│")[-3].strip() == "met"
    assert missed.split("│")[-3].strip() == "missed"


def document(load: float, *lines: Line) -> dict[str, Any]:
    return {
        "environment": {
            "time": "2030-01-01T00:00:00+00:00",
            "load_average_at_start": [load, load, load],
            "cores": 2,
            "processor": "a processor",
            "memory_bytes": 2**34,
            "file_system": "ext4",
            "kernel": "Linux 6",
            "librdkafka": "2.16.0",
            "java": "openjdk 17",
            "kafka": "4.4.0",
            "spindle": {"spindle": {"commit": "abc", "interpreter": describe()}},
        },
        "settings": {
            "runs": 3,
            "volume_bytes": 2**30,
            "small_volume_bytes": 2**29,
            "latency_records": 100,
            "warm_up_requests": 100,
            "restart_partitions": 10,
            "spark_records": 10,
        },
        "programs": ["kafka", "spindle"],
        "lines": [line.as_json() for line in lines],
        "failures": ["work on kafka: it broke"],
        "skipped": {"other": "no disk"},
    }


def test_the_page_begins_with_what_was_missed() -> None:
    text = page(document(0.1, line([1], [3]), line([2], [3])))
    goals, figures = text.split("## All figures")
    assert "1 met, 1 missed" in goals
    assert "1.50x" in goals
    assert "3.00x" not in goals
    assert "3.00x" in figures
    assert "1.50x" in figures
    assert "**missed**" in figures
    assert "it broke" in figures
    assert "no disk" in figures
    assert "CPython" in goals
    assert "do not rely" not in text


def test_the_page_warns_of_a_busy_machine() -> None:
    assert "do not rely" in page(document(1.5, line([1], [3])))


def test_the_json_gives_the_line_back() -> None:
    one = line([1.0, 2.0], [3.0])
    assert line_of(one.as_json()) == one
    assert one.as_json()["verdict"] == "met"


def test_sets_and_items_are_selected_once() -> None:
    assert selected(None, with_kafka=True) == [*NODE_ITEMS, *SPARK_ITEMS]
    assert selected("one-in-flight, data-plane", with_kafka=True)[0] == "one-in-flight"
    assert sorted(selected("one-in-flight,data-plane", True)) == sorted(SETS["data-plane"])
    assert "spark-two-columns" not in selected("data-plane", with_kafka=False)
    for name in ("spark-two-columns", "nothing"):
        with pytest.raises(click.UsageError, match=name):
            selected(name, with_kafka=False)


def test_each_program_is_as_often_the_first() -> None:
    assert [in_turn("ab", number) for number in range(4)] == ["ab", "ba", "ab", "ba"]


class OneProgram:
    kind: ClassVar[str] = "kafka"

    def __init__(self, folder: Path) -> None:
        pass

    def remove(self) -> None:
        pass


class OtherProgram(OneProgram):
    kind: ClassVar[str] = "spindle"


def test_a_failure_loses_only_its_own_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "recycle", lambda *_: None)

    def fails_on_kafka(subject: OneProgram, _: Sizes) -> dict[str, float]:
        if subject.kind == "kafka":
            raise LookupError("the client broke")
        return {"rate": 1.0}

    metrics = (Metric("rate", "MB/s", True, 2.0),)
    items = [
        Item("first", fails_on_kafka, metrics, SUBJECT),
        Item("second", lambda subject, sizes: {"rate": 2.0}, metrics, SUBJECT),
    ]
    results = Results()
    with Progress(console=Console(file=io.StringIO())) as progress:
        bar = progress.add_task("measuring")
        classes: Any = (OneProgram, OtherProgram)
        Session(classes, Sizes(), 2, tmp_path, results, progress, bar).measure(items)
        assert progress.finished
    first, second = results.lines(items)
    assert first.values == {"kafka": [], "spindle": [1.0, 1.0]}
    assert first.verdict() == "not measured"
    assert second.values == {"kafka": [2.0, 2.0], "spindle": [2.0, 2.0]}
    assert len(results.failures) == 2
    assert "first on kafka" in results.failures[0]
    assert "the client broke" in results.failures[0]


def test_recycling_leaves_no_file(tmp_path: Path) -> None:
    page_cache.recycle(tmp_path, 3 * page_cache.BLOCK // 2)
    assert not list(tmp_path.iterdir())


class InterruptedSpark:
    """A process that measures one row; then the run is interrupted."""

    returncode = 0
    is_terminated = False

    def __init__(self, *_: Any, **__: Any) -> None:
        self.stdin = io.StringIO()
        self.stdout = self._lines()

    def _lines(self) -> Iterator[str]:
        row = SPARK_ROWS[0]
        values = {"rows_per_s": [1.0], "client_cpu_s": [1.0], "broker_cpu_s": [1.0]}
        ways = {way.label: values for way in row.ways}
        yield json.dumps({"row": row.name, "clusters": {"kafka": ways}})
        raise SystemExit(143)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def terminate(self) -> None:
        type(self).is_terminated = True


def test_an_interrupted_run_of_spark_keeps_the_rows_that_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.spark.subprocess.Popen", InterruptedSpark)
    monkeypatch.setattr("benchmarks.spark.spark_venv.python", lambda: Path("python"))
    monkeypatch.setattr("benchmarks.spark.spark_venv.environment", dict)
    samples: spark.SamplesByRow = {}
    progress = Progress(console=Console(file=io.StringIO()))
    bar = progress.add_task("spark")
    with pytest.raises(SystemExit):
        spark._run(
            {"folder": str(tmp_path / "s")}, Results(("kafka", "spindle")), progress, bar, samples
        )
    assert {line.item for line in spark.lines(samples)} == {
        f"spark-{SPARK_ROWS[0].name}: {way.label} on kafka" for way in SPARK_ROWS[0].ways[1:]
    }
    assert InterruptedSpark.is_terminated
