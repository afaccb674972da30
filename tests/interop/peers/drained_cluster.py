"""Three brokers of either program under traffic, whose directories are drained."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
)
from waiting import wait_until

from peers.cluster import QUICK_FAILOVER, Cluster
from peers.execution_process import ExecutionProcess
from peers.failing_disk import FailingDisk
from peers.paced_traffic import PacedTraffic
from peers.paths import SPINDLE
from peers.replica_watch import ReplicaWatch
from spindle.cli.main import run
from spindle.cli.tools.bootstrap import connect
from spindle.client.admin.partitions import alter_reassignments, list_reassignments, move_replicas
from spindle.common.ids import TopicPartition as Partition

TOPIC = "drained"
PAIRS = ((1, 2), (2, 1), (2, 3), (3, 2), (3, 1), (1, 2), (2, 3), (2, 1))
"""The replicas of each partition."""
SLOW, MEDIUM, FAST = ("--throttle", "20KiB"), ("--throttle", "1MiB"), ("--throttle", "20MiB")
"""The first is slower than the traffic: such a drain does not end."""
SET_BY_DRAINS = ("throttled", "cordoned", "alter.log.dirs")
TOPIC_SOURCE, BROKER_SOURCE = 1, 2
"""Where the value of a configuration is from, by the numbers of the protocol."""
LIMIT_S = 180.0


class DrainedCluster:
    """Brokers with two plain directories each; brokers 2 and 3 have a disk that can die, too."""

    def __init__(self, folder: Path, programs: Sequence[str]) -> None:
        overrides = {
            **QUICK_FAILOVER,
            "auto.leader.rebalance.enable": "false",
            # A throttle lets the first fetch pass, and by default the bytes of ten seconds at once:
            # these values leave enough to copy.
            "replica.fetch.max.bytes": "16384",
            "replication.quota.window.num": "2",
            "alter.log.dirs.replication.quota.window.num": "2",
            # Drains need a broker that has no replica of the partition yet.
            "offsets.topic.replication.factor": "2",
        }
        self.disks = {seat: FailingDisk(folder / f"disk{seat}") for seat in (2, 3)}
        self.cluster = Cluster(folder, programs, overrides)
        for seat, disk in self.disks.items():
            self.cluster.seats[seat].log_dirs.append(disk.path)
            self.cluster.seats[seat].write_properties()
        self.dead: set[Path] = set()
        self._state = folder / "drain.json"
        self._heal_state = folder / "heal"

    def fail(self, seat: int) -> None:
        """Let every access to the disk of a broker fail from now on."""
        self.disks[seat].fail()
        self.dead.add(self.disks[seat].path)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def create(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, len(PAIRS), replica_assignment=[list(pair) for pair in PAIRS])
        self.admin.create_topics([topic])[TOPIC].result(LIMIT_S)
        self.until(lambda: self._copies() == 2 * len(PAIRS), "the replicas are not on the disks")

    def remove(self) -> None:
        self.cluster.kill()
        for disk in self.disks.values():
            disk.remove()

    def drain(self, path: str, *words: str, seat: int = 2) -> ExecutionProcess:
        """Start a drain of a directory."""
        limits = ("--capacity", "200MiB", "--max-moves-per-dir", "3", "--state", str(self._state))
        return ExecutionProcess(self.bootstrap, "drain", f"{seat}:{path}", *limits, *words)

    def heal(self, *words: str) -> ExecutionProcess:
        """Start a healing that looks every second."""
        limits = ("--capacity", "200MiB", "--max-moves-per-dir", "3", "--interval", "1s")
        return ExecutionProcess(
            self.bootstrap, "heal", *limits, "--state", str(self._heal_state), *words
        )

    def finish(self, drain: ExecutionProcess, path: str) -> None:
        """Assert that a drain ends well."""
        code, out = drain.ended()
        if "the throttles of broker 3 are left" in out:
            code, out = self.drain(path, *FAST).ended()
        assert code == 0, out
        assert f"2:{path} has no replicas" in out, out
        assert not self._state.exists()

    def check_after(self, path: str) -> None:
        """Assert that a drain has left only the cordon of its directory, and has lost nothing."""
        cordon = {"2 cordoned.log.dirs": path}
        self.until(lambda: self.traces() in ({}, cordon), "a throttle or another cordon is left")
        self.check_directories()
        self.written.wait_for_more()
        self.watched.check()

    def knows_all_brokers(self) -> bool:
        """Return whether all brokers run. A client asks no broker that it has not heard of."""
        return len(self.admin.list_topics(TOPIC, timeout=LIMIT_S).brokers) == len(
            self.cluster.seats
        )

    def replicas(self) -> dict[int, set[int]]:
        """Return the brokers of each partition."""
        known = self.admin.list_topics(TOPIC, timeout=LIMIT_S).topics[TOPIC].partitions
        return {number: set(partition.replicas) for number, partition in known.items()}

    def is_whole(self) -> bool:
        known = self.admin.list_topics(TOPIC, timeout=LIMIT_S).topics[TOPIC].partitions
        return all(
            len(partition.isrs) == len(partition.replicas) == 2 for partition in known.values()
        )

    def gather(self) -> str:
        """Bring the replicas back to their first brokers, in broker 2 to the disk; return its
        path.
        """
        path = str(self.disks[2].path)
        pairs = {Partition(TOPIC, number): pair for number, pair in enumerate(PAIRS)}
        own = [partition for partition, pair in pairs.items() if 2 in pair]
        with connect(self.bootstrap, {}) as client:
            move_replicas(client, 2, dict.fromkeys(own, path))
            assert not any(alter_reassignments(client, pairs).values())
            self.until(
                lambda: (
                    not list_reassignments(client)
                    and len(self.held(2)[path]) == len(own)
                    and self.is_whole()
                ),
                "the replicas are not back",
            )
        return path

    def disks_command(self, *words: str) -> None:
        assert run(("disks", *words, "-b", self.bootstrap)) == 0, words

    def held(self, seat: int) -> dict[str, set[str]]:
        """Return the replicas of the topic in each directory of a broker, by their files."""
        return {
            str(path): {file.name for file in path.glob(f"{TOPIC}-*") if "." not in file.name}
            for path in self.cluster.seats[seat].log_dirs
            if path not in self.dead
        }

    def _copies(self) -> int:
        return sum(
            len(directory) for seat in self.cluster.seats for directory in self.held(seat).values()
        )

    def traces(self) -> dict[str, str]:
        """Return the dynamic settings that drains set: those of brokers, and of the topic."""
        kind = ConfigResource.Type
        wanted = [ConfigResource(kind.TOPIC, TOPIC)]
        wanted += [ConfigResource(kind.BROKER, str(seat)) for seat in self.cluster.seats]
        traces = {}
        for resource in wanted:
            (future,) = self.admin.describe_configs([resource]).values()
            for name, entry in future.result(LIMIT_S).items():
                is_dynamic = entry.source in (TOPIC_SOURCE, BROKER_SOURCE)
                if is_dynamic and entry.value and any(word in name for word in SET_BY_DRAINS):
                    traces[f"{resource.name} {name}"] = entry.value
        return traces

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        wait_until(is_so, what, limit_s=LIMIT_S)

    def check_directories(self) -> None:
        """Assert that an audit of all directories that are left finds no error."""
        paths = [
            str(path)
            for node in self.cluster.seats.values()
            for path in node.log_dirs
            if path not in self.dead
        ]
        command = [str(SPINDLE), "audit", *paths, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        load = json.loads(done.stdout)["findings"]
        errors = [finding for finding in load if finding["severity"] == "error"]
        assert not errors, errors

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Write, read and watch meanwhile."""
        with (
            PacedTraffic(self.bootstrap, TOPIC, len(PAIRS), 200, 4000) as self.written,
            ReplicaWatch(
                self.bootstrap, TOPIC, replication_factor=2, least_in_sync=1
            ) as self.watched,
        ):
            self.written.wait_for_more(100)
            yield
