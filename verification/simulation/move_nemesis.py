"""Interrupted moves, and moves while directories are added, removed and brought online."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from spindle.disks.alter_disks import DirectoryAction
from spindle.disks.log_directory import LogDirectory
from spindle.replicas.moves.move import MoveState
from spindle.replicas.partition import Partition
from spindle.testing.filesystem import Fault
from verification.simulation.cluster import SimulatedCluster, SimulatedNode
from verification.simulation.disk_nemesis import DiskNemesis
from verification.simulation.invariants import Invariants
from verification.simulation.loop import SimulatedLoop
from verification.simulation.trace import History

if TYPE_CHECKING:
    from verification.simulation.nemesis import Nemesis

_MOVED_S: Final = 6.0
_LOOK_S: Final = 0.002
_BEFORE_RENAMES: Final = (MoveState.ASSIGNING, MoveState.SWAPPING)


class MoveNemesis:
    """Works with `nemesis`, which chooses the nodes and heals everything at the end."""

    def __init__(
        self,
        nemesis: "Nemesis",
        disks: DiskNemesis,
        cluster: SimulatedCluster,
        invariants: Invariants,
        history: History,
        loop: SimulatedLoop,
    ) -> None:
        self._nemesis = nemesis
        self._disks = disks
        self._chances = cluster.scenario.chances
        self._invariants = invariants
        self._history = history
        self._loop = loop
        # From an own generator, so that the other faults of a seed keep their meaning.
        self._random = Random(f"moves and directories of {cluster.scenario.seed}")

    def disturb(self, period_s: float) -> None:
        """Begin the faults that are due by chance."""
        chances, random = self._chances, self._random
        if chances.cut_swap and random.random() < chances.cut_swap * period_s:
            node = self._nemesis.pick_victim()
            if node is not None and len(node.data_directories) > 1:
                self._nemesis.later(self._cut_swap(node))
        if chances.moves_amid_changes and random.random() < chances.moves_amid_changes * period_s:
            is_one_to_fail = random.random() < 0.3
            node = self._nemesis.pick_victim() if is_one_to_fail else self._nemesis.any_up()
            if node is not None and node.data_directories:
                self._nemesis.later(self._move_amid_changes(node, is_one_to_fail=is_one_to_fail))

    # -- a kill between the renames of a swap

    async def _cut_swap(self, node: SimulatedNode) -> None:
        """Kill a node in a swap; start it again, maybe without the source or the target."""
        random, disks = self._random, node.machine.disks
        moved = self._one_to_move(node)
        if moved is not None:
            partition, target = moved
            source = partition.directory
            await self._kill_in_swap(node, partition, target)
            if self._invariants.moves.look_for_cut_swaps(node):
                self._history.note(f"{node} was killed between the renames of a swap")
            absent = random.choice((source.path, target.path, target.path, None))
            if absent in node.data_directories:
                disks.faults.append(Fault(absent))
                self._history.note(f"{node} starts without {absent}")
            for _ in range(random.choice((1, 1, 2))):
                await self._nemesis.restart(node, random.uniform(0.05, 0.5))
                for _ in range(random.randint(4, 12)):
                    await asyncio.sleep(0.5)
                    self._check(node)
                node.kill()
            disks.heal(source.path)
            disks.heal(target.path)
        node.kill()
        await self._nemesis.restart(node, random.uniform(0.05, 1.0))
        await asyncio.sleep(1.0)
        self._check(node)

    def _check(self, node: SimulatedNode) -> None:
        self._invariants.moves.check_cut_swaps(node, self._invariants.metadata.newest)

    async def _kill_in_swap(
        self, node: SimulatedNode, partition: Partition, target: LogDirectory
    ) -> None:
        life, node_in_life = node.life, node.node
        assert life is not None
        assert node_in_life is not None
        assert node_in_life.broker is not None
        broker = node_in_life.broker
        self._begin_move(node, partition, target)
        ends_s = self._loop.now_s + _MOVED_S
        while self._loop.now_s < ends_s and node.life is life:
            await asyncio.sleep(_LOOK_S)
            course = broker.replicas.moves.get(partition)
            if course is not None and course.course.state in _BEFORE_RENAMES:
                node.machine.disks.kill_after(self._random.choice((0, 1, 1, 1, 2)), "rename")
                await asyncio.sleep(1.0)
                break
        if node.life is life:
            node.kill()

    # -- moves while directories come and go

    async def _move_amid_changes(self, node: SimulatedNode, *, is_one_to_fail: bool) -> None:
        """Add a directory, then move replicas there while it is removed, on slow disks.

        If a directory fails meanwhile, it is brought online, and the node is restarted at the end.
        """
        random, disks, life = self._random, node.machine.disks, node.life
        path = f"/more{random.randint(1, 3)}"
        with disks.observed():
            disks.make_directories(path)
            disks.sync_directory("/")
        await self._disks.alter(node, DirectoryAction.ADD, path)
        slow = random.sample([path, *node.config.log_dirs], 2)
        for name in slow:
            disks.slowness_s[name] = random.uniform(0.1, 1.0)
        works = [self._after(node, DirectoryAction.REMOVE, path)]
        works += [self._move_later(node, path) for _ in range(random.randint(1, 3))]
        if is_one_to_fail:
            failing = random.choice(node.data_directories)
            disks.faults.append(Fault(failing))
            self._history.note(f"{node}: {failing} dies while replicas move")
            works.append(self._bring_online_later(node, failing))
        await asyncio.gather(*works)
        for name in slow:
            disks.slowness_s.pop(name, None)
        if is_one_to_fail:
            await asyncio.sleep(random.uniform(0.5, 2.0))
            if node.life is life:
                node.kill()
            await self._nemesis.restart(node, random.uniform(0.05, 1.0))

    async def _after(self, node: SimulatedNode, action: DirectoryAction, path: str) -> None:
        await asyncio.sleep(self._random.uniform(0.0, 0.6))
        await self._disks.alter(node, action, path)

    async def _move_later(self, node: SimulatedNode, path: str) -> None:
        life = node.life
        await asyncio.sleep(self._random.uniform(0.0, 0.6))
        if node.life is not life or node.node is None or node.node.broker is None:
            return
        target = node.node.broker.replicas.directory_at(path)
        moved = self._one_to_move(node)
        if target is not None and moved is not None:
            await asyncio.wait([self._begin_move(node, moved[0], target)], timeout=_MOVED_S)

    async def _bring_online_later(self, node: SimulatedNode, path: str) -> None:
        await asyncio.sleep(self._random.uniform(0.5, 3.0))
        node.machine.disks.heal(path)
        if path in node.offline_directories:
            await self._disks.alter(node, DirectoryAction.ONLINE, path)

    # -- parts

    def _one_to_move(self, node: SimulatedNode) -> tuple[Partition, LogDirectory] | None:
        """Choose a replica and another directory of its broker."""
        if node.node is None or node.node.broker is None:
            return None
        replicas = node.node.broker.replicas
        pairs = [
            (partition, directory)
            for partition in replicas
            for directory in replicas.directories
            if directory is not partition.directory and not partition.is_offline
        ]
        return self._random.choice(pairs) if pairs else None

    def _begin_move(
        self, node: SimulatedNode, partition: Partition, target: LogDirectory
    ) -> "asyncio.Task[object]":
        assert node.life is not None
        assert node.node is not None
        assert node.node.broker is not None
        where = partition.topic_partition
        self._history.note(f"{where} on {node} is to move to {target.path}")
        self._invariants.asked_moves.add((node.plan.node_id, where, target.path))
        return self._loop.create_task(
            node.node.broker.mover.alter(partition, target), context=node.life.context()
        )
