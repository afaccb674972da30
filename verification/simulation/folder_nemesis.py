"""Folders of replicas that vanish while their broker is down, and come back later.

A repair of a file system drops directories, an operator removes the wrong one, and a disk that is
not mounted leaves the empty folder under it. A broker has to conclude from what is left whether it
may create such a replica empty.
"""

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from spindle.common.errors import CorruptLog
from spindle.log.formats.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offset_checkpoint,
)
from spindle.log.formats.names import LOG_SUFFIX, LogKind, parse_directory_name
from verification.simulation.cluster import SimulatedCluster, SimulatedNode
from verification.simulation.disk import SimulatedDisks
from verification.simulation.invariants import Invariants
from verification.simulation.trace import History

if TYPE_CHECKING:
    from verification.simulation.nemesis import Nemesis

_STOPPED_S: Final = 5.0
_EVIDENCE: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)


class _Vanished(NamedTuple):
    """A folder, or a whole directory, that is not where it was.

    Attributes:
        is_directory: a log directory: what is mounted in its place goes when it comes back.
    """

    path: str
    content: object
    is_directory: bool


class FolderNemesis:
    """Works with `nemesis`, which chooses the nodes and heals everything at the end."""

    def __init__(
        self,
        nemesis: "Nemesis",
        cluster: SimulatedCluster,
        invariants: Invariants,
        history: History,
    ) -> None:
        self._nemesis = nemesis
        self._cluster = cluster
        self._invariants = invariants
        self._history = history
        self._away: dict[SimulatedNode, list[_Vanished]] = {}
        # From an own generator, so that the other faults of a seed keep their meaning.
        self._random = Random(f"folders that vanish of {cluster.scenario.seed}")

    def disturb(self, period_s: float) -> None:
        """Begin the fault if it is due by chance."""
        chance = self._cluster.scenario.chances.vanish
        if not chance or self._random.random() >= chance * period_s:
            return
        node = self._nemesis.pick_victim()
        if node is not None and node.data_directories and node not in self._away:
            self._nemesis.later(self._start_without_folders(node))

    def heal(self, node: SimulatedNode) -> None:
        """Restore the folders that a node lacks; the node must start again to find them."""
        if self._away.get(node):
            node.kill()
            self._restore(node)

    async def _start_without_folders(self, victim: SimulatedNode) -> None:
        """Start a node without some folders; start it again when they are back.

        By chance all other brokers end before, so that no other replica may lead.
        """
        random = self._random
        self._away[victim] = []
        others = [n for n in self._cluster.brokers if n is not victim and n.is_up]
        # In a run with power failures, only one broker may die at a time.
        is_alone = random.random() < 0.6 and not self._cluster.scenario.chances.is_lossy
        for node in (*(others if is_alone else ()), victim):
            await self._end(node)
        if not victim.machine.disks.has_faults:
            self._invariants.moves.forget(victim)  # what it expects may vanish
            self._remove(victim)
        for node in random.sample((victim, *others), len(others) + 1):
            self._nemesis.later(self._nemesis.restart(node, random.uniform(0.05, 1.0)))
        await asyncio.sleep(random.uniform(1.0, 8.0))
        await self._end(victim)
        self._restore(victim)
        await self._nemesis.restart(victim, random.uniform(0.05, 1.0))

    async def _end(self, node: SimulatedNode) -> None:
        """End the process, mostly in order: after a kill the replica may not be elected."""
        self._invariants.expect_crash(node)
        if self._random.random() < 0.7:
            node.stop()
            await asyncio.wait([asyncio.ensure_future(node.is_down.wait())], timeout=_STOPPED_S)
        node.kill()

    def _remove(self, node: SimulatedNode) -> None:
        """Remove folders of a node that is down, maybe with the checkpoints that name them."""
        random, disks = self._random, node.machine.disks
        path = random.choice(node.data_directories)
        with disks.observed():
            if random.random() < 0.2:
                self._take(node, path, is_directory=True)
                disks.put_back(path, disks.empty())
                return
            shown = _shown_by_checkpoints(disks, path)
            folders = [
                name
                for name in disks.list_directory(path)
                if _is_current(disks, path, name)
                and (name in shown or not _has_records(disks, f"{path}/{name}"))
            ]
            if not folders:
                return
            for name in random.sample(folders, random.randint(1, len(folders))):
                self._take(node, f"{path}/{name}", is_directory=False)
                disks.remove_tree(f"{path}/{name}")
            disks.sync_directory(path)
            if random.random() < 0.5:
                for name in random.choice((_EVIDENCE, (RECOVERY_POINTS,), (HIGH_WATERMARKS,))):
                    self._lose_checkpoint(node, f"{path}/{name}")

    def _take(self, node: SimulatedNode, path: str, *, is_directory: bool) -> None:
        content = node.machine.disks.copy_of(path)
        self._away[node].append(_Vanished(path, content, is_directory))
        self._history.note(f"{node}: {path} vanishes")

    def _lose_checkpoint(self, node: SimulatedNode, path: str) -> None:
        random, disks = self._random, node.machine.disks
        if not disks.exists(path):
            return
        content = disks.read_bytes(path)
        disks.remove(path)
        is_torn = random.random() < 0.5 and not path.endswith(LOG_STARTS)
        if is_torn:
            disks.write_atomically(path, content[: random.randint(0, len(content))])
        self._history.note(f"{node}: {path} is {'torn' if is_torn else 'missing'}")

    def _restore(self, node: SimulatedNode) -> None:
        """Restore what vanished, unless the node has created the replica again."""
        disks = node.machine.disks
        with disks.observed():
            for path, content, is_directory in self._away.pop(node, ()):
                if is_directory or not disks.exists(path):
                    disks.make_directories(path)
                    disks.put_back(path, content)
                    self._history.note(f"{node}: {path} is back")


def _shown_by_checkpoints(disks: SimulatedDisks, directory: str) -> set[str]:
    """Return the folders with records by the checkpoints; nothing shows that others had any."""
    with suppress(CorruptLog):
        return {
            str(where)
            for name in _EVIDENCE
            for where, offset in read_offset_checkpoint(disks, f"{directory}/{name}").items()
            if offset > 0
        }
    return set()


def _has_records(disks: SimulatedDisks, folder: str) -> bool:
    return any(
        disks.size(f"{folder}/{name}") > 0
        for name in disks.list_directory(folder)
        if name.endswith(LOG_SUFFIX)
    )


def _is_current(disks: SimulatedDisks, directory: str, name: str) -> bool:
    if not disks.is_directory(f"{directory}/{name}"):
        return False
    try:
        return parse_directory_name(name).kind is LogKind.CURRENT
    except ValueError:
        return False
