"""What handlers work with: one object per broker, made by the runtime's wiring."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spindle.broker.ports import ControllerChannel, EventLoop, MetadataView
from spindle.broker.producer_ids import ProducerIds
from spindle.broker.replicas import Replicas
from spindle.common.ports import RandomSource
from spindle.config.node_config import NodeConfig
from spindle.replication.fetch_session import FetchSessionCache

if TYPE_CHECKING:
    from spindle.broker.groups import GroupCoordinator


@dataclass(slots=True)
class BrokerServices:
    """`now_ms` is the wall clock: it stamps records and must not be used for durations."""

    node_id: int
    cluster_id: str
    config: NodeConfig
    loop: EventLoop
    now_ms: Callable[[], int]
    random: RandomSource
    metadata: MetadataView
    replicas: Replicas
    controller: ControllerChannel
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIds
    groups: "GroupCoordinator"
