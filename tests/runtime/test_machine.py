"""The clocks of the machine: what counts time is not moved by who sets the time of day."""

import time

import pytest

from spindle.runtime.machine import LocalMachine

DAY_NS = 24 * 3600 * 10**9


@pytest.mark.parametrize("jump_ns", [DAY_NS, -DAY_NS])
def test_the_steady_clock_does_not_jump(monkeypatch: pytest.MonkeyPatch, jump_ns: int) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5 * 10**9)
    machine = LocalMachine()
    before_ms, wall_ms = machine.steady_clock_ms(), machine.wall_clock_ms()
    true_time_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() + jump_ns)
    assert machine.steady_clock_ms() == before_ms
    assert abs(machine.wall_clock_ms() - wall_ms - jump_ns // 10**6) < DAY_NS // 10**6
