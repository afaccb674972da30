"""One directory fails while nothing else goes wrong: only its own replicas may notice.

The admin rests, every replica is in sync, and producers write. Within a short time the ISRs are
without the replicas of that directory, and other brokers lead. Nothing else changes, and every
producer gets answers.
"""

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.partitions import PartitionRegistration
from spindle.testing.filesystem import Fault
from verification.simulation.cluster import SimulatedCluster, SimulatedNode
from verification.simulation.invariants import Invariants, story_of
from verification.simulation.loop import SimulatedLoop
from verification.simulation.trace import History
from verification.simulation.traffic import SimulatedTraffic
from verification.simulation.verdict import Verdict

_NOTICED_S: Final = 4.0
"""A directory whose replicas are idle shows no error; then nothing is checked."""
_SHRUNK_S: Final = 2.0
"""The failure is reported at once. The limit leaves time for a slow network and a slow disk."""
_ANSWERED_S: Final = 4.0
_CHECK_S: Final = 0.05

Registrations = dict[TopicPartition, PartitionRegistration]


class IsolatedFailure:
    """One failure of one directory."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        invariants: Invariants,
        traffic: SimulatedTraffic,
        verdict: Verdict,
        history: History,
        loop: SimulatedLoop,
    ) -> None:
        self._cluster = cluster
        self._invariants = invariants
        self._traffic = traffic
        self._verdict = verdict
        self._history = history
        self._loop = loop
        self._random = Random(f"quiet failure of {cluster.scenario.seed}")

    async def run(self) -> None:
        """Let a directory fail, check what follows, and restart its node with a working one."""
        places = [(node, path) for node in self._cluster.brokers for path in node.data_directories]
        if not places:
            return
        node, path = self._random.choice(places)
        directory = self._directory(node, path)
        directory_id = directory.directory_id
        before = self._registrations_elsewhere(node, directory)
        self._break(node, path)
        failed = await self._wait(lambda: path in node.offline_directories, _NOTICED_S)
        if failed:
            await self._check_shrunk(node, directory_id)
            await self._check_answered()
            self._check_others(node, path, before)
        await self._return(node, path)

    def _break(self, node: SimulatedNode, path: str) -> None:
        disks = node.machine.disks
        how = self._random.choice(("dies", "is full", "is read-only"))
        if how == "dies":
            disks.faults.append(Fault(path, "", errno.EIO))
        elif how == "is full":
            disks.free_bytes[path] = self._random.randint(0, 500)
        else:
            disks.read_only.add(path)
        self._history.note(f"{node}: {path} {how}, and nothing else goes wrong")

    def _directory(self, node: SimulatedNode, path: str) -> LogDirectory:
        assert node.node is not None
        assert node.node.broker is not None
        directory = node.node.broker.replicas.directory_at(path)
        assert directory is not None
        return directory

    def _registrations_elsewhere(
        self, node: SimulatedNode, directory: LogDirectory
    ) -> Registrations:
        """Return the partitions that have no replica in the directory, and none on its way to it.

        A replica that is about to leave it is in it, although the metadata name its target.
        """
        assert node.node is not None
        assert node.node.broker is not None
        replicas = node.node.broker.replicas
        hosted = {partition.topic_partition for partition in replicas.in_directory(directory)}
        hosted.update(replicas.moves.into(directory))
        broker_id = node.plan.node_id
        return {
            where: partition
            for where, partition in self._registrations().items()
            if where not in hosted
            and not (
                broker_id in partition.replicas
                and partition.directory(broker_id) == directory.directory_id
            )
        }

    def _registrations(self) -> Registrations:
        return {
            TopicPartition(topic.name, index): partition
            for topic in self._invariants.metadata.newest.topics.by_name.values()
            for index, partition in topic.partitions.items()
        }

    async def _wait(self, is_so: Callable[[], bool], longest_s: float) -> bool:
        ends_s = self._loop.now_s + longest_s
        while not is_so() and self._loop.now_s < ends_s:  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(_CHECK_S)
        return is_so()

    async def _check_shrunk(self, node: SimulatedNode, directory_id: Uuid) -> None:
        """Check that leaders and ISRs do without the failed directory soon."""
        broker_id = node.plan.node_id

        def counted() -> list[str]:
            return [
                story_of(f"{topic}-{index}", partition)
                for (topic, index), partition in self._registrations().items()
                if broker_id in partition.isr and partition.directory(broker_id) == directory_id
            ]

        await self._wait(lambda: not counted(), _SHRUNK_S)
        self._verdict.check(
            not counted(),
            f"{_SHRUNK_S:.0f} s after a directory of broker {broker_id} failed: {counted()}",
        )

    async def _check_answered(self) -> None:
        """Check that each producer gets an answer to a request that it sends from now on.

        Where a partition had no replica to spare, `min.insync.replicas` forbids an answer.
        """
        before = self._traffic.acknowledged_by_producer()

        def unanswered() -> list[str]:
            now = self._traffic.acknowledged_by_producer()
            refused = self._traffic.producers_of(self._under_min_isr())
            return [n for n, count in before.items() if now.get(n) == count and n not in refused]

        await self._wait(lambda: not unanswered(), _ANSWERED_S)
        self._verdict.check(
            not unanswered(),
            f"{_ANSWERED_S:.0f} s after a directory failed, these wait: {unanswered()}",
        )

    def _under_min_isr(self) -> set[tuple[str, int]]:
        """Return the partitions whose leaders refuse records for lack of in-sync replicas."""
        return {
            (partition.topic_partition.topic, partition.topic_partition.partition)
            for node in self._cluster.brokers
            if node.node is not None and node.node.broker is not None
            for partition in node.node.broker.replicas
            if partition.leader is not None and partition.leader.is_under_min_isr
        }

    def _check_others(self, node: SimulatedNode, path: str, before: Registrations) -> None:
        """Check that nothing changed for the replicas in other directories."""
        offline = list(node.offline_directories)
        self._verdict.check(
            node.is_up and offline == [path],
            f"{path} of {node} failed; the node is {'up' if node.is_up else 'down'} without "
            f"{offline}",
        )
        after = self._registrations()
        for where, was in before.items():
            now = after.get(where)
            if now is None:
                continue
            self._verdict.check(
                set(now.isr) == set(was.isr) and now.leader in (was.leader, now.preferred_leader),
                f"{path} of {node} failed, and another partition changed: "
                f"{story_of(f'{where[0]}-{where[1]}', now)}",
            )

    async def _return(self, node: SimulatedNode, path: str) -> None:
        """Restart the node with the same directory or, if it had failed, with an empty one."""
        self._invariants.expect_crash(node)
        disks = node.machine.disks
        if path in node.offline_directories and self._random.random() < 0.5:
            self._invariants.expect_loss(node)
            node.replace_disk(path, self._cluster.cluster_id)
        else:
            node.kill()
            disks.heal(path)
        node.start()
