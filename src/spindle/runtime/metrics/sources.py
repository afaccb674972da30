"""The parts of a node that the metrics read."""

from collections.abc import Iterable
from typing import NamedTuple

from spindle.disks.executor import DirectoryExecutor
from spindle.metadata.image import MetadataImage
from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.controller.controller_server import WrittenSnapshot
from spindle.runtime.controller.driver import ControllerDriver
from spindle.runtime.metrics.metadata_counts import MetadataCounts
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum


class NodeParts(NamedTuple):
    """The present parts of a node; None for parts that are missing or have not started.

    `counts` belongs to `image`.
    """

    requests: RequestMetrics
    disks: Iterable[DirectoryExecutor]
    image: MetadataImage
    counts: MetadataCounts
    last_committed_offset: int
    now_ms: int
    driver: ControllerDriver | None
    snapshot: WrittenSnapshot | None
    quorum: RaftMetadataQuorum | None
    broker: BrokerServer | None
