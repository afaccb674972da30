"""The Spark comparison of `make bench`: its table of rows, its ratios and its CPU times."""

import io
import os
import subprocess
import sys

import pytest
from benchmarks import spark
from benchmarks.process_cpu import CpuTimes, cpu_times
from benchmarks.spark_table import BUILT_IN, ROWS, TOPICS, Row, Samples, Topic, ratio
from rich.console import Console

BURN = "import time\nwhile time.process_time() < 0.2: pass"


def used_s(before: CpuTimes) -> float:
    used = cpu_times(os.getpid()).since(before)
    assert used is not None
    return used


def test_cpu_time_includes_processes_that_have_ended() -> None:
    before = cpu_times(os.getpid())
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    subprocess.run([sys.executable, "-c", child], check=True)
    assert used_s(before) >= 0.15


def test_cpu_time_includes_processes_that_run() -> None:
    code = f"{BURN}\nprint(flush=True)\ninput()"
    before = cpu_times(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert sum(cpu_times(process.pid).seconds.values()) >= 0.15
        assert used_s(before) >= 0.15
        process.communicate(b"\n")


def test_cpu_time_is_unknown_if_an_older_process_has_ended() -> None:
    assert CpuTimes({1: 3.0}).since(CpuTimes({1: 2.0, 2: 90.0})) is None
    assert CpuTimes({1: 3.0, 3: 0.5}).since(CpuTimes({1: 2.0})) == 1.5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_begins_with_the_built_in_source(row: Row) -> None:
    assert row.baseline.source == BUILT_IN
    assert row.topic in TOPICS
    assert len({way.label for way in row.ways}) == len(row.ways)


@pytest.mark.spark
def test_every_way_has_a_job() -> None:
    from benchmarks.spark_rows import JOBS

    assert {way.job for row in ROWS for way in row.ways} == set(JOBS)


def test_partitions_of_a_topic_get_equal_shares() -> None:
    assert Topic("t", 8, 100, 0.25).records_of(100) == 24
    assert Topic("t", 8, 100, 0.25).records_of(1) == 8


def samples(row: Row, *rates: float) -> dict[str, Samples]:
    return {
        way.label: Samples([rate, rate * 0.5, rate * 3], [1.0], [0.5])
        for way, rate in zip(row.ways, rates, strict=True)
    }


def test_a_ratio_compares_medians_with_the_first_way() -> None:
    row = ROWS[0]
    assert [ratio(samples(row, 10, 40, 20), row, way) for way in row.ways] == [1, 4, 2]


def test_the_table_shows_ratios_goals_and_cpu_times() -> None:
    row = ROWS[0]
    output = io.StringIO()
    console = Console(file=output, width=200, force_terminal=True, color_system="standard")
    spark.show({row.name: {"kafka": samples(row, 1e6, 4e6, 2e6)}}, 1000, console)
    lines = [line for line in output.getvalue().splitlines() if "spindle" in line]
    assert "\x1b[32m4.00x" in lines[0]
    assert ">= 3x" in lines[0]
    assert "\x1b[31m2.00x" in lines[1]
    assert "0.50 (0.50-0.50)" in lines[1]


def test_the_json_keeps_every_value() -> None:
    row = ROWS[0]
    (first, second, _) = spark.as_json({row.name: {"kafka": samples(row, 1, 4, 2)}}, 1000)
    assert first["goal"] is None
    assert second["goal"] == row.goal
    assert second["ratio"] == 4
    assert second["rows_per_s"] == [4, 2, 12]
    assert second["records"] == 1000
