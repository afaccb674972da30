"""What of a node the metrics look at."""

from collections.abc import Iterable
from typing import NamedTuple

from spindle.metadata.image import MetadataImage
from spindle.runtime.broker_server import BrokerServer
from spindle.runtime.metadata_quorum import RaftMetadataQuorum
from spindle.runtime.metrics_disk import DiskTimes
from spindle.runtime.request_metrics import RequestMetrics


class NodeParts(NamedTuple):
    """The state of things; parts that have not started are None."""

    requests: RequestMetrics
    disks: Iterable[DiskTimes]
    image: MetadataImage
    is_active_controller: bool
    quorum: RaftMetadataQuorum | None
    broker: BrokerServer | None
