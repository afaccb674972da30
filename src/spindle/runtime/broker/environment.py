"""The parts of the process that its broker uses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from spindle.authorization.authorizer import Authorizer
from spindle.common.ids import Endpoint
from spindle.common.uuids import Uuid
from spindle.config.node_config import NodeConfig
from spindle.disks.device_health import DeviceHealth
from spindle.disks.log_directory import LogDirectory
from spindle.runtime.broker.directory_changes import DirectoryPorts
from spindle.runtime.lanes.native_lanes import NativeLanes
from spindle.runtime.network.listener import Listen
from spindle.runtime.network.sasl_state import SaslRules
from spindle.runtime.network.tls_listeners import TlsListeners
from spindle.runtime.peers.connections import PeerConnections
from spindle.serving.ports import ControllerChannel


@dataclass(frozen=True, slots=True)
class BrokerEnvironment:
    """The parts of the process that its broker uses."""

    config: NodeConfig
    cluster_id: str
    directories: list[LogDirectory]
    directory_ports: DirectoryPorts
    previous_broker_epoch: int
    channel: ControllerChannel
    kraft_version: Callable[[], int]
    authorizer: Authorizer
    peers: PeerConnections
    now_ms: Callable[[], int]
    device_health: Callable[[Sequence[str]], Mapping[str, DeviceHealth]]
    native_lanes: Callable[[], NativeLanes]
    new_uuid: Callable[[], Uuid]
    random: Random
    on_fatal: Callable[[str], None]
    listen: Listen
    tls: TlsListeners
    sasl_of: Callable[[Endpoint], SaslRules | None]
    max_descriptors: int
    """The maximum number of client connections under the limit of open files."""
