"""Instructions of the metadata for replicas whose log is changing its directory; they wait.

A change of directory waits for two disks. If one of them hangs, only that replica's instructions
wait; the others are applied.
"""

import asyncio
from collections.abc import Iterable

from spindle.common.ids import TopicPartition
from spindle.metadata.local_changes import Instruction


class BusyReplicas:
    """The replicas that are busy, and the instructions that wait for each of them."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, list[Instruction]] = {}
        self._ends: dict[TopicPartition, asyncio.Event] = {}

    def begin(self, where: TopicPartition) -> None:
        """Hold back the instructions of a replica until `end`."""
        assert where not in self._waiting, f"{where} is busy already"
        self._waiting[where] = []
        self._ends[where] = asyncio.Event()

    def end(self, where: TopicPartition) -> list[Instruction]:
        """Return the instructions that were held back, in their order."""
        self._ends.pop(where).set()
        return self._waiting.pop(where)

    def end_of(self, where: TopicPartition) -> asyncio.Event | None:
        """Return the event of the end of a replica's busy time; None if it is not busy."""
        return self._ends.get(where)

    def hold_back(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """Keep the instructions of busy replicas; return the others."""
        others: list[Instruction] = []
        for instruction in instructions:
            self._waiting.get(instruction.topic_partition, others).append(instruction)
        return others
