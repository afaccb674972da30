"""The parts of a broker that handlers use: one object per broker, made by the runtime."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from spindle.authorization.authorizer import Authorizer
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.ports import RandomSource
from spindle.config.node_config import NodeConfig
from spindle.coordinator.ports import GroupCoordinatorPort
from spindle.coordinator.share.group_ports import ShareGroupsPort
from spindle.coordinator.share.ports import ShareStateStore
from spindle.coordinator.transactions.ports import TransactionCoordinatorPort
from spindle.disks.alter_disks import AlteredDirectory, DirectoryAction
from spindle.disks.device_health import DeviceHealth
from spindle.disks.log_directory import LogDirectory
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.replication.fetch_session import FetchSessionCache
from spindle.serving.encoded_topics import EncodedTopics
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.ports import (
    ControllerChannel,
    EventLoop,
    LatestOffsets,
    TransactionVerification,
)
from spindle.serving.produce_order import ProduceOrder
from spindle.serving.producer_ids import ProducerIds
from spindle.serving.quotas.enforcement import ClientQuotas
from spindle.serving.quotas.replication import ReplicationQuota
from spindle.serving.share_ports import SharePartitionsPort
from spindle.serving.telemetry.telemetry import Telemetry
from spindle.serving.traffic import Traffic
from spindle.serving.unsupported_feature_log import RefusalLog


@dataclass(slots=True)
class BrokerServices:
    """The parts of one broker.

    Attributes:
        now_ms: the wall clock, for timestamps of records.
        steady_ms: a clock for durations.
        alter_disks: adds, brings back online or removes a log directory; the request names the
            replicas that may be created empty.
        move_replica: begins or ends a move to another directory (KIP-113).
        begin_rebuild, cancel_rebuild: for a replica that is copied again from its leader.
        ensure_internal_topic: creates an internal topic and waits until it is in this broker's
        metadata.
        fetch_memory, replica_memory: for fetches of consumers and of followers.
        check_listeners: refuses dynamic values that leave a listener without a key or users.
        capacities: total and usable bytes of directories by path, where they are known.
        device_health: the health of the devices below directories, by path.
        move_throttle: for moves between directories (KIP-113).
        leader_throttle: for what throttled followers fetch (KIP-73).
        share: share partitions of the partitions that this broker leads.
        share_groups: share groups whose coordinator this broker is.
        share_coordinator: the states of share partitions whose coordinator this broker is.
        telemetry: the clients that push metrics, and these metrics.
        is_rack_aware: consumers are sent to replicas in their rack (KIP-392).
    """

    node_id: int
    cluster_id: str
    config: NodeConfig
    loop: EventLoop
    now_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    random: RandomSource
    metadata: MetadataView
    encoded_topics: EncodedTopics
    replicas: ReplicaManager
    capacities: Callable[[Sequence[LogDirectory]], Awaitable[Mapping[str, tuple[int, int]]]]
    device_health: Callable[[Sequence[str]], Mapping[str, DeviceHealth]]
    alter_disks: Callable[
        [DirectoryAction, str, Collection[TopicPartition]], Awaitable[AlteredDirectory]
    ]
    move_replica: Callable[[Partition, LogDirectory], Awaitable[ErrorCode]]
    begin_rebuild: Callable[[TopicPartition], Awaitable[None]]
    cancel_rebuild: Callable[[TopicPartition], None]
    controller: ControllerChannel
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIds
    producer_turns: ProduceOrder
    groups: GroupCoordinatorPort
    transactions: TransactionCoordinatorPort
    verification: TransactionVerification
    share: SharePartitionsPort
    share_groups: ShareGroupsPort
    share_coordinator: ShareStateStore
    latest_offsets: LatestOffsets
    ensure_internal_topic: Callable[[str], Awaitable[None]]
    fetch_memory: FetchMemory
    replica_memory: FetchMemory
    leader_throttle: ReplicationQuota
    move_throttle: ReplicationQuota
    is_rack_aware: bool
    quotas: ClientQuotas
    authorizer: Authorizer
    traffic: Traffic
    refusals: RefusalLog
    telemetry: Telemetry
    check_listeners: Callable[[Mapping[str, str]], Awaitable[None]]
