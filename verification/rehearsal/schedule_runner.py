"""Carries out a schedule on a cluster of real processes, and heals everything after an episode."""

import errno
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.errors import ClientError
from spindle.common.errors import ApiError, ErrorCode
from spindle.local.errors import ClusterError
from spindle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from spindle.testing.cluster.cluster import Cluster
from spindle.testing.cluster.node import Disk, NodeHandle
from verification.rehearsal.schedule import Episode, FaultStep, PlannedFault

_IN_SYNC_S: Final = 90.0
_NOTICED_S: Final = 3.0
"""A disk that the broker does not use is not noticed to be broken; nobody waits longer."""
_ENDED_S: Final = 20.0
_ASK_AGAIN_S: Final = 0.2
_SLOW_MS: Final = 100.0
_ADMIN_S: Final = 5.0
_CORDONED: Final = "cordoned.log.dirs"


class Conductor:
    """Plays episodes.

    Args:
        topics: whose replicas move.

    Attributes:
        story: one line for each thing that was done, with its time.
    """

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        self.story: list[str] = []
        self._cluster = cluster
        self._topics = topics
        self._begun_s = time.monotonic()
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def note(self, text: str) -> None:
        self.story.append(f"{time.monotonic() - self._begun_s:8.3f}  {text}")

    def play(self, episode: Episode) -> None:
        """Do what the episode says, then heal everything and wait until all is in sync.

        Raises:
            TimeoutError: the replicas do not come in sync.
            ClusterError: a node does not start.
            ApiError: a broker does not take back a directory that is offline and well.
        """
        for step in episode.steps:
            time.sleep(step.pause_s)
            self._do(step)
        time.sleep(episode.rest_s)
        self.heal_all(brings_online=episode.brings_online)

    def _do(self, step: FaultStep) -> None:
        node = self._cluster.broker(step.broker)
        disk = self._cluster.disk(step.broker, step.disk)
        self.note(str(step).partition(": ")[2])
        try:
            self._actions(node, disk, step)[step.fault]()
        except (ClusterError, ApiError, ClientError, KafkaException, TimeoutError) as refused:
            # A node that is down or a directory that is dead refuses much; the checker judges.
            self.note(f"  refused: {str(refused).splitlines()[0][:200]}")

    def _actions(
        self, node: NodeHandle, disk: Disk, step: FaultStep
    ) -> dict[PlannedFault, Callable[[], object]]:
        later_s = 5 * step.pause_s
        return {
            PlannedFault.FAIL: lambda: disk.fail(errno.EIO),
            PlannedFault.FILL: lambda: disk.fill(int(step.pause_s * 20_000)),
            PlannedFault.READONLY: disk.readonly,
            PlannedFault.SLOW: lambda: disk.slow(_SLOW_MS),
            PlannedFault.TEAR: lambda: disk.tear("fail"),
            PlannedFault.REPLACE: disk.replace,
            PlannedFault.BRING_ONLINE: lambda: self._heal_and_bring_online(disk),
            PlannedFault.KILL: lambda: self._kill(node, later_s),
            PlannedFault.CUT_POWER: lambda: self._cut_power(node, later_s),
            PlannedFault.PAUSE: lambda: self._pause(node, later_s),
            PlannedFault.RESTART: lambda: self._restart(node),
            PlannedFault.CUT_PEERS: lambda: self._isolate(node, later_s),
            PlannedFault.CUT_CLIENTS: lambda: self._cut_clients(node, later_s),
            PlannedFault.CORDON: lambda: self._cordon(node, str(disk.path)),
            PlannedFault.UNCORDON: lambda: self._cordon(node, None),
            PlannedFault.MOVE: lambda: self._move(node, disk, step.partition),
        }

    # -- brokers

    def _kill(self, node: NodeHandle, later_s: float) -> None:
        node.kill()
        time.sleep(later_s)
        node.start_at_once()

    def _cut_power(self, node: NodeHandle, later_s: float) -> None:
        for line in node.cut_power(int(later_s * 1000)):
            self.note(f"  {line}")
        time.sleep(later_s)
        node.start_at_once()

    def _pause(self, node: NodeHandle, later_s: float) -> None:
        node.pause()
        try:
            time.sleep(later_s)
        finally:
            node.resume()

    def _restart(self, node: NodeHandle) -> None:
        node.stop()
        node.start_at_once()

    def _isolate(self, node: NodeHandle, later_s: float) -> None:
        self._cluster.isolate(node.node_id, clients=False)
        time.sleep(later_s)
        self._cluster.heal_network()

    def _cut_clients(self, node: NodeHandle, later_s: float) -> None:
        self._cluster.cut_clients(node.node_id)
        time.sleep(later_s)
        self._cluster.heal_network()

    # -- directories

    def _heal_and_bring_online(self, disk: Disk) -> None:
        try:
            disk.wait_until_offline(_NOTICED_S)
        finally:
            disk.heal()
        self._bring_online(disk)

    def _bring_online(self, disk: Disk) -> None:
        kind = "an empty directory" if disk.bring_online() else "a directory with its logs"
        self.note(f"  broker {disk.node.node_id} has brought {disk.path.name} back online, {kind}")

    def _cordon(self, node: NodeHandle, path: str | None) -> None:
        operation = AlterConfigOpType.DELETE if path is None else AlterConfigOpType.SET
        entry = ConfigEntry(_CORDONED, path or "", incremental_operation=operation)
        resource = ConfigResource(
            ResourceType.BROKER, str(node.node_id), incremental_configs=[entry]
        )
        (answer,) = self._admin.incremental_alter_configs(
            [resource], request_timeout=_ADMIN_S
        ).values()
        answer.result(_ADMIN_S + 1)

    def _move(self, node: NodeHandle, disk: Disk, partition: int) -> None:
        kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        moved = [
            kind.AlterReplicaLogDirTopic(name=topic, partitions=[partition])
            for topic in self._topics
        ]
        request = AlterReplicaLogDirsRequest(dirs=[kind(path=str(disk.path), topics=moved)])
        with self._client() as client:
            broker = client.metadata(()).broker(str(node.node_id))
            answer = client.ask(request, AlterReplicaLogDirsResponse, broker=broker)
        for result in answer.results:
            code = result.partitions[0].error_code
            if code:
                self.note(f"  refused for {result.topic_name}: {ErrorCode(code).name}")

    def _client(self) -> WireClient:
        return WireClient(
            client_settings(
                {
                    "bootstrap.servers": self._cluster.bootstrap_servers,
                    "request.timeout.ms": "5000",
                }
            )
        )

    # -- the end of an episode

    def heal_all(self, *, brings_online: bool) -> None:
        """End all faults, bring everything up, and wait until all replicas are in sync.

        Args:
            brings_online: running brokers bring directories back online, new disks included;
                otherwise they are restarted.
        """
        self.note("everything is healed")
        self._cluster.heal_network()
        for node in self._cluster.nodes:
            if node.is_paused:
                node.resume()
            for disk in node.disks:
                disk.heal()
                if not brings_online:
                    _format_if_new(disk)
        self._start_ended()
        for node in self._cluster.nodes:
            self._bring_back(node, brings_online=brings_online)
            try:
                self._cordon(node, None)
            except KafkaException as refused:
                self.note(f"  not uncordoned: {refused}")
        self._cluster.wait_until_in_sync(timeout_s=_IN_SYNC_S)
        self.note("all replicas are in sync")

    def _start_ended(self) -> None:
        """Start the nodes that have ended, and wait until all nodes serve."""
        for node in self._cluster.nodes:
            if not node.is_running:
                for disk in node.disks:
                    _format_if_new(disk)
        self._cluster.start()

    def _bring_back(self, node: NodeHandle, *, brings_online: bool) -> None:
        """Bring back offline directories of a node, or a node that the others do not know.

        A node that ends as late as this is started again: it noticed a fault before all was healed.
        """
        ends_s = time.monotonic() + _ENDED_S
        while True:
            try:
                return self._bring_back_once(node, brings_online=brings_online)
            except ClientError:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(_ASK_AGAIN_S)
                self._start_ended()

    def _bring_back_once(self, node: NodeHandle, *, brings_online: bool) -> None:
        with self._client() as client:
            views = client.describe_log_dirs().get(node.node_id)
        failed = {view.path for view in views or () if view.error is not ErrorCode.NONE}
        if brings_online and views is not None:
            for disk in node.disks:
                if str(disk.path) in failed:
                    self._bring_online(disk)
                    failed.remove(str(disk.path))
        new = [disk for disk in node.disks if disk.directory_id is None]
        if views is None or failed or new:
            for disk in new:
                _format_if_new(disk)
            self.note(f"  broker {node.node_id} is restarted for its directories")
            node.restart()


def _format_if_new(disk: Disk) -> None:
    if disk.directory_id is None:
        disk.format()
