"""The supervisor of node processes: what it reads from their pipes, and the order of a stop."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spindle.local.node_process import BROKER_STOPPED, BROKER_STOPPED_WAS_LEADER, READY
from spindle.local.supervisor import Supervisor


class FakeProcess:
    """A node process whose reports the test writes."""

    def __init__(self, *_: Any) -> None:
        self.pid = 0
        self.status_fd, self._report_fd = os.pipe()
        self.fds = (self.status_fd,)
        self.signals: list[int] = []
        self.is_exit_allowed = False

    def report(self, news: bytes) -> None:
        os.write(self._report_fd, news)

    def end(self) -> None:
        os.close(self._report_fd)
        self._report_fd = -1

    def kill(self, number: int) -> None:
        self.signals.append(number)

    def allow_exit(self) -> None:
        self.is_exit_allowed = True

    def wait(self) -> int:
        os.close(self.status_fd)
        if self._report_fd >= 0:
            os.close(self._report_fd)
        return -signal.SIGKILL if signal.SIGKILL in self.signals else 143


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    monkeypatch.setattr("spindle.local.supervisor.NodeProcess", FakeProcess)
    return Supervisor()


def start(supervisor: Supervisor, *node_ids: int) -> list[Any]:
    """Start nodes and return their processes."""
    processes = []
    for node_id in node_ids:
        folder: Any = SimpleNamespace(node_id=node_id, config=None, log_file=Path("log"))
        processes.append(supervisor.start(folder, node_ids, lambda *_: 0, []).process)
    return processes


def test_a_node_is_ready_when_it_says_so_and_has_ended_when_its_pipe_closes(
    supervisor: Supervisor,
) -> None:
    (process,) = start(supervisor, 1)
    assert not supervisor.runs[1].is_ready
    process.report(READY)
    assert supervisor.read(1).is_ready
    process.end()
    assert supervisor.read(1).exit_code == 143
    assert not supervisor.running
    assert not supervisor.status_fds


def test_a_node_that_stops_alone_waits_for_no_other(supervisor: Supervisor) -> None:
    one, other = start(supervisor, 1, 2)
    one.report(BROKER_STOPPED)
    supervisor.read(1)
    assert (one.is_exit_allowed, other.is_exit_allowed) == (True, False)
    supervisor.kill()


def test_the_quorum_stops_after_the_last_broker_and_its_leader_after_the_others(
    supervisor: Supervisor,
) -> None:
    processes = start(supervisor, 1, 2, 3)
    supervisor.request_stop()
    assert [process.signals for process in processes] == [[signal.SIGTERM]] * 3
    allowed = []
    for node_id, news in ((2, BROKER_STOPPED_WAS_LEADER), (1, BROKER_STOPPED), (3, BROKER_STOPPED)):
        processes[node_id - 1].report(news)
        supervisor.read(node_id)
        allowed.append([process.is_exit_allowed for process in processes])
    assert allowed == [[False] * 3, [False] * 3, [True, False, True]]
    for node_id in (1, 3):
        processes[node_id - 1].end()
        supervisor.read(node_id)
    assert processes[1].is_exit_allowed
    supervisor.kill()


def test_a_node_that_ends_during_a_stop_holds_up_nobody(supervisor: Supervisor) -> None:
    one, other = start(supervisor, 1, 2)
    supervisor.request_stop()
    one.report(BROKER_STOPPED)
    supervisor.read(1)
    assert not one.is_exit_allowed
    other.end()
    supervisor.read(2)
    assert one.is_exit_allowed
    supervisor.kill()


def test_a_start_during_a_stop_lets_the_stopping_nodes_exit(supervisor: Supervisor) -> None:
    one, other = start(supervisor, 1, 2)
    supervisor.request_stop()
    one.report(BROKER_STOPPED)
    supervisor.read(1)
    assert not one.is_exit_allowed
    (third,) = start(supervisor, 3)
    assert [process.is_exit_allowed for process in (one, other, third)] == [True, False, False]
    other.report(BROKER_STOPPED)
    supervisor.read(2)
    assert other.is_exit_allowed
    supervisor.kill()


def test_killed_nodes_have_ended_when_kill_returns(supervisor: Supervisor) -> None:
    start(supervisor, 1, 2)
    supervisor.kill()
    assert not supervisor.running
    assert [run.exit_code for run in supervisor.runs.values()] == [-9, -9]
