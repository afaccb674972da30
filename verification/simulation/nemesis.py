"""The faults that happen by chance, and their end."""

import asyncio
import errno
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

from spindle.config.broker_keys.spindle import HANG_TIMEOUT
from spindle.testing.filesystem import Fault
from verification.simulation.cluster import SimulatedCluster, SimulatedNode
from verification.simulation.disk_nemesis import DiskNemesis
from verification.simulation.folder_nemesis import FolderNemesis
from verification.simulation.invariants import Invariants
from verification.simulation.loop import SimulatedLoop
from verification.simulation.move_nemesis import MoveNemesis
from verification.simulation.network import Network
from verification.simulation.trace import History
from verification.simulation.traffic import CLIENT_HOST
from verification.simulation.voters import VoterAdmin

_PERIOD_S: Final = 0.25
_HANG_SLACK_S: Final = 2.5
"""A hang is looked for once a second, and a directory that is given up ends its node."""
_SLOWEST_CLOCK: Final = 1.05
_MAX_OFFSET_MS: Final = 1_800_000
"""Less than message.timestamp.after.max.ms: clients see none of it."""


class Nemesis:
    """Causes faults until it is told to stop; then it heals everything and starts all nodes."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        network: Network,
        invariants: Invariants,
        history: History,
        voters: VoterAdmin,
        loop: SimulatedLoop,
        random: Random,
    ) -> None:
        self._cluster = cluster
        self._voters = voters
        self._chances = cluster.scenario.chances
        self._network = network
        self._invariants = invariants
        self._history = history
        self._loop = loop
        self._random = random
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._disks = DiskNemesis(
            self, cluster, invariants, history, loop, Random(f"disks of {cluster.scenario.seed}")
        )
        self._folders = FolderNemesis(self, cluster, invariants, history)
        self._moves = MoveNemesis(self, self._disks, cluster, invariants, history, loop)

    async def run(self, duration_s: float) -> None:
        """Disturb for so long."""
        ends_s = self._loop.now_s + duration_s
        while self._loop.now_s < ends_s:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * _PERIOD_S)
            self._disturb()

    async def heal(self) -> None:
        """End all disturbances and bring every node up."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._network.heal_all()
        chances = self._network.chances
        chances.loss = chances.breaking = chances.silence = 0.0
        for node in self._cluster.nodes.values():
            node.hold_metadata = 0.0
            disks = node.machine.disks
            disks.cut_power_after(None)
            disks.slowness_s.clear()
            disks.release_all()
            self._folders.heal(node)
            if disks.has_faults or node.offline_directories:
                disks.heal_all()
                node.kill()
            self._disks.format_empty(node)
            if node.is_stopping:
                self.later(self.restart(node, 0.0))
            elif not node.is_up:
                node.start()
        self._history.note("everything is healed")

    def _disturb(self) -> None:
        chances, random = self._chances, self._random
        actions = (
            (chances.kill, self._kill),
            (chances.cut_power, self._cut_power),
            (chances.stop, self._stop),
            (chances.cut, self._cut),
            (chances.fail_disk, self._fail_disk),
            (chances.slow, self._slow_disk),
            (chances.hang, self._hang_disk),
            (chances.replace, self._replace_disk),
            (chances.clock, self._set_clock),
            *self._disks.actions(),
        )
        for chance, action in actions:
            if random.random() < chance * _PERIOD_S * 4:
                action()
        self._moves.disturb(_PERIOD_S * 4)
        self._folders.disturb(_PERIOD_S * 4)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Continue the work beside the other disturbances, until everything is healed."""
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def any_up(self) -> SimulatedNode | None:
        """Choose a node that runs; None if there is none."""
        up = [n for n in self._cluster.nodes.values() if n.is_up and not n.is_stopping]
        return self._random.choice(up) if up else None

    # -- nodes

    def pick_victim(self) -> SimulatedNode | None:
        """Choose a node whose death the cluster must survive now.

        With power failures at most one broker is down at a time; otherwise any number.
        """
        node = self.any_up()
        if node is None:
            return None
        if self._chances.is_lossy and node.config.is_broker and not self._invariants.is_whole:
            return None
        self._invariants.expect_crash(node)
        return node

    def _kill(self) -> None:
        node = self.pick_victim()
        if node is None:
            return
        how = self._random.randrange(3)
        if how == 0:
            node.kill()
        elif how == 1:
            node.machine.disks.kill_after(self._random.randint(0, 100))
        else:
            node.machine.disks.kill_after(self._random.randint(0, 2), "sync")
        self.later(self._end_killing(node))

    async def _end_killing(self, node: SimulatedNode) -> None:
        """Kill the process if it has not reached the operation at which it was to die."""
        await asyncio.sleep(0.5)
        node.kill()
        # Long enough for a session to end, where that is to be seen.
        longest_s = 8.0 if self._cluster.scenario.deeds.unclean else 4.0
        await self.restart(node, self._random.uniform(0.05, longest_s))

    def _stop(self) -> None:
        node = self.any_up()
        if node is not None:
            node.stop()
            self.later(self.restart(node, self._random.uniform(0.05, 2.0)))

    def _cut_power(self) -> None:
        node = self.pick_victim()
        if node is None:
            return
        if self._random.random() < 0.5:
            node.cut_power()
        else:
            node.machine.disks.cut_power_after(self._random.randint(0, 200))
        self.later(self._return_power(node))

    async def _return_power(self, node: SimulatedNode) -> None:
        await asyncio.sleep(1.0)
        node.cut_power()
        await self.restart(node, self._random.uniform(0.05, 3.0))

    async def restart(self, node: SimulatedNode, delay_s: float) -> None:
        """Start a node that is down or about to be."""
        await asyncio.sleep(delay_s)
        if node.is_stopping and node.is_up:
            await node.is_down.wait()
        if not node.is_up:
            node.start()

    # -- the network

    def _cut(self) -> None:
        random, network = self._random, self._network
        hosts = [node.host for node in self._cluster.nodes.values()]
        isolated = random.choice(hosts)
        others = [host for host in [*hosts, CLIENT_HOST] if host != isolated]
        others = random.sample(others, random.randint(1, len(others)))
        pairs = [(isolated, other) for other in others]
        back = [(other, isolated) for other in others]
        pairs = random.choice((pairs, back, pairs + back))
        for pair in pairs:
            network.cut(*pair)
        text = ", ".join(f"{a}>{b}" for a, b in pairs)
        self._history.note(f"cut: {text}")
        self.later(self._heal_cut(pairs, text))

    async def _heal_cut(self, pairs: list[tuple[str, str]], text: str) -> None:
        await asyncio.sleep(self._random.uniform(0.1, self._random.choice((1.0, 3.0, 8.0))))
        for pair in pairs:
            self._network.heal(*pair)
        self._history.note(f"healed: {text}")

    # -- disks and clocks

    def _fail_disk(self) -> None:
        node = self.pick_victim()
        if node is None:
            return
        path = self._random.choice([*node.config.log_dirs, node.config.metadata_log_dir])
        operation = self._random.choice(("", "append", "sync", "open", "write_atomically"))
        number = self._random.choice((errno.EIO, errno.ENOSPC))
        after = self._random.randint(0, 5)
        node.machine.disks.faults.append(Fault(f"{path}/", operation, number, after))
        self._history.note(
            f"{node}: {path} breaks: {errno.errorcode[number]} in {operation or 'everything'}"
        )
        self.later(self._end_failure(node))

    async def _end_failure(self, node: SimulatedNode) -> None:
        await asyncio.sleep(self._random.uniform(0.5, 4.0))
        node.machine.disks.faults.clear()
        node.kill()
        await self.restart(node, self._random.uniform(0.05, 1.0))

    def _replace_disk(self) -> None:
        """Replace a disk whose records are elsewhere by an empty one; its voter becomes another."""
        node = self.any_up()
        if node is None:
            return
        path = self._random.choice([*node.config.log_dirs, node.config.metadata_log_dir])
        is_voters = node.config.is_controller and path == node.config.metadata_log_dir
        if is_voters and not (self._cluster.scenario.deeds.voters and self._voters.can_spare_one):
            return
        if node.config.is_broker and not self._invariants.is_whole:
            return
        self._invariants.expect_crash(node)
        self._invariants.expect_loss(node)
        node.replace_disk(path, self._cluster.cluster_id)
        self.later(self.restart(node, self._random.uniform(0.05, 4.0)))

    def _slow_disk(self) -> None:
        node = self.any_up()
        if node is not None:
            path = self._random.choice([*node.config.log_dirs, node.config.metadata_log_dir])
            node.machine.disks.slowness_s[path] = self._random.uniform(0.05, 1.0)
            self._history.note(f"{node}: {path} is slow")
            self.later(self._end_slowness(node, path))

    async def _end_slowness(self, node: SimulatedNode, path: str) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 3.0))
        node.machine.disks.slowness_s.pop(path, None)

    def _hang_disk(self) -> None:
        """Hang a disk for a moment, or for so long that the node gives the disk up."""
        is_long = self._random.random() < 0.4
        node = self.pick_victim() if is_long else self.any_up()
        if node is None:
            return
        path = self._random.choice([*node.config.log_dirs, node.config.metadata_log_dir])
        in_syncs_only = path in node.config.log_dirs and self._random.random() < 0.5
        node.machine.disks.hang(path, in_syncs_only=in_syncs_only)
        self._history.note(f"{node}: {path} hangs{' in syncs' if in_syncs_only else ''}")
        self.later(self._give_up(node, path) if is_long else self._release(node, path))

    async def _release(self, node: SimulatedNode, path: str) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 1.5))
        node.machine.disks.release(path)
        self._history.note(f"{node}: {path} works again")

    async def _give_up(self, node: SimulatedNode, path: str) -> None:
        """Note the failure of a disk that hangs beyond the limit while work waits for it."""
        disks, life = node.machine.disks, node.life
        waited_s = 0.0
        limit_s = node.config.integer(HANG_TIMEOUT) / 1000 * _SLOWEST_CLOCK + _HANG_SLACK_S
        ends_s = self._loop.now_s + limit_s + 2.0
        while self._loop.now_s < ends_s and node.life is life:
            await asyncio.sleep(_PERIOD_S)
            waited_s = waited_s + _PERIOD_S if disks.is_awaited(path) else 0.0
            if waited_s > limit_s and node.life is life and not node.is_stopping:
                self._invariants.has_given_up(node, path)
        disks.release(path)
        self._history.note(f"{node}: {path} works again")
        if node.offline_directories:
            node.kill()
        await self.restart(node, self._random.uniform(0.05, 1.0))

    def _set_clock(self) -> None:
        node = self.any_up()
        if node is not None:
            offset_ms = self._random.randint(-_MAX_OFFSET_MS, _MAX_OFFSET_MS)
            node.machine.clock.offset_ms = offset_ms
            self._history.note(f"{node}: its date is {offset_ms} ms off")
