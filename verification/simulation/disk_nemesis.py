"""Faults of single directories: they die, run full, turn read-only, and return in other shapes.

Each fault ends with a restart of the node. By chance the directory then holds the same as
before, nothing, or what it held some time ago.
"""

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from spindle.common.errors import ApiError, CorruptLog
from spindle.common.ids import TopicPartition
from spindle.disks.alter_disks import DirectoryAction
from spindle.log.formats.checkpoints import (
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from spindle.log.formats.meta_properties import meta_properties_path
from spindle.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from spindle.replicas.partition import Partition
from spindle.testing.filesystem import Fault
from verification.simulation.audited_disk import damage_and_repair
from verification.simulation.cluster import SimulatedCluster, SimulatedNode
from verification.simulation.disk import SimulatedDisks
from verification.simulation.invariants import Invariants
from verification.simulation.loop import SimulatedLoop
from verification.simulation.trace import History

if TYPE_CHECKING:
    from verification.simulation.nemesis import Nemesis

_CHANGED_S: Final = 10.0
"""A directory that the controller does not know is not in use either; stop waiting."""
_ERRORS: Final = (errno.EIO, errno.EIO, errno.ENODEV, errno.EACCES)


class DiskNemesis:
    """Works with `nemesis`, which chooses the nodes and heals everything at the end."""

    def __init__(
        self,
        nemesis: "Nemesis",
        cluster: SimulatedCluster,
        invariants: Invariants,
        history: History,
        loop: SimulatedLoop,
        random: Random,
    ) -> None:
        self._loop = loop
        self._nemesis = nemesis
        self._cluster = cluster
        self._chances = cluster.scenario.chances
        self._invariants = invariants
        self._history = history
        self._random = random
        # From an own generator, so that the other faults of a seed keep their meaning.
        self._late = Random(f"late reports of {cluster.scenario.seed}")

    def actions(self) -> tuple[tuple[float, Callable[[], None]], ...]:
        """Return each fault with its chance."""
        chances = self._chances
        # Without a chance there is no action: a draw for it would change the story of each seed.
        audited = ((chances.audited, self._audit),) if chances.audited else ()
        rebuilt = ((chances.rebuilt, self._rebuild),) if chances.rebuilt else ()
        return (
            *audited,
            *rebuilt,
            (chances.fail, self._fail),
            (chances.fill, self._fill),
            (chances.readonly, self._make_readonly),
            (chances.stale, self._let_age),
            (chances.shuffled, self._shuffle),
            (chances.checkpoints, self._lose_checkpoints),
            (chances.outage, self._kill_all),
            (chances.recovered, self._let_recover),
            (chances.added, self._add),
        )

    def _place(self) -> tuple[SimulatedNode, str] | None:
        """Choose a directory without which its node can do."""
        node = self._nemesis.pick_victim()
        if node is None or not node.data_directories:
            return None
        return node, self._random.choice(node.data_directories)

    def _fail(self) -> None:
        place = self._place()
        if place is None:
            return
        node, path = place
        number = self._random.choice(_ERRORS)
        node.machine.disks.faults.append(Fault(path, "", number, self._random.randint(0, 5)))
        self._history.note(f"{node}: {path} dies: {errno.errorcode[number]}")
        self._nemesis.later(self._after_failure(node, path))

    async def _after_failure(self, node: SimulatedNode, path: str) -> None:
        random = self._random
        await self._wait(4.0)
        if random.random() < 0.3:
            self._history.note(f"{node} is to start while {path} is dead")
            await self._end(node)
            await self._nemesis.restart(node, random.uniform(0.05, 1.0))
            await self._wait(4.0)
        await self._end(node)
        if self._chances.is_lossy and random.random() < 0.6 and self._can_spare(node):
            self._invariants.expect_loss(node)
            node.replace_disk(path, self._cluster.cluster_id)
        node.machine.disks.heal(path)
        await self._nemesis.restart(node, random.uniform(0.05, 1.0))

    def _can_spare(self, node: SimulatedNode) -> bool:
        """Return whether another member of each ISR has the records of this broker."""
        broker_id = node.plan.node_id
        return all(
            any(member != broker_id for member in partition.isr)
            for topic in self._invariants.metadata.newest.topics.by_name.values()
            for partition in topic.partitions.values()
            if broker_id in partition.replicas
        )

    def _fill(self) -> None:
        node = self._nemesis.pick_victim()
        if node is None:
            return
        paths = dict.fromkeys((*node.config.log_dirs, node.config.metadata_log_dir))
        path = self._random.choice(list(paths))
        free_bytes = self._random.choice((0, self._random.randint(1, 3000)))
        node.machine.disks.free_bytes[path] = free_bytes
        self._history.note(f"{node}: {path} has {free_bytes} bytes left")
        self._nemesis.later(self._recover(node, path))

    def _make_readonly(self) -> None:
        place = self._place()
        if place is not None:
            node, path = place
            node.machine.disks.read_only.add(path)
            self._history.note(f"{node}: {path} is read-only")
            self._nemesis.later(self._recover(node, path))

    async def _recover(self, node: SimulatedNode, path: str) -> None:
        """Heal the directory after a while, perhaps after a start that finds it as it is."""
        random = self._random
        await self._wait(4.0)
        if random.random() < 0.3:
            await self._end(node)
            await self._nemesis.restart(node, random.uniform(0.05, 1.0))
            await self._wait(3.0)
        if random.random() < 0.2:
            node.machine.disks.heal(path)
            self._history.note(f"{node}: {path} works again")
            await self._wait(1.0)
        await self._end(node)
        node.machine.disks.heal(path)
        await self._nemesis.restart(node, random.uniform(0.05, 1.0))

    def _let_age(self) -> None:
        place = self._place()
        if place is not None:
            self._nemesis.later(self._return_old(*place))

    async def _return_old(self, node: SimulatedNode, path: str) -> None:
        random, disks = self._random, node.machine.disks
        content = disks.copy_of(path)
        await self._wait(2.0)
        if random.random() < 0.7:
            disks.faults.append(Fault(path))
            self._history.note(f"{node}: {path} dies")
            await self._wait(2.0)
        await self._end(node)
        disks.heal(path)
        if self._can_spare(node):
            self._invariants.expect_loss(node)
            disks.put_back(path, content)
            self._history.note(f"{node}: {path} returns with old content")
        await self._nemesis.restart(node, random.uniform(0.05, 1.0))

    def _audit(self) -> None:
        place = self._place()
        if place is not None:
            self._nemesis.later(self._repair(*place))

    async def _repair(self, node: SimulatedNode, path: str) -> None:
        """Damage files of a directory while the node is down, run `audit --apply`, and start."""
        random, disks = self._random, node.machine.disks
        await self._end(node)
        if not disks.has_faults:
            disk = damage_and_repair(disks, path, random, disks.now_ms)
            self._history.note(f"{node}: {path}: {disk.text}")
            self._invariants.has_repaired(node, path, len(disk.lost))
            with disks.observed():
                for name, data in disk.changed.items():
                    disks.remove(f"{path}/{name}")
                    if data is not None:
                        disks.write_atomically(f"{path}/{name}", data)
        await self._nemesis.restart(node, random.uniform(0.05, 1.0))

    def _shuffle(self) -> None:
        node = self._nemesis.pick_victim()
        if node is not None and node.config.is_broker:
            self._nemesis.later(self._return_shuffled(node))

    async def _return_shuffled(self, node: SimulatedNode) -> None:
        random = self._random
        await self._end(node)
        paths = list(node.config.log_dirs)
        random.shuffle(paths)
        node.order_log_dirs(paths)
        if len(node.data_directories) > 1 and random.random() < 0.6:
            first, second = random.sample(node.data_directories, 2)
            node.machine.disks.swap(first, second)
            self._invariants.moves.forget(node)
            self._history.note(f"{node}: the disks of {first} and {second} are swapped")
        await self._nemesis.restart(node, random.uniform(0.05, 1.0))

    # -- checkpoints that are not those of the last moment

    def _lose_checkpoints(self) -> None:
        node = self._nemesis.pick_victim()
        if node is not None and node.config.is_broker:
            self._nemesis.later(self._return_with_other_checkpoints(node))

    async def _return_with_other_checkpoints(self, node: SimulatedNode) -> None:
        before = self._checkpoints(node)
        await self._wait(2.0)
        await self._end(node)
        self._change_checkpoints(node, before)
        await self._nemesis.restart(node, self._random.uniform(0.05, 1.0))

    def _kill_all(self) -> None:
        """Kill all brokers at once."""
        nodes = [n for n in self._cluster.brokers if n.is_up and not n.is_stopping]
        self._nemesis.later(self._return_all(nodes))

    async def _return_all(self, nodes: list[SimulatedNode]) -> None:
        random = self._random
        before = {node: self._checkpoints(node) for node in nodes}
        await self._wait(1.0)
        for node in nodes:
            self._invariants.expect_crash(node)
            node.kill()
        for node in nodes:
            if random.random() < 0.5:
                self._change_checkpoints(node, before[node])
        for node in nodes:
            self._nemesis.later(self._nemesis.restart(node, random.uniform(0.05, 1.0)))

    def _checkpoints(self, node: SimulatedNode) -> dict[str, dict[TopicPartition, int]]:
        """Return the content of the checkpoints that a start can do without, by path."""
        disks = node.machine.disks
        return {
            path: self._entries(disks, path)
            for directory in node.config.log_dirs
            for path in (f"{directory}/{RECOVERY_POINTS}", f"{directory}/{CLEANER_OFFSETS}")
        }

    def _entries(self, disks: SimulatedDisks, path: str) -> dict[TopicPartition, int]:
        """Return the entries of a checkpoint; none if it is missing or torn."""
        try:
            with disks.observed():
                return read_offset_checkpoint(disks, path)
        except CorruptLog:
            return {}

    def _change_checkpoints(
        self, node: SimulatedNode, before: Mapping[str, Mapping[TopicPartition, int]]
    ) -> None:
        """Replace some checkpoints of a node that is down by older, torn or no ones."""
        random, disks = self._random, node.machine.disks
        for path, old in before.items():
            how = random.choice(("as it was", "old", "missing", "torn"))
            with disks.observed():
                if how == "as it was" or not disks.exists(path):
                    continue
                if how == "old":
                    # An entry from before a truncation would say more than is true.
                    now = self._entries(disks, path)
                    lower = {p: min(at, now[p]) for p, at in old.items() if p in now}
                    write_offset_checkpoint(disks, path, lower)
                elif how == "missing":
                    disks.remove(path)
                else:
                    content = disks.read_bytes(path)
                    disks.write_atomically(path, content[: random.randint(0, len(content))])
            self._history.note(f"{node}: {path} is {how}")

    # -- directories that come and go while the node runs

    def _let_recover(self) -> None:
        place = self._place()
        if place is not None:
            node, path = place
            node.machine.disks.faults.append(Fault(path))
            self._history.note(f"{node}: {path} dies")
            self._nemesis.later(self._bring_online(node, path))

    async def _bring_online(self, node: SimulatedNode, path: str) -> None:
        """Bring a directory back online or remove it; otherwise restart the node."""
        disks, life = node.machine.disks, node.life
        await self._wait(3.0)
        is_lost = path in node.offline_directories and self._random.random() < 0.5
        is_lost = is_lost and self._can_spare(node) and node.life is life
        if is_lost and self._random.random() < 0.5:
            await self.alter(node, DirectoryAction.REMOVE, path)
            disks.heal(path)
            if node.life is life:
                await self.alter(node, DirectoryAction.ADD, path)
        elif is_lost:
            disks.heal(path)
            disks.put_back(path, disks.empty())
            self._history.note(f"{node} has an empty disk at {path}")
        disks.heal(path)
        if node.life is life:
            await self.alter(node, DirectoryAction.ONLINE, path)
        await self._wait(2.0)
        await self._end(node)
        self.format_empty(node)
        await self._nemesis.restart(node, self._random.uniform(0.05, 1.0))

    def format_empty(self, node: SimulatedNode) -> None:
        """Format replacement disks that were not brought online, because no start would."""
        disks = node.machine.disks
        with disks.observed():
            paths = [p for p in node.data_directories if not disks.exists(meta_properties_path(p))]
        for path in paths:
            node.replace_disk(path, self._cluster.cluster_id)

    def _add(self) -> None:
        node = self._nemesis.any_up()
        if node is not None and node.config.is_broker:
            self._nemesis.later(self._add_and_retire(node))

    async def _add_and_retire(self, node: SimulatedNode) -> None:
        """Add a directory; one that has no replicas is removed after a while, maybe."""
        disks, path = node.machine.disks, f"/more{self._random.randint(1, 3)}"
        with disks.observed():
            disks.make_directories(path)
            disks.sync_directory("/")
        await self.alter(node, DirectoryAction.ADD, path)
        await self._wait(4.0)
        if self._random.random() < 0.5:
            await self.alter(node, DirectoryAction.REMOVE, path)

    async def alter(self, node: SimulatedNode, action: DirectoryAction, path: str) -> None:
        """Let a running node change its directories, and wait a while for the end of that."""
        if node.node is None or node.node.broker is None or node.life is None:
            return
        self._history.note(f"{node} is to {action.name} {path}")
        task = self._loop.create_task(
            _refusal(node.node.broker.directory_changes.change(action, path)),
            context=node.life.context(),
        )
        await asyncio.wait([task], timeout=_CHANGED_S)
        if task.done() and not task.cancelled():
            self._history.note(f"{node}: {action.name} {path}: {task.result() or 'done'}")

    # -- replicas that are rebuilt

    def _rebuild(self) -> None:
        node = self._nemesis.any_up()
        if node is not None and node.config.is_broker:
            self._nemesis.later(self._rebuild_one(node))

    async def _rebuild_one(self, node: SimulatedNode) -> None:
        """Rebuild a follower; maybe cancel that, or end the process or the directory meanwhile."""
        if node.node is None or node.node.broker is None or node.life is None:
            return
        random, broker, life = self._random, node.node.broker, node.life
        followers = [p for p in broker.replicas if p.leader is None and not p.is_offline]
        if not followers:
            return
        partition = random.choice(followers)
        where = partition.topic_partition
        self._history.note(f"{where} on {node} is to be rebuilt")
        begin = _refusal(broker.rebuilder.begin(where))
        task = self._loop.create_task(begin, context=life.context())
        await asyncio.wait([task], timeout=_CHANGED_S)
        if not task.done() or task.cancelled() or task.result() is not None:
            self._history.note(f"{node}: {where} is not rebuilt: {task}")
            return
        if self._late.random() < 0.5:
            self._nemesis.later(self._report_late(node, partition))
        end = random.choice(("none", "none", "none", "kill", "fault", "cancellation"))
        await asyncio.sleep(random.choice((0.0, 0.01, 0.1, 0.3, 1.0)) * random.random())
        if node.life is not life:
            return
        if end == "cancellation":
            with contextlib.suppress(ApiError):
                broker.rebuilder.cancel(where)
                self._history.note(f"{node}: the rebuild of {where} is cancelled")
        elif end != "none" and not self._chances.is_lossy:
            self._invariants.expect_crash(node)
            path = partition.directory.path
            if end == "kill":
                node.machine.disks.kill_after(random.choice((0, 1, 1, 2)), "rename")
                await asyncio.sleep(0.5)
            else:
                node.machine.disks.faults.append(Fault(path))
                self._history.note(f"{node}: {path} dies while {where} is rebuilt")
                await self._wait(3.0)
            node.kill()
            if random.random() < 0.5:
                node.machine.disks.heal(path)
            await self._nemesis.restart(node, random.uniform(0.05, 1.0))
            await self._wait(3.0)
            node.machine.disks.heal(path)
            node.kill()
            await self._nemesis.restart(node, random.uniform(0.05, 1.0))

    async def _report_late(self, node: SimulatedNode, partition: Partition) -> None:
        """Let an earlier report of the replica's directory reach the controller during a rebuild.

        It timed out at the broker, which has sent later ones since.
        """
        life = node.life
        await asyncio.sleep(self._late.choice((0.05, 0.3, 1.0)) * self._late.random())
        if node.life is not life or life is None or node.node is None or node.node.broker is None:
            return
        directory = AssignReplicasToDirsRequest.DirectoryData
        topic = directory.TopicData
        index = partition.topic_partition.partition
        request = AssignReplicasToDirsRequest(
            broker_id=node.plan.node_id,
            broker_epoch=node.node.broker.lifecycle.broker_epoch,
            directories=[
                directory(
                    id=partition.directory.directory_id,
                    topics=[
                        topic(
                            topic_id=partition.topic_id,
                            partitions=[topic.PartitionData(partition_index=index)],
                        )
                    ],
                )
            ],
        )
        assert node.node.controller is not None
        self._history.note(f"{node}: a late report of {partition.topic_partition}")
        self._invariants.late_reports.add((node.plan.node_id, partition.topic_partition))
        sent = _refusal(node.node.controller.channel.request(request))
        task = self._loop.create_task(sent, context=life.context())
        await asyncio.wait([task], timeout=_CHANGED_S)

    # -- parts of several faults

    async def _wait(self, longest_s: float) -> None:
        await asyncio.sleep(self._random.uniform(0.1, longest_s))

    async def _end(self, node: SimulatedNode) -> None:
        """End the process: an orderly stop one time in three, else a kill."""
        if self._random.random() < 0.33:
            node.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    await node.is_down.wait()
        node.kill()


async def _refusal(change: Awaitable[object]) -> ApiError | None:
    """Wait for a change of directories, which may take long; return why it was refused, if so."""
    try:
        await change
    except ApiError as refused:
        return refused
    return None
