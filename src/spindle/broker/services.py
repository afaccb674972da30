"""What handlers work with: one object per broker, made by the runtime's wiring."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from spindle.broker.fetch_memory import FetchMemory
from spindle.broker.ports import ControllerChannel, EventLoop, MetadataView
from spindle.broker.producer_ids import ProducerIds
from spindle.broker.quota_enforcement import ClientQuotas
from spindle.broker.replicas import Replicas
from spindle.broker.replication_quotas import ReplicationQuota
from spindle.broker.traffic import Traffic
from spindle.common.ports import RandomSource
from spindle.config.node_config import NodeConfig
from spindle.coordinator.ports import GroupCoordinatorPort
from spindle.replication.fetch_session import FetchSessionCache


@dataclass(slots=True)
class BrokerServices:
    """`now_ms` is the wall clock: it stamps records. `steady_ms` is for durations.

    `is_rack_aware` sends consumers to replicas in their rack (KIP-392).
    """

    node_id: int
    cluster_id: str
    config: NodeConfig
    loop: EventLoop
    now_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    random: RandomSource
    metadata: MetadataView
    replicas: Replicas
    controller: ControllerChannel
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIds
    groups: GroupCoordinatorPort
    ensure_internal_topic: Callable[[str], Awaitable[None]]
    fetch_memory: FetchMemory
    replica_memory: FetchMemory
    leader_throttle: ReplicationQuota
    is_rack_aware: bool
    quotas: ClientQuotas
    traffic: Traffic
