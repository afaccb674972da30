"""Ask the brokers for state that is stale on disk: log ends, topic ids and paths.

With `kafka.bootstrap.servers`, a read from directories ends at the current high watermark
(read_committed: the last stable offset); the checkpoint on disk is up to some seconds old. A topic
that was deleted and created again is read under its current id. The option `logDirs` may be left
out if the brokers run on this machine. Records still come from the disks; a task reads through the
brokers only where the planned directory is not on its machine or cannot be read.
"""

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import ClientSettings
from spindle.client.cluster_metadata import ClusterView
from spindle.common.ids import TopicPartition
from spindle.pipeline.segments.options import SegmentOptions
from spindle.protocol.sentinels import LATEST, READ_COMMITTED, READ_UNCOMMITTED


class NoLocalDirectories(ValueError):
    """None of the brokers' log directories is on this machine."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """Asks the brokers of a cluster; every question opens its own connections."""

    brokers: ClientSettings

    def located(self, options: SegmentOptions) -> SegmentOptions:
        """Return the options with the brokers' log directories, unless directories are given.

        Raises:
            NoLocalDirectories: none of the brokers' directories is on this machine.
            ClientError: no broker can be asked.
        """
        if options.log_directories:
            return options
        with WireClient(self.brokers) as client:
            nodes = client.describe_log_dirs()
        paths = [view.path for views in nodes.values() for view in views]
        local = [path for path in dict.fromkeys(paths) if Path(path).is_dir()]
        if not local:
            raise NoLocalDirectories(
                f"none of the log directories of {self} is on this machine "
                f"({', '.join(paths) or 'it has none'}); name them with the option logDirs"
            )
        return replace(options, log_directories=",".join(map(glob.escape, local)))

    def view(self, topics: Sequence[str]) -> ClusterView:
        """Return the current state of topics, and the id of the cluster.

        Raises:
            ClientError: no broker can be asked.
        """
        with WireClient(self.brokers) as client:
            return client.metadata(topics)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], *, is_read_committed: bool
    ) -> dict[TopicPartition, int]:
        """Return the high watermarks, or last stable offsets, of partitions.

        Raises:
            ApiError: a partition has no leader, or does not exist.
            ClientError: a leader cannot be asked.
        """
        level = READ_COMMITTED if is_read_committed else READ_UNCOMMITTED
        with WireClient(self.brokers) as client:
            offsets = client.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=level)
        return {partition: offset.offset for partition, offset in offsets.items()}

    def __str__(self) -> str:
        return ", ".join(map(str, self.brokers.bootstrap_servers))


def live_cluster(options: SegmentOptions) -> LiveCluster | None:
    """Return the cluster that the options name, or None if they name none."""
    return None if options.brokers is None else LiveCluster(options.brokers)
