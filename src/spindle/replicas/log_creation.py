"""Creates the logs of replicas that are new on this broker, each in the directory chosen for it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from spindle.common.errors import LogDirectoryFailed
from spindle.common.ids import TopicPartition
from spindle.disks.directory_store import NewLog
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.metadata.local_changes import BecomeFollower, BecomeLeader
from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.topic_settings import TopicSettings

log = logging.getLogger(__name__)

_CREATED_AT_A_TIME: Final = 32
"""Number of logs that one job creates; other jobs of the directory wait for it."""

HostReplica: TypeAlias = BecomeLeader | BecomeFollower
_Work = list[tuple[HostReplica, LogDirectory]]
"""Replicas to be created in one directory."""


class LogCreation:
    """Creates logs on the threads of their directories.

    Args:
        choose: returns the directory of a new log; None to create nothing.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        choose: Callable[[TopicPartition, PartitionRegistration], LogDirectory | None],
        settings_of: Callable[[str], TopicSettings],
        now_ms: Callable[[], int],
    ) -> None:
        self._choose = choose
        self._settings_of = settings_of
        self._now_ms = now_ms

    async def create(
        self,
        missing: Sequence[HostReplica],
        created: Callable[[HostReplica, Log, LogDirectory], None],
    ) -> None:
        """Create the logs and call `created` for each.

        If a directory fails while logs are created, choose another one for its logs.
        """
        left = list(missing)
        while left:
            left = await self._create(left, created)

    async def _create(
        self,
        missing: Sequence[HostReplica],
        created: Callable[[HostReplica, Log, LogDirectory], None],
    ) -> list[HostReplica]:
        """Create logs; return those whose directory failed."""
        plan: dict[int, _Work] = {}
        for instruction in missing:
            target = self._choose(instruction.topic_partition, instruction.partition)
            if target is None:
                continue
            target.log_count += 1
            plan.setdefault(id(target), []).append((instruction, target))
        left: list[HostReplica] = []
        # All directories at the same time, because each has its own thread, and a few logs at a
        # time, because other work of a directory waits behind them.
        longest = max(map(len, plan.values()), default=0)
        for start in range(0, longest, _CREATED_AT_A_TIME):
            parts = [work[start : start + _CREATED_AT_A_TIME] for work in plan.values()]
            creations = [(part, self._begin(part)) for part in parts if part]
            for part, creation in creations:
                directory = part[0][1]
                try:
                    logs = await creation
                except LogDirectoryFailed as failure:
                    log.error("cannot create %d replicas: %s", len(part), failure)
                    left += [instruction for instruction, _ in part]
                    continue
                for (instruction, _), new in zip(part, logs, strict=True):
                    created(instruction, new, directory)
        return left

    def _begin(self, work: _Work) -> Awaitable[list[Log]]:
        directory = work[0][1]
        wanted = [
            NewLog(
                i.topic_partition,
                i.topic_id,
                self._settings_of(i.topic_partition.topic).log_config,
            )
            for i, _ in work
        ]
        return directory.executor.submit(directory.store.create_logs, wanted, self._now_ms())
