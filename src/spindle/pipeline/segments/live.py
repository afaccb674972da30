"""Ask a running cluster for what its directories tell late: log ends, topic ids and paths.

With `kafka.bootstrap.servers`, a read from directories ends at the current high watermark
(read_committed: the last stable offset); the checkpoint on disk is up to some seconds old. A topic
that was deleted and created again is read under its current id. The option `logDirs` may be left
out if the brokers run on this machine. Records still come from the disks.
"""

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spindle.client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED
from spindle.client.wire.cluster import WireClient
from spindle.client.wire.settings import ClientSettings
from spindle.common.ids import TopicPartition
from spindle.pipeline.segments.options import SegmentOptions


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """Asks brokers; every question opens its own connections."""

    brokers: ClientSettings

    def located(self, options: SegmentOptions) -> SegmentOptions:
        """Return the options with the brokers' log directories, unless directories are given.

        Raises:
            ValueError: none of the brokers' directories is on this machine.
            ClientError: no broker can be asked.
        """
        if options.log_directories:
            return options
        with self._client() as client:
            nodes = client.describe_log_dirs()
        paths = [view.path for views in nodes.values() for view in views]
        local = [path for path in dict.fromkeys(paths) if Path(path).is_dir()]
        if not local:
            servers = ",".join(map(str, self.brokers.bootstrap_servers))
            raise ValueError(
                f"none of the log directories of {servers} is on this machine "
                f"({', '.join(paths) or 'it has none'}); name them with the option logDirs"
            )
        return replace(options, log_directories=",".join(map(glob.escape, local)))

    def identified(self, options: SegmentOptions, topics: Sequence[str]) -> SegmentOptions:
        """Return the options with the current topic ids of the topics that exist."""
        with self._client() as client:
            found = client.metadata(topics).topics
        present = {name: topic.topic_id for name, topic in found.items()}
        return replace(options, topic_ids={**present, **options.topic_ids})

    def end_offsets(
        self, partitions: Sequence[TopicPartition], *, is_read_committed: bool
    ) -> dict[TopicPartition, int]:
        """Return the high watermarks, or last stable offsets, of partitions.

        Raises:
            ApiError: a partition has no leader, or does not exist.
            ClientError: a leader cannot be asked.
        """
        level = READ_COMMITTED if is_read_committed else READ_UNCOMMITTED
        with self._client() as client:
            found = client.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=level)
        return {partition: offset.offset for partition, offset in found.items()}

    def _client(self) -> WireClient:
        return WireClient(self.brokers)


def live_cluster(options: SegmentOptions) -> LiveCluster | None:
    """Return the cluster that the options name, or None if they name none."""
    return None if options.brokers is None else LiveCluster(options.brokers)
