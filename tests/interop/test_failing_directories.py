"""Directories on ext4 file systems that stop answering, run full or turn read-only, under load.

These tests need root and loop devices, and say so if they are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.disk_faults import fill, make_room, stop_answering, turn_read_only
from peers.failing_disk import FailingDisk, why_no_failing_disks
from peers.java_tools import JavaTools
from peers.node import Node
from peers.paced_traffic import PacedTraffic
from peers.trio import Trio
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)

TOPIC = "t"
PARTITIONS = 12
LIMIT_S = 60.0
STALL_S = 20.0
"""A partition that waits for a replica on a dead disk waits for `replica.lag.time.max.ms`, 30 s."""


class Cluster:
    """Three nodes; the second directory of node 2, the victim, is on a disk of its own."""

    def __init__(self, kind: type[Node], folder: Path, tools: JavaTools) -> None:
        self.disk = FailingDisk(folder / "disk")
        self.trio = Trio(kind, folder, tools)
        self.victim = self.trio.nodes[2]
        self.victim.log_dirs[1] = self.disk.path
        self.victim.write_properties()

    def start(self) -> None:
        self.trio.start()
        self.trio.wait_ready()
        self.admin = AdminClient({"bootstrap.servers": self.trio.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        self.admin.create_topics([topic])[TOPIC].result(LIMIT_S)
        self.until(lambda: all(len(isr) == 3 for _, isr in self.partitions().values()))
        # The replicas are in the metadata a moment before they are on the disks.
        self.until(lambda: sum(map(len, map(self._replicas, self.victim.log_dirs))) == PARTITIONS)

    def remove(self) -> None:
        self.trio.remove()
        self.disk.remove()

    def partitions(self) -> dict[int, tuple[int, list[int]]]:
        """Return leader and ISR of each partition."""
        known = self.admin.list_topics(TOPIC, timeout=LIMIT_S).topics[TOPIC].partitions
        return {number: (one.leader, sorted(one.isrs)) for number, one in known.items()}

    def on_disk(self) -> set[int]:
        """Return the partitions with a replica on the disk."""
        return self._replicas(self.disk.path)

    @staticmethod
    def _replicas(directory: Path) -> set[int]:
        return {int(path.name.rpartition("-")[2]) for path in directory.glob(f"{TOPIC}-*")}

    def until(self, is_so: Callable[[], bool]) -> None:
        wait_until(is_so, lambda: self.admin.list_topics(timeout=LIMIT_S).topics, limit_s=LIMIT_S)


@pytest.fixture
def cluster(
    tmp_path: Path, candidate_class: type[Node], java_tools: JavaTools
) -> Iterator[Cluster]:
    reason = why_no_failing_disks()
    if reason:
        pytest.skip(reason)
    one = Cluster(candidate_class, tmp_path, java_tools)
    try:
        one.start()
        yield one
    finally:
        one.remove()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (stop_answering, "Input/output error"),
        (fill, "No space left on device"),
        (turn_read_only, "Read-only file system"),
    ],
    ids=["EIO", "ENOSPC", "EROFS"],
)
def test_a_disk_fails_under_load_and_comes_back_empty(
    cluster: Cluster,
    fault: Callable[[FailingDisk], None],
    message: str,
) -> None:
    """Nothing is lost or doubled, only the replicas on the disk leave; an empty one is filled."""
    affected = cluster.on_disk()
    before = cluster.partitions()
    assert 0 < len(affected) < PARTITIONS
    kinds = {
        "led from the dead disk": {p for p in affected if before[p][0] == 2},
        "followed on the dead disk": {p for p in affected if before[p][0] != 2},
        "untouched": set(range(PARTITIONS)) - affected,
    }
    victim = cluster.victim
    with PacedTraffic(cluster.trio.bootstrap, TOPIC, PARTITIONS) as traffic:
        traffic.wait_for_more(50)
        failed_s = time.monotonic()
        fault(cluster.disk)
        cluster.until(lambda: all(isr == [1, 3] for p, (_, isr) in cluster.partitions().items()
                                  if p in affected))  # fmt: skip
        traffic.wait_for_more()
    after = cluster.partitions()
    assert {p for p, (_, isr) in after.items() if isr != [1, 2, 3]} == affected
    assert all(after[p][0] == before[p][0] for p in range(PARTITIONS) if p not in affected)
    traffic.check()
    assert victim.alive
    assert message in victim.output()
    for kind, partitions in kinds.items():
        gap_s = max((traffic.longest_gap_s(p, failed_s) for p in partitions), default=0.0)
        print(f"{kind}: longest time between two acknowledgements {gap_s:.3f} s")
        assert gap_s < STALL_S, kind

    # A start with the dead disk: the other directory serves.
    assert victim.stop() in (0, 143)
    victim.start()
    well = {p for p in range(PARTITIONS) if p not in affected}
    cluster.until(lambda: all(cluster.partitions()[p][1] == [1, 2, 3] for p in well))

    assert victim.stop() in (0, 143)
    cluster.disk.replace()
    victim.format("--ignore-formatted")
    victim.start()
    cluster.until(lambda: all(isr == [1, 2, 3] for _, isr in cluster.partitions().values()))
    traffic.check()


def test_a_disk_that_was_full_serves_again_after_a_restart(cluster: Cluster) -> None:
    with PacedTraffic(cluster.trio.bootstrap, TOPIC, PARTITIONS) as traffic:
        traffic.wait_for_more()
        fill(cluster.disk)
        cluster.until(lambda: any(isr == [1, 3] for _, isr in cluster.partitions().values()))
        assert cluster.victim.stop() in (0, 143)
        make_room(cluster.disk)
        cluster.victim.start()
        cluster.until(lambda: all(isr == [1, 2, 3] for _, isr in cluster.partitions().values()))
        traffic.wait_for_more()
    traffic.check()
    assert cluster.on_disk()


class WholeDisks(Cluster):
    """Three nodes, each with a single directory, on a disk of its own; the victim is chosen."""

    def __init__(self, kind: type[Node], folder: Path, tools: JavaTools) -> None:
        self.trio = Trio(kind, folder, tools)
        self.disks = {number: FailingDisk(folder / f"disk{number}") for number in self.trio.nodes}
        self._choose(2)
        for number, node in self.trio.nodes.items():
            node.log_dirs = [self.disks[number].path]
            node.write_properties()

    def _choose(self, number: int) -> None:
        self.number = number
        self.victim = self.trio.nodes[number]
        self.disk = self.disks[number]

    def choose(self, *, must_lead_quorum: bool) -> None:
        """Make the active controller the victim, or another node."""
        lines = self.trio.run("metadata-quorum", "describe", "--status").lines
        (leader,) = [int(line.split()[1]) for line in lines if line.startswith("LeaderId")]
        self._choose(leader if must_lead_quorum else leader % 3 + 1)

    def remove(self) -> None:
        self.trio.remove()
        for disk in self.disks.values():
            disk.remove()


@pytest.fixture
def whole_disks(
    tmp_path: Path, candidate_class: type[Node], java_tools: JavaTools
) -> Iterator[WholeDisks]:
    reason = why_no_failing_disks()
    if reason:
        pytest.skip(reason)
    one = WholeDisks(candidate_class, tmp_path, java_tools)
    try:
        one.start()
        yield one
    finally:
        one.remove()


@pytest.mark.parametrize("leads_quorum", [False, True])
def test_a_node_whose_only_disk_fails_ends_and_its_partitions_are_led_elsewhere(
    whole_disks: WholeDisks, leads_quorum: bool
) -> None:
    cluster = whole_disks
    cluster.choose(must_lead_quorum=leads_quorum)
    others = sorted({1, 2, 3} - {cluster.number})
    bootstrap = cluster.trio.nodes[others[0]].bootstrap
    cluster.admin = AdminClient({"bootstrap.servers": bootstrap})
    with PacedTraffic(bootstrap, TOPIC, PARTITIONS) as traffic:
        traffic.wait_for_more(50)
        failed_s = time.monotonic()
        stop_answering(cluster.disk)
        cluster.until(lambda: all(isr == others for _, isr in cluster.partitions().values()))
        traffic.wait_for_more()
    gap_s = max(traffic.longest_gap_s(p, failed_s) for p in range(PARTITIONS))
    print(f"longest time between two acknowledgements {gap_s:.3f} s")
    traffic.check()
    assert cluster.victim.process is not None
    assert cluster.victim.process.wait(LIMIT_S) == 1
