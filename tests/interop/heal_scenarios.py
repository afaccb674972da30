"""Scenarios of `spindle heal`, for the clusters of two modules.

In one of them Kafka's own tool carries out a plan. They run in the order of this file, on one
cluster and under one traffic. After each, throttles are gone, and an audit of all directories finds
no error.
"""

from __future__ import annotations

from pathlib import Path

from peers.drained_cluster import FAST, SLOW, TOPIC, DrainedCluster
from peers.execution_process import ExecutionProcess
from peers.java_tools import JavaTools
from peers.metadata_view import directories, directory_id

from spindle.cli.main import run

_FINE = "all directories are below"
_AT_ONCE = ("--grace", "1s")


def heal_a_dead_disk(drained: DrainedCluster, tools: JavaTools) -> None:
    """Let a disk die, and kill the first healing; then start the broker without the disk."""
    disk = str(drained.disks[2].path)
    drained.until(lambda: _is_assigned(drained, tools), "the controller does not know the disk")
    assert drained.held(2)[disk]
    drained.fail(2)
    _kill_and_finish(drained)
    drained.until(drained.is_whole, "not every replica is in sync")
    drained.cluster.seats[2].log_dirs.remove(drained.disks[2].path)
    drained.cluster.restart(2, is_killed=True)
    drained.until(drained.is_whole, "not every replica is in sync after the restart")
    _check(drained)


def wait_for_a_killed_broker(drained: DrainedCluster, tools: JavaTools, folder: Path) -> None:
    """Kill a broker while Kafka's tool executes a plan, cancel the plan with Spindle's, and start
    the broker within its grace: nothing has moved.
    """
    before = drained.replicas()
    words = ("decommission", "2", "--capacity", "200MiB", "--out", str(folder))
    assert run(("plan", *words, "-b", drained.bootstrap)) == 0
    file = ("--reassignment-json-file", str(folder / "round-0001.json"))
    server = ("--bootstrap-server", drained.bootstrap)
    throttle = ("--execute", "--throttle", "20480")
    tools.run("reassign-partitions", *server, *file, *throttle).check()
    drained.cluster.seats[3].kill()
    assert "is still in progress" in _reassign(drained, *file, "--verify")
    assert "Successfully cancelled" in _reassign(drained, *file, "--cancel")
    heal = drained.heal("--grace", "1h", *FAST)
    heal.until("waiting for its return")
    drained.cluster.restart(3, is_killed=True)
    drained.until(drained.knows_all_brokers, "a broker is missing")
    # The broker has kept the throttle of Kafka's tool until now.
    assert "There is no active reassignment" in _reassign(drained, *file, "--verify")
    heal.until(_FINE)
    _interrupt(heal)
    assert drained.replicas() == before
    drained.until(drained.is_whole, "not every replica is in sync")
    _check(drained)


def heal_a_killed_broker(drained: DrainedCluster) -> None:
    """Make the replicas of a killed broker elsewhere, and start it again at the end."""
    drained.cluster.seats[3].kill()
    _kill_and_finish(drained)
    assert set(map(frozenset, drained.replicas().values())) == {frozenset((1, 2))}
    drained.until(drained.is_whole, "not every replica is in sync")
    drained.cluster.restart(3, is_killed=True)
    _check(drained)


def check_records(drained: DrainedCluster) -> None:
    """Assert that every acknowledged record is there once, in order."""
    drained.written.stop()
    drained.written.check()
    drained.watched.check()


def _kill_and_finish(drained: DrainedCluster) -> None:
    """Kill a slow healing in its first round, and let another one finish."""
    heal = drained.heal(*_AT_ONCE, *SLOW)
    heal.until("moving ")
    heal.kill()
    heal = drained.heal(*_AT_ONCE, *FAST)
    heal.until(_FINE)
    _interrupt(heal)


def _reassign(drained: DrainedCluster, *words: str) -> str:
    code, out = ExecutionProcess(drained.bootstrap, "reassign", *words).ended()
    assert code == 0, out
    return out


def _interrupt(heal: ExecutionProcess) -> None:
    heal.interrupt()
    code, out = heal.ended()
    assert code == 130, out


def _is_assigned(drained: DrainedCluster, tools: JavaTools) -> bool:
    """Return whether the controller knows which replicas are on the disk of broker 2.

    Only then does it elect other leaders for them when the disk dies.
    """
    node = drained.cluster.seats[2]
    replicas = directories(tools, node).replicas
    disk = directory_id(node, node.log_dirs.index(drained.disks[2].path))
    held = drained.held(2)[str(drained.disks[2].path)]
    known = {f"{topic}-{number}" for (topic, number), at in replicas.items() if at.get(2) == disk}
    return held == {name for name in known if name.startswith(f"{TOPIC}-")}


def _check(drained: DrainedCluster) -> None:
    drained.until(drained.knows_all_brokers, "a broker is missing")
    drained.until(lambda: drained.traces() == {}, "a throttle is left")
    drained.check_directories()
    drained.written.wait_for_more()
    drained.watched.check()
