"""Reports replicas' directories and failed directories to the controller (KIP-858)."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from spindle.common.uuids import Uuid, uuid_text
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.features import DIRECTORY_ASSIGNMENT_LEVEL, METADATA_VERSION
from spindle.metadata.image import MetadataImage
from spindle.replicas.report_queues import Assignments, Reports
from spindle.runtime.broker.broker_metadata import BrokerMetadata
from spindle.runtime.broker.lifecycle import BrokerLifecycle
from spindle.runtime.broker.report_sender import ReportSender

log = logging.getLogger(__name__)

_FIRST_PAUSE_MS: Final = 100
_MAX_PAUSE_MS: Final = 10_000


class DirectoryReports:
    """Reports of one broker.

    Args:
        lifecycle: sends heartbeats and registrations.
        make_sender: from name, reports, first and longest pause after a refusal.
    """

    def __init__(
        self,
        broker_id: int,
        directories: Sequence[LogDirectory],
        metadata: BrokerMetadata,
        lifecycle: BrokerLifecycle,
        make_sender: Callable[[str, Reports, int, int], ReportSender],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._directories = directories
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._on_fatal = on_fatal
        self._assignments = Assignments(broker_id, self._holds)
        self._sender = make_sender(
            "directory assignments", self._assignments, _FIRST_PAUSE_MS, _MAX_PAUSE_MS
        )

    def on_acknowledged(self, listener: Callable[[Uuid, int, Uuid], None]) -> None:
        """Call `listener` with each (topic id, partition, directory id) that is acknowledged."""
        self._assignments.on_acknowledged = listener

    def start(self) -> None:
        self._sender.start()

    async def stop(self) -> None:
        await self._sender.stop()

    @property
    def queued_count(self) -> int:
        """Return the number of assignments that the controller has not acknowledged."""
        return len(self._assignments)

    def is_queued(self, topic_id: Uuid, partition: int) -> bool:
        """Return True if the controller has not acknowledged the last report of a replica."""
        return (topic_id, partition) in self._assignments

    def assign(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        """Report the directory of a replica when the metadata.version can record it.

        If the partition has no leader, the controller may then elect the replica.
        """
        self._assignments.add(topic_id, partition, directory_id)
        if self._metadata.newest.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL:
            self._sender.wake()

    def directory_failed(self, directory: LogDirectory) -> None:
        """Report a failed directory; end the broker if others cannot take over its partitions."""
        levels = self._metadata.newest.features.levels
        if all(d.is_offline for d in self._directories):
            paths = ", ".join(d.path for d in self._directories)
            self._on_fatal(f"all log directories have failed: {paths}")
        elif METADATA_VERSION in levels and levels[METADATA_VERSION] < DIRECTORY_ASSIGNMENT_LEVEL:
            self._on_fatal(_unrecordable(directory.path, levels[METADATA_VERSION]))
        elif directory.directory_id:
            log.warning("log directory %s is offline", uuid_text(directory.directory_id))
            self._lifecycle.directory_failed(directory.directory_id)

    def features_changed(self, image: MetadataImage) -> None:
        """Report everything as soon as the metadata.version can record it."""
        level = image.metadata_version
        if level >= DIRECTORY_ASSIGNMENT_LEVEL:
            own = image.cluster.brokers.get(self._broker_id)
            if own is not None and not own.directories:
                self._lifecycle.register_again()
            self._sender.wake()
            return
        for directory in self._directories:
            if directory.is_offline:
                self._on_fatal(_unrecordable(directory.path, level))
        if len(self._directories) > 1:
            log.error(
                "metadata.version %d does not support several log directories, and this broker has "
                "%d: if one fails, the broker stops. Upgrade metadata.version to %d or above",
                level,
                len(self._directories),
                DIRECTORY_ASSIGNMENT_LEVEL,
            )

    def _holds(self, topic_id: Uuid, partition: int) -> bool:
        known = self._metadata.newest.topics.partition(topic_id, partition)
        return known is not None and self._broker_id in known.replicas


def _unrecordable(path: str, metadata_version: int) -> str:
    return (
        f"log directory {path} is offline, and metadata.version {metadata_version} cannot record "
        f"that (from {DIRECTORY_ASSIGNMENT_LEVEL} on it can): other brokers take over its "
        "partitions only if this broker stops"
    )
