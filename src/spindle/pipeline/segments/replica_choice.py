"""The option `replica`: which replica of a partition is read if the directories hold several."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from spindle.pipeline.options.values import MAX_INT, integer
from spindle.pipeline.segments.discovery import PartitionDirectory


class ReplicaChoice(NamedTuple):
    """The leader's replica, that of a broker, or the one in a log directory: one field is set."""

    is_leader: bool = False
    node_id: int | None = None
    directory: str | None = None

    def __str__(self) -> str:
        return "leader" if self.is_leader else str(self.directory or self.node_id)


def replica_choice(text: str) -> ReplicaChoice:
    """Return the choice that the option describes.

    Raises:
        ValueError: it is neither `leader`, nor a node id, nor an absolute path.
    """
    word = text.strip()
    if word.lower() == "leader":
        return ReplicaChoice(is_leader=True)
    node_id = integer(word)
    if node_id is not None and 0 <= node_id <= MAX_INT:
        return ReplicaChoice(node_id=node_id)
    if not os.path.isabs(word):
        raise ValueError(
            f"option replica: {text!r}, want leader, a broker's id from 0 to {MAX_INT}, or the "
            "absolute path of a log directory"
        )
    return ReplicaChoice(directory=os.path.realpath(word))


def candidates(
    copies: Sequence[PartitionDirectory], choice: ReplicaChoice | None, leader: int | None
) -> Sequence[PartitionDirectory]:
    """Return the replicas of a partition that may be read.

    Args:
        copies: All its replicas in the log directories, at least one.
        choice: Without one, the leader's replica is preferred if it is there.
        leader: The node id of the leader; None if no cluster was asked.

    Raises:
        ValueError: the chosen replica is not in the log directories.
    """
    if choice is None:
        return [copy for copy in copies if copy.directory.identity.node_id == leader] or copies
    if choice.directory is not None:
        directories = [copy for copy in copies if str(copy.directory.path) == choice.directory]
    else:
        node_id = leader if choice.is_leader else choice.node_id
        directories = [copy for copy in copies if copy.directory.identity.node_id == node_id]
    if not directories:
        held = ", ".join(
            f"{copy.directory.path} (broker {copy.directory.identity.node_id})" for copy in copies
        )
        of_leader = f", which is broker {leader}," if choice.is_leader else ""
        raise ValueError(
            f"option replica: {choice}{of_leader} has no replica of {copies[0].partition} in the "
            f"log directories; there are replicas in {held}"
        )
    return directories
