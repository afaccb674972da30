"""The clock of the fuzzer's limits counts neither other processes' work nor its own."""

from pathlib import Path

import pytest

from verification.fuzz.run import FuzzPlan, FuzzRun, outcome_of
from verification.fuzz.unloaded_clock import UnloadedClock
from verification.fuzz.wire import Finding, NoAnswer


class Machine:
    """A clock over a folder with the files of one process, and what changes them."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.wall_s = 100.0
        self.worked_s = 0.0
        self.clock = UnloadedClock([7], proc, lambda: self.wall_s, lambda: self.worked_s)

    def wait_for_cpu(self, thread: int, delay_s: float) -> None:
        path = self.proc / f"7/task/{thread}/schedstat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"1000 {int(delay_s * 1e9)} 5\n")


def test_time_without_load_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    before_s = machine.clock.now_s()
    machine.wall_s += 3
    assert machine.clock.now_s() - before_s == 3


def test_waiting_for_a_cpu_and_the_fuzzers_own_work_do_not_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    before_s = machine.clock.now_s()
    machine.wall_s += 10
    machine.wait_for_cpu(7, 4)
    machine.wait_for_cpu(8, 1)
    machine.worked_s += 2
    assert machine.clock.now_s() - before_s == 3


def test_an_ended_thread_keeps_its_time_and_the_clock_never_goes_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.wait_for_cpu(8, 4)
    before_s = machine.clock.now_s()
    (tmp_path / "7/task/8/schedstat").unlink()
    assert machine.clock.now_s() == before_s
    machine.wait_for_cpu(9, 50)
    assert machine.clock.now_s() == before_s
    machine.wall_s += 2
    assert machine.clock.now_s() - before_s == 2, "what was waited for too often is forgotten"


class _Silent(FuzzRun):
    """A run whose node does not answer for 30 s, with or without a CPU of its own."""

    def __init__(self, machine: Machine, delay_s: float) -> None:
        super().__init__(FuzzPlan("127.0.0.1", 1, seed=1, seconds=0.0), None)
        self.clock = machine.clock
        self._machine = machine
        self._delay_s = delay_s

    async def all(self) -> None:
        self.clock.sample()
        self._machine.wall_s += 30
        self._machine.wait_for_cpu(7, self._delay_s)
        raise ExceptionGroup("", [NoAnswer("no answer", 30.0)])


async def test_a_node_without_a_cpu_ends_the_run_at_a_time_limit(tmp_path: Path) -> None:
    outcome = await outcome_of(_Silent(Machine(tmp_path), delay_s=25))
    assert (outcome.time_limit, outcome.finding) == ("no answer", None)


async def test_a_silent_node_with_a_cpu_is_a_finding(tmp_path: Path) -> None:
    outcome = await outcome_of(_Silent(Machine(tmp_path), delay_s=1))
    assert (outcome.time_limit, outcome.finding) == (None, "no answer")


async def test_a_slow_request_on_a_busy_machine_is_no_finding(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = _Silent(machine, delay_s=0)
    run.clock.sample()
    machine.wall_s += 3
    machine.wait_for_cpu(7, 2.5)
    run.check_latency(3_000.0)


async def test_a_request_that_the_node_answers_slowly_is_a_finding(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    run = _Silent(machine, delay_s=0)
    machine.wait_for_cpu(7, 0)
    run.clock.sample()
    machine.wall_s += 3
    machine.wait_for_cpu(7, 0.5)
    with pytest.raises(Finding, match="3000 ms, 2500 ms of them without the load"):
        run.check_latency(3_000.0)


def test_a_limit_does_not_end_while_the_node_has_no_cpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    turns = 0

    def sleep(_: float) -> None:
        nonlocal turns
        turns += 1
        machine.wall_s += 1
        machine.wait_for_cpu(7, min(turns, 100))

    assert machine.clock.wait_until(lambda: turns >= 100, 10, sleep)
    assert not machine.clock.wait_until(lambda: False, 10, sleep)
    assert turns == 100 + 11


def test_a_run_continues_until_it_has_made_its_cases() -> None:
    run = FuzzRun(FuzzPlan("127.0.0.1", 1, seed=1, seconds=-1.0, min_cases=2), None)
    assert not run.is_over
    run.outcome.cases = 2
    assert run.is_over
