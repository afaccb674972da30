"""A cluster of nodes of either program, which can take over each other's directories and ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from waiting import wait_until

from peers.clients import wait_for_brokers
from peers.node import KafkaNode, Node, SpindleNode
from peers.paths import RELEASES

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
LIMIT_S = 60.0
PROGRAMS: Mapping[str, Callable[..., Node]] = {
    "kafka": KafkaNode,
    "spindle": SpindleNode,
    **{f"kafka-{release}": partial(KafkaNode, release=release) for release in RELEASES},
}

QUICK_FAILOVER = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.segment.bytes": "1048576",
}
"""A node that was killed is fenced, and may come back, after 3 seconds instead of 9."""


class Cluster:
    """Seats 1 to n, each with a combined node of one of `PROGRAMS`.

    Args:
        programs: the first program of each seat; it formats the directories.
        format_flags: further arguments of the format command.
    """

    def __init__(
        self,
        folder: Path,
        programs: Sequence[str],
        overrides: Mapping[str, str] = QUICK_FAILOVER,
        directory_count: int = 2,
        format_flags: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._format_flags = format_flags
        self._overrides = dict(overrides)
        self._turn = 0
        self._first = [
            PROGRAMS[program](
                folder / f"seat{seat}",
                directory_count=directory_count,
                overrides=dict(overrides),
                cluster_id=CLUSTER_ID,
                node_id=seat,
            )
            for seat, program in enumerate(programs, 1)
        ]
        self.seats: dict[int, Node] = {}
        for node in self._first:
            node.voters = self._first
            node.write_properties()
            self.seats[node.node_id] = node

    def __enter__(self) -> Cluster:
        for node in self._first:
            node.format(*self._format_flags)
        self.start(self.seats)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def bootstrap(self) -> str:
        """Addresses for clients, of all seats."""
        return ",".join(node.bootstrap for node in self._first)

    def start(self, seats: Iterable[int]) -> None:
        """Start the nodes of these seats together, and wait until each knows all brokers.

        Before that, a client could lose a broker again when it asks a node that does not know it
        yet.
        """
        nodes = [self.seats[seat] for seat in seats]
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        for node in nodes:
            wait_for_brokers(node, len(self.seats))

    def hand_over(self, seat: int, program: str, *, is_killed: bool = False) -> None:
        """Stop the node of a seat, and start `program` on its directories and ports."""
        former = self.seats[seat]
        if is_killed:
            former.kill()
        else:
            former.stop()
        self._turn += 1
        heir = PROGRAMS[program](
            self._folder / f"turn{self._turn}-seat{seat}-{program}",
            overrides=self._overrides,
            log_dirs=former.log_dirs,
            cluster_id=CLUSTER_ID,
            node_id=seat,
            voters=self._first,
        )
        heir.port, heir.controller_port = former.port, former.controller_port
        heir.write_properties()
        self.seats[seat] = heir
        heir.start()

    def kill(self) -> None:
        """Kill all nodes at once. (After an orderly stop of the others, the last would lack a
        quorum.)"""
        for node in self.seats.values():
            node.kill()

    def restart(self, seat: int, *, is_killed: bool) -> None:
        """Stop the node of a seat and start the same program again."""
        program = self.seats[seat].kind
        self.hand_over(seat, program, is_killed=is_killed)

    def wait_in_sync(self, topics: Sequence[str]) -> None:
        """Return when every replica of these topics is in sync."""
        self._wait(
            lambda partition: (
                len(partition.isr) == len(partition.replicas) == len(self.seats)
                and partition.leader is not None
            ),
            topics,
            "in sync",
        )

    def replicas(self, topic: str) -> dict[int, list[bytes]]:
        """Return the batches of every replica of each partition, as they are on the disks."""
        replicas: dict[int, list[bytes]] = {}
        for node in self.seats.values():
            for directory in node.log_dirs:
                for place in directory.glob(f"{topic}-*"):
                    segments = sorted(place.glob("*.log"))
                    if place.name.endswith("-stray") and not any(
                        s.stat().st_size for s in segments
                    ):
                        # A kill may leave a log without its topic id, and Kafka takes such a log
                        # for a stray.
                        continue
                    partition = int(place.name.rpartition("-")[2])
                    content = b"".join(segment.read_bytes() for segment in segments)
                    replicas.setdefault(partition, []).append(content)
        return replicas

    def check_equal_replicas(self, topic: str, partitions: int) -> None:
        """Kill all nodes, and assert that the replicas of each partition have the same bytes."""
        self.kill()
        replicas = self.replicas(topic)
        assert sorted(replicas) == list(range(partitions))
        for partition, copies in replicas.items():
            assert len(copies) == len(self.seats)
            assert len(set(copies)) == 1, f"replicas of {partition} differ"
        assert any(copies[0] for copies in replicas.values())

    def _wait(self, is_right: Callable[..., bool], topics: Sequence[str], what: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        seen: object = None

        def are_right() -> bool:
            nonlocal seen
            try:
                futures = admin.describe_topics(TopicCollection(list(topics)), request_timeout=5)
                described = [future.result() for future in futures.values()]
            except KafkaException as error:
                seen = error
                return False
            partitions = [p for topic in described for p in topic.partitions]
            seen = [(p.id, p.leader and p.leader.id, [n.id for n in p.isr]) for p in partitions]
            return all(map(is_right, partitions))

        wait_until(
            are_right, lambda: f"{', '.join(topics)} {what}: {seen}", limit_s=LIMIT_S, pause_s=0.1
        )
