"""Moves between directories: each one ends, and no whole copy is removed on the way.

A swap renames the source to `-delete` and the future log to the plain name. As long as the future
log has its name, the `-delete` directory with the same unique part is the only whole copy.
"""

from typing import NamedTuple

from spindle.common.uuids import Uuid
from spindle.log.formats.names import (
    LogKind,
    current_directory,
    parse_directory_name,
    replaced_directory,
)
from spindle.log.formats.partition_metadata import read_partition_metadata
from spindle.metadata.image import MetadataImage
from spindle.runtime.broker.broker_server import BrokerServer
from verification.simulation.cluster import SimulatedNode
from verification.simulation.verdict import Verdict


class CutSwap(NamedTuple):
    """A swap of which one rename was done when the process was killed. The fields are paths."""

    deleted: str
    source: str
    future: str
    topic_id: Uuid
    partition: int


class MoveOracle:
    """Checks the moves of all brokers."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._cut: dict[SimulatedNode, list[CutSwap]] = {}

    def look_for_cut_swaps(self, simulated: SimulatedNode) -> int:
        """Note the swaps of a killed node between their two renames; return how many."""
        disks = simulated.machine.disks
        cut_swaps = []
        with disks.observed():
            for directory in disks.directories:
                for name in disks.list_directory(directory):
                    if not name.endswith("-future"):
                        continue
                    where = parse_directory_name(name).topic_partition
                    deleted = replaced_directory(where, name)
                    path = f"{directory}/{name}"
                    topic_id = read_partition_metadata(disks, path)
                    cut_swaps += [
                        CutSwap(
                            f"{other}/{deleted}",
                            f"{other}/{current_directory(where)}",
                            path,
                            topic_id or b"",
                            where.partition,
                        )
                        for other in disks.directories
                        if disks.exists(f"{other}/{deleted}")
                    ]
        self._cut[simulated] = cut_swaps
        return len(cut_swaps)

    def forget(self, simulated: SimulatedNode) -> None:
        """Expect nothing of the cut swaps of a node whose disks lose or change their content."""
        self._cut.pop(simulated, None)

    def check_cut_swaps(self, simulated: SimulatedNode, image: MetadataImage) -> None:
        """Check that the whole copies are there until the future logs were promoted."""
        broker_id, disks = simulated.plan.node_id, simulated.machine.disks
        for cut in self._cut.get(simulated, ()):
            known = image.topics.partition(cut.topic_id, cut.partition)
            if known is None or broker_id not in known.replicas or _hosts(simulated, cut):
                continue
            with disks.observed():
                is_whole = disks.exists(cut.deleted) or disks.exists(cut.source)
                self._verdict.check(
                    is_whole or not disks.exists(cut.future),
                    f"{simulated} has removed {cut.deleted}, but {cut.future} was never promoted",
                )

    def check_targets(self, simulated: SimulatedNode, broker: BrokerServer) -> None:
        """Check that every move is between directories that the broker has."""
        directories = broker.replicas.directories
        for move in broker.replicas.moves:
            self._verdict.check(
                move.source in directories and move.target in directories,
                f"{simulated} moves {move}, and does not have both directories any more",
            )


def _hosts(simulated: SimulatedNode, cut: CutSwap) -> bool:
    node = simulated.node
    if node is None or node.broker is None:
        return False
    return any(
        (replica.topic_id, replica.topic_partition.partition) == (cut.topic_id, cut.partition)
        for replica in node.broker.replicas
    )


def unfinished_move(simulated: SimulatedNode, broker: BrokerServer) -> str | None:
    """Return a running move or rebuild, or the remains of a move; None without any."""
    replicas = broker.replicas
    for rebuild in replicas.rebuilds:
        if rebuild.is_under_way:
            return f"{simulated} rebuilds {rebuild}: {rebuild.state.value}"
    for move in replicas.moves:
        return f"{simulated} moves {move}: {move.course.state.value}"
    for directory in replicas.directories:
        if directory.is_offline:
            continue
        waiting = replicas.futures.in_directory(directory)
        for future in directory.store.future_logs.values():
            if future not in waiting:
                return f"{simulated} has {future}, which belongs to no move"
        for log in directory.store.logs.values():
            if log.is_moving:
                return f"{simulated} has {log} as moving, without a move"
    for path in (directory.path for directory in replicas.directories if not directory.is_offline):
        disks = simulated.machine.disks
        with disks.observed():
            names = disks.list_directory(path)
        owned = {log.path for d in replicas.directories for log in d.store.future_logs.values()}
        for name in names:
            if name.endswith(f"-{LogKind.FUTURE.value}") and f"{path}/{name}" not in owned:
                return f"{simulated} has the directory {path}/{name}, which belongs to no log"
    return None
