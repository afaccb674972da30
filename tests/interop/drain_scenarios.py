"""Scenarios in which a drain breaks in the middle, for the clusters of three modules.

They run in the order of this file, on one cluster and under one traffic. After each, every
partition had all its replicas at every look, throttles and cordons are gone, and an audit of all
directories finds no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers.drained_cluster import FAST, MEDIUM, SLOW, TOPIC, DrainedCluster
from peers.failing_disk import why_no_failing_disks

needs_failing_disks = pytest.mark.skipif(
    why_no_failing_disks() != "", reason=why_no_failing_disks() or "-"
)


@contextmanager
def drained_cluster(folder: Path, programs: Sequence[str]) -> Iterator[DrainedCluster]:
    """Yield a cluster under traffic, with these programs in its seats."""
    one = DrainedCluster(folder, programs)
    try:
        with one.cluster:
            one.create()
            with one.traffic():
                yield one
    finally:
        one.remove()


def _fullest(drained: DrainedCluster, *, without: str = "") -> str:
    """Return the directory of broker 2 that has the most replicas."""
    replicas_by_path = drained.held(2)
    return max(
        set(replicas_by_path) - {without}, key=lambda path: (len(replicas_by_path[path]), path)
    )


def kill_the_drain_and_a_broker(drained: DrainedCluster) -> None:
    """Kill a slow drain twice, and a broker between; the third one ends."""
    path = _fullest(drained, without=str(drained.disks[2].path))
    drain = drained.drain(path, *SLOW)
    drain.until("moving ")
    drain.kill()
    drain = drained.drain(path, *SLOW)
    drain.until("moving ")
    drained.cluster.seats[3].kill()
    drained.written.wait_for_more()
    drain.kill()
    drain = drained.drain(path, *FAST)
    drained.cluster.restart(3, is_killed=True)
    drained.finish(drain, path)
    drained.check_after(path)
    assert drained.held(2)[path] == set()
    drained.disks_command("uncordon", "2", path)


def cancel_a_killed_drain(drained: DrainedCluster) -> None:
    """Kill a drain, and give it --cancel."""
    path = _fullest(drained)
    drain = drained.drain(path, *SLOW)
    drain.until("moving ")
    drain.kill()
    code, out = drained.drain(path, "--cancel").ended()
    assert (code, "is cancelled" in out) == (0, True), out
    drained.until(lambda: drained.traces() == {}, "a throttle or a cordon is left")
    drained.check_directories()


def fail_the_receiving_disk(drained: DrainedCluster) -> None:
    """Let the only open directory of broker 3 die, while broker 2 has no other open one.

    Then those of broker 2 are opened, and they take what is left. Those of broker 3 stay closed
    until the end: a broker of Kafka whose directory died refuses every later replica of the
    partitions that it had there, until a restart, and a move to it would not end.
    """
    path, disk = drained.gather(), drained.disks[3]
    own = [directory for directory in drained.held(2) if directory != path]
    others = [directory for directory in drained.held(3) if directory != str(disk.path)]
    for seat, name in [*((2, directory) for directory in own), *((3, name) for name in others)]:
        drained.disks_command("cordon", str(seat), name)
    drain = drained.drain(path, *MEDIUM)
    drain.until("moving ")
    drained.until(lambda: any(disk.path.glob(f"{TOPIC}-*")), "nothing comes to the disk")
    for directory in own:
        drained.disks_command("uncordon", "2", directory)
    drained.fail(3)
    drained.finish(drain, path)
    for name in others:
        drained.disks_command("uncordon", "3", name)
    drained.check_after(path)
    assert drained.held(2)[path] == set()
    drained.disks_command("uncordon", "2", path)


def drain_a_dead_disk(drained: DrainedCluster) -> None:
    """Drain the disk that died when it received, and start its broker without it.

    The leaders have copies of all that the disk had.
    """
    code, out = drained.drain(str(drained.disks[3].path), *FAST, seat=3).ended()
    assert code == 0, out
    drained.until(drained.is_whole, "not every replica is in sync")
    drained.until(lambda: drained.traces() == {}, "a throttle or a cordon is left")
    drained.cluster.seats[3].log_dirs.remove(drained.disks[3].path)
    drained.cluster.restart(3, is_killed=True)
    drained.until(drained.is_whole, "not every replica is in sync after the restart")
    drained.check_directories()


def fail_the_drained_disk(drained: DrainedCluster) -> None:
    """Let the disk die that is drained. Each partition has its other replica on a live disk."""
    path = drained.gather()
    drain = drained.drain(path, *MEDIUM)
    drain.until("moving ")
    drained.fail(2)
    drained.finish(drain, path)
    drained.check_after(path)
    drained.until(drained.is_whole, "not every replica is in sync")


def check_records(drained: DrainedCluster) -> None:
    """Assert that every acknowledged record is there once, in order."""
    drained.written.wait_for_more()
    drained.written.stop()
    drained.written.check()
    drained.watched.check()
