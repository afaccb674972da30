"""The Spark comparison of `make bench`: its table of rows, its ratios and its CPU times."""

import os
import subprocess
import sys

import pytest

from benchmarks import spark
from benchmarks.process_cpu import CpuTimes, cpu_times, threads_s
from benchmarks.spark_table import BUILT_IN, ROWS, TOPICS, Row, Samples, Topic

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
        assert threads_s(process.pid) == pytest.approx(
            cpu_times(process.pid).seconds[process.pid], abs=0.05
        )
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


def test_the_lines_compare_each_way_with_the_first_one_on_its_cluster() -> None:
    row = ROWS[0]
    rate, cpu, _, slower, *_ = spark.lines({row.name: {"kafka": samples(row, 1e6, 4e6, 2e6)}})
    assert rate.values == {"kafka": [1, 0.5, 3], "spindle": [4, 2, 12]}
    assert rate.ratio("kafka") == 4
    assert (rate.verdict(), slower.verdict(), cpu.verdict()) == ("met", "missed", "")
