"""The second half of the demo: a disk dies in the middle of an import, and no flight is lost.

Three brokers have three disks each, all in processes of their own. The disk dies by a fault in the
process of its broker: every access fails with EIO. So the demo needs no root.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.markup import escape

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.cluster_metadata import PartitionView
from spindle.pipeline.demo import flights, sending
from spindle.pipeline.demo.copies import Copies
from spindle.pipeline.demo.flights import FlightRecord
from spindle.pipeline.demo.node import DemoError, DemoLayout
from spindle.pipeline.demo.proof import Fingerprint
from spindle.pipeline.demo.screen import Screen
from spindle.pipeline.demo.sending import PARTITIONS, TOPIC
from spindle.testing import Cluster, ClusterError, Disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS: Final = 3
DISKS: Final = 3
_WAIT_S: Final = 30.0


class Acknowledgements:
    """Counts acknowledgements by partition, and keeps the longest gap between two of them.

    Args:
        clock: seconds from a monotonic clock.
    """

    def __init__(self, partitions: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s: list[float | None] = [None] * partitions
        self._longest_s = [0.0] * partitions

    def note(self, partition: int) -> None:
        """Count an acknowledgement that has come now."""
        now_s = self._clock()
        last_s = self._last_s[partition]
        if last_s is not None and now_s - last_s > self._longest_s[partition]:
            self._longest_s[partition] = now_s - last_s
        self._last_s[partition] = now_s

    def take_longest_gap_s(self) -> float:
        """Forget the gaps that have ended, and return the longest of them in seconds.

        A gap that lasts still counts from its beginning.
        """
        longest_s = max(self._longest_s)
        self._longest_s = [0.0] * len(self._longest_s)
        return longest_s

    def longest_gap_s(self, partition: int) -> float:
        """Return the longest gap of a partition, in seconds."""
        return self._longest_s[partition]


@dataclass(frozen=True, slots=True)
class DiskFailure:
    """The course of a failure: when all brokers knew the new leaders, and the reason it had."""

    leaders_s: float
    reason: str


@dataclass(slots=True)
class DyingDisk:
    """One run of the second half."""

    screen: Screen
    layout: DemoLayout
    spark: "SparkSession"

    def run(self) -> bool:
        """Run all steps; return True if every copy of the flights equals the input.

        Raises:
            DemoError, MissingInput: a step could not be done.
        """
        try:
            with self._start() as cluster:
                disk, sent = self._import(cluster)
                copies = Copies(self.screen, self.spark, sent)
                self._read(copies, cluster, disk)
                with self.screen.step("Proof: no flight is lost, none is there twice"):
                    return copies.prove()
        except (ClusterError, TimeoutError) as error:
            raise DemoError(str(error)) from error

    def _start(self) -> Cluster:
        with self.screen.step(f"{BROKERS} brokers with {DISKS} disks each"):
            with self.screen.waiting("starting"):
                cluster = Cluster(BROKERS, DISKS, folder=self.layout.cluster)
            self.screen.say(
                f"{cluster.bootstrap_servers}, ready after {cluster.started_after_s:.2f} s; "
                f"topic [bold]{TOPIC}[/bold] with {BROKERS} replicas, of which 2 must be in sync"
            )
        return cluster

    def _import(self, cluster: Cluster) -> tuple[Disk, Fingerprint]:
        """Send the flights; in the middle, let a disk die."""
        with self.screen.step("The flights once more, and in the middle a disk dies"):
            servers = cluster.bootstrap_servers
            sending.create_topic(servers, replicas=BROKERS, min_in_sync=2)
            cluster.wait_until_in_sync([TOPIC])
            table = flights.read_flights()
            before = _partitions(servers)
            held = _held_by(cluster)
            disk = busiest_disk(
                held, {number: problem.leader for number, problem in before.items()}
            )
            acknowledged = Acknowledgements(PARTITIONS)
            scene = _Scene(cluster, disk, held[disk], before, acknowledged)
            with self.screen.progress("sending", table.num_rows) as advance:
                records = scene.play(flights.flight_records(table), table.num_rows // 2)
                sent = sending.send(servers, records, advance, acknowledged.note)
            failure = scene.ending()
            self._tell(scene, failure, table.num_rows // 2, _partitions(servers))
        return disk, sent

    def _tell(
        self,
        scene: "_Scene",
        failure: DiskFailure,
        sent: int,
        after: Mapping[int, PartitionView],
    ) -> None:
        disk = scene.disk
        self.screen.say(
            f"after {sent:,} flights, disk {disk.number} of broker {disk.node.node_id} fails: "
            f"[bold red]{self._from_root(failure.reason)}[/bold red]"
        )
        rows = []
        for number, then in sorted(scene.before.items()):
            now = after[number]
            gap_s = scene.acknowledged.longest_gap_s(number)
            rows.append(
                (
                    f"{TOPIC}-{number}",
                    scene.role_of(number),
                    _change(str(then.leader), str(now.leader)),
                    _change(_ids(then.isr), _ids(now.isr)),
                    f"{1000 * gap_s:.0f} ms",
                )
            )
        columns = ("partition", "the disk had", "leader", "in sync", "longest wait for an ack")
        self.screen.table(columns, rows, numbers=(4,))
        self.screen.say(
            f"every broker knew the new leaders after {1000 * failure.leaders_s:.0f} ms; all "
            f"records were acknowledged by at least 2 brokers. Before the failure the longest wait "
            f"was {1000 * scene.longest_before_s:.0f} ms."
        )

    def _from_root(self, text: str) -> str:
        """Return a text with shorter paths, and without markup."""
        return escape(text.replace(f"{self.layout.root}/", ""))

    def _read(self, copies: Copies, cluster: Cluster, dead: Disk) -> None:
        disks = [disk for broker in cluster.brokers for disk in broker.disks]
        left = [str(disk.path) for disk in disks if disk is not dead]
        options = {"logDirs": ",".join(left), "subscribe": TOPIC, "end": "logEnd"}
        with self.screen.step("Spark reads the topic through the brokers"):
            copies.read_through_brokers(cluster.bootstrap_servers, TOPIC, "through the brokers")
        with self.screen.step(f"The same, straight from the {len(left)} disks that are left"):
            copies.read_directories(options, f"from {len(left)} disks")
        with self.screen.step("A Delta table of what these disks have"):
            copies.export(self.layout.cluster_delta_table, options)


class _Scene:
    """A disk that dies while records are sent."""

    def __init__(
        self,
        cluster: Cluster,
        disk: Disk,
        held: Sequence[int],
        before: Mapping[int, PartitionView],
        acknowledged: Acknowledgements,
    ) -> None:
        self.disk = disk
        self.before = before
        self.acknowledged = acknowledged
        self.longest_before_s = 0.0
        self._cluster = cluster
        self._thread = ThreadPoolExecutor(1)
        self._failure: Future[DiskFailure] | None = None
        broker = disk.node.node_id
        self._led = {number for number in held if before[number].leader == broker}
        self._followed = set(held) - self._led

    def role_of(self, partition: int) -> str:
        """Return what the disk had of a partition."""
        if partition in self._led:
            return "its leader"
        return "a follower" if partition in self._followed else "-"

    def play(self, records: Iterator[FlightRecord], when: int) -> Iterator[FlightRecord]:
        """Yield the records; let the disk die when this many of them have been sent."""
        for count, record in enumerate(records):
            if count == when:
                self.longest_before_s = self.acknowledged.take_longest_gap_s()
                self._failure = self._thread.submit(self._fail)
            yield record

    def ending(self) -> DiskFailure:
        """Return the course of the failure when it is over."""
        assert self._failure is not None
        try:
            return self._failure.result(_WAIT_S)
        finally:
            self._thread.shutdown()

    def _fail(self) -> DiskFailure:
        broker = self.disk.node.node_id
        began_s = time.monotonic()
        self.disk.fail()
        for number in sorted(self._led):
            self._cluster.wait_for_leader(TOPIC, number, other_than=broker, timeout_s=_WAIT_S)
        leaders_s = time.monotonic() - began_s
        return DiskFailure(leaders_s, self.disk.wait_until_offline(_WAIT_S))


def _partitions(bootstrap_servers: str) -> Mapping[int, PartitionView]:
    with WireClient(client_settings({"bootstrap.servers": bootstrap_servers})) as client:
        return client.wait_for_topic(TOPIC).partitions


def _held_by(cluster: Cluster) -> dict[Disk, list[int]]:
    """Return the partitions of each disk that may die, when the brokers have made their replicas.

    The first disk of a node may not: it holds the metadata log, without which a node stops.
    """
    with WireClient(client_settings({"bootstrap.servers": cluster.bootstrap_servers})) as client:
        directories = client.describe_log_dirs({TOPIC: range(PARTITIONS)})
    held = {
        view.path: [replica.partition for replica in view.replicas]
        for views in directories.values()
        for view in views
    }
    return {disk: held[str(disk.path)] for broker in cluster.brokers for disk in broker.disks[1:]}


def busiest_disk(held: Mapping[Disk, Sequence[int]], leaders: Mapping[int, int]) -> Disk:
    """Return the disk whose loss is felt most: best one with leaders, and with followers too.

    Args:
        held: the partitions of each disk.
        leaders: the leader of each partition.
    """

    def weight(disk: Disk) -> tuple[bool, bool, int]:
        leads = [leaders[number] == disk.node.node_id for number in held[disk]]
        return any(leads), not all(leads), len(leads)

    return max(held, key=weight)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(brokers)))


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> [bold]{after}[/bold]"
