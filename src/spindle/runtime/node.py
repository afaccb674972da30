"""One node: a broker, a controller or both, from its configuration to its orderly stop."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from spindle.common.errors import LogDirectoryFailed
from spindle.common.ids import Endpoint
from spindle.config.broker_keys.spindle import HANG_TIMEOUT, METRICS_LISTENER
from spindle.config.endpoints import parse_servers
from spindle.config.node_config import NodeConfig
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.identity import DirectoryIdentities, identify_directories
from spindle.disks.log_directory import LogDirectory
from spindle.log.formats.changed_log_dirs import ChangedLogDirs
from spindle.publication.publishers import ActiveBrokersWatch, ImagePublisher
from spindle.runtime.acl_follower import AclFollower, make_authorizer
from spindle.runtime.background import end
from spindle.runtime.banner import directory_lines, identity_lines, level_line, listener_lines
from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.broker.directory_changes import DirectoryPorts
from spindle.runtime.broker.environment import BrokerEnvironment
from spindle.runtime.controller.controller_server import ControllerServer
from spindle.runtime.disks.directory_logs import previous_broker_epoch
from spindle.runtime.disks.log_dirs_overrides import changed_log_dirs
from spindle.runtime.disks.open_directories import OpenDirectories
from spindle.runtime.disks.open_files import OpenFiles, scarcity, share_out
from spindle.runtime.machine import LocalMachine, Machine
from spindle.runtime.metrics.access import METRICS_KEYS, metrics_access
from spindle.runtime.metrics.http_server import MetricsServer
from spindle.runtime.metrics.metadata_counts import MetadataCounts
from spindle.runtime.metrics.node_metrics import NodeParts
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.jwks_cache import KeySets
from spindle.runtime.network.listener import Listener, bind, reachable
from spindle.runtime.network.sasl_rules import sasl_rules
from spindle.runtime.network.sasl_state import SaslRules
from spindle.runtime.network.socket_buffers import SocketBuffers
from spindle.runtime.network.tls_listeners import TlsListeners
from spindle.runtime.network.unauthenticated import UnauthenticatedConnections
from spindle.runtime.peers.connections import PeerConnections
from spindle.runtime.quorum.factory import open_quorum, read_bootstrap_records
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum

log = logging.getLogger(__name__)

_SHUTDOWN_S: Final = 30.0
"""Time for a broker to transfer the leadership of its partitions."""
_FAREWELL_S: Final = 1.0
"""Time for a failing broker to be fenced by the controller before its session ends."""
_DISK_S: Final = 10.0
"""Time for a directory's thread to finish its work; a thread that hangs longer is abandoned."""
_QUORUM_STOP_S: Final = 5.0
"""Time for a leader of the quorum to wait for its successor."""


class Node:
    """The parts of one process, created and used on its event loop.

    Attributes:
        before_quorum_stop: awaited, for a limited time, after the stop of the broker and before the
            stop of the quorum member: other brokers may need the quorum for their own stop.
    """

    def __init__(self, config: NodeConfig, machine: Machine | None = None) -> None:
        self._config = config
        self._machine = machine or LocalMachine()
        # From now on, directories have absolute paths, as in Kafka.
        self._configured = [os.path.abspath(path) for path in config.log_dirs]
        self._log_dirs = self._configured
        self._metadata_log_dir = os.path.abspath(config.metadata_log_dir)
        self._file_system = self._machine.file_system(
            list(dict.fromkeys((self._metadata_log_dir, *self._log_dirs)))
        )
        self.request_metrics = RequestMetrics()
        self._open_files = OpenFiles(0, 0, 0, 0)
        self._directories = OpenDirectories(
            self._machine, self._directory_failed, config.integer(HANG_TIMEOUT) / 1000
        )
        self._changed_log_dirs = ChangedLogDirs()
        self._stopped = asyncio.Event()
        self._fatal: str | None = None
        self._is_serving = False
        self.before_quorum_stop: Callable[[], Awaitable[None]] | None = None
        self.metrics_server: MetricsServer | None = None
        self.publisher = ImagePublisher()
        self.tls: TlsListeners | None = None
        self._authorizer = make_authorizer(config, self._machine.steady_clock_ms)
        self._key_sets = KeySets(self._machine.random.random)
        self._unauthenticated = UnauthenticatedConnections(steady_ms=self._machine.steady_clock_ms)
        self._counts = MetadataCounts()
        self.quorum: RaftMetadataQuorum | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self._start_timer: asyncio.TimerHandle | None = None

    # -- start

    async def start(self) -> None:
        """Return when the node serves.

        Raises:
            ConfigError: the node must not start; the text says why and what to do.
            CorruptLog: the metadata log or quorum state cannot be read.
            LogDirectoryFailed: the metadata directory fails.
            InvalidLogDirectory: a log directory holds what does not belong there.
        """
        config, machine = self._config, self._machine
        limit_s = config.integer("server.max.startup.time.ms") / 1000
        loop = asyncio.get_running_loop()
        self._start_timer = loop.call_later(limit_s, self._check_started, limit_s)
        peers = PeerConnections(config, self._dynamic_values)
        self._changed_log_dirs = changed_log_dirs(
            self._file_system, self._metadata_log_dir, self._configured
        )
        self._log_dirs = self._changed_log_dirs.merged(self._configured)
        self._open_files = self._share_open_files(len(dict.fromkeys(self._log_dirs)))
        identities = identify_directories(
            self._file_system,
            self._log_dirs,
            self._metadata_log_dir,
            config.node_id,
            machine.new_uuid,
            machine.wall_clock_ms(),
        )
        for line in identity_lines(config, identities.cluster_id):
            log.info(line)
        self.tls = TlsListeners(config, machine.wall_clock_ms, self.request_metrics)
        self.publisher.add(self.tls)
        warning = scarcity(self._open_files)
        if warning is not None:
            log.warning(warning)
        self._open_directories(identities)
        await self._start_metrics(identities.cluster_id)
        controller_listeners = await self._bind_controller_listeners(self.tls)
        self.quorum = quorum = await self._open_quorum(identities, controller_listeners, peers)
        acls = AclFollower(self._authorizer, lambda: quorum.high_watermark)
        self.publisher.add(acls)
        self.controller = self._make_controller(identities, controller_listeners, quorum, peers)
        if config.is_broker:
            self.broker = self._make_broker(identities, self.tls, peers)
            await self.broker.bind()
            self.publisher.add(self.broker.metadata)
        await self._key_sets.start()
        self.controller.start()
        await self.quorum.start()
        if self.broker is not None:
            self.broker.metadata.stored_end_offset = self.quorum.stored_end_offset
        self.quorum.subscribe(self.publisher)
        await self.controller.serve(
            controller_listeners,
            self.request_metrics,
            self._open_files.by_controllers_clients,
            acls.is_loaded,
        )
        if self.broker is not None:
            await self._unless_fatal(asyncio.create_task(self.broker.start()))
        self.tls.start()
        self._is_serving = True
        self._log_banner(identities, controller_listeners)

    async def _open_quorum(
        self,
        identities: DirectoryIdentities,
        listeners: Sequence[Listener],
        peers: PeerConnections,
    ) -> RaftMetadataQuorum:
        return await open_quorum(
            self._config,
            metadata_log_dir=self._metadata_log_dir,
            cluster_id=identities.cluster_id,
            directory_id=identities.directory_ids[self._metadata_log_dir],
            endpoints=self._controller_endpoints(listeners),
            file_system=self._file_system,
            thread=self._directories.thread(self._metadata_log_dir),
            security=peers.to_controllers,
            random=self._machine.random,
            clock=self._machine.steady_clock_ms,
            on_fault=lambda fault: self.fail(f"metadata quorum: {fault}"),
        )

    def _make_controller(
        self,
        identities: DirectoryIdentities,
        listeners: Sequence[Listener],
        quorum: RaftMetadataQuorum,
        peers: PeerConnections,
    ) -> ControllerServer:
        config, machine = self._config, self._machine
        controller = ControllerServer(
            config,
            identities.cluster_id,
            quorum,
            self.publisher,
            partial(read_bootstrap_records, self._file_system, self._metadata_log_dir),
            machine.new_uuid,
            machine.steady_clock_ms,
            machine.wall_clock_ms,
            machine.random,
            peers.controller_pool(f"node-{config.node_id}-to-controller"),
            self._authorizer,
        )
        controller.registrar.endpoints = self._controller_endpoints(listeners)
        return controller

    def _dynamic_values(self) -> Mapping[str, str]:
        """Return the dynamic values of this node from the newest metadata."""
        return self.publisher.image.configs.dynamic_values(self._config.node_id)

    def _log_banner(
        self, identities: DirectoryIdentities, controller_listeners: Sequence[Listener]
    ) -> None:
        """Log the ports and directories of the node that now runs."""
        lines = [level_line(self.publisher.image)]
        if self.broker is not None:
            lines += listener_lines(self.broker.listeners, self.broker.advertised())
        lines += listener_lines(
            controller_listeners, self._controller_endpoints(controller_listeners)
        )
        lines += directory_lines(identities, self.broker, self._metadata_log_dir)
        for line in lines:
            log.info(line)

    async def _start_metrics(self, cluster_id: str) -> None:
        """Start the metrics before any long work, so that the start of the node can be watched."""
        address = self._config.optional_text(METRICS_LISTENER)
        if address is None:
            return
        # Import the library only if the metrics are served.
        from spindle.runtime.metrics.node_metrics import NodeMetrics, node_labels

        labels = node_labels(self._config, cluster_id)
        self.publisher.add(self._counts)
        metrics = NodeMetrics(labels, self._parts)
        ((host, port),) = parse_servers(METRICS_LISTENER, [address])
        access = metrics_access(self._config)
        tls = self.tls.add(METRICS_KEYS) if access.has_tls and self.tls is not None else None
        self.metrics_server = server = MetricsServer(
            host,
            port,
            metrics.pages,
            self.unready_reason,
            access=access,
            tls=tls.loaded.key.context if tls else None,
        )
        await server.start()
        if tls is not None:
            tls.on_renewed = lambda loaded: server.renew(loaded.key.context)
        scheme = "https" if tls else "http"
        log.info("metrics, health and readiness on %s://%s:%d", scheme, host, server.port)

    def _parts(self) -> NodeParts:
        controller = self.controller
        if self.broker is not None:
            self.broker.take_lane_counts()
        return NodeParts(
            requests=self.request_metrics,
            disks=self._directories,
            image=self.publisher.image,
            counts=self._counts,
            last_committed_offset=self.publisher.last_committed_offset,
            now_ms=self._machine.steady_clock_ms(),
            driver=controller.driver if controller and self._config.is_controller else None,
            snapshot=controller.last_snapshot if controller else None,
            quorum=self.quorum if self.quorum and self.quorum.is_started else None,
            broker=self.broker,
        )

    def _open_directories(self, identities: DirectoryIdentities) -> None:
        """Lock every directory and start its thread."""
        self._directories.open(self._metadata_log_dir, None, is_vital=True)
        for path in dict.fromkeys(self._log_dirs):
            if path != self._metadata_log_dir:
                self._directories.open(path, identities.offline.get(path), is_vital=False)
        if self._config.is_broker:
            self._directories.check_usable(self._log_dirs)

    def _share_open_files(self, directory_count: int) -> OpenFiles:
        limit, config = self._machine.open_files_limit(), self._config
        is_broker, is_controller = config.is_broker, config.is_controller
        return share_out(limit, directory_count, is_broker=is_broker, is_controller=is_controller)

    def _make_broker(
        self, identities: DirectoryIdentities, tls: TlsListeners, peers: PeerConnections
    ) -> BrokerServer:
        config = self._config
        directories = []
        for path in dict.fromkeys(self._log_dirs):
            store = DirectoryStore(self._file_system, path, self._open_files.by_directory)
            directory_id = identities.directory_ids.get(path, b"")
            thread = self._directories.thread(path)
            mount_point = self._file_system.mount_point(path)
            directories.append(LogDirectory(path, directory_id, thread, store, mount_point))
        quorum = self.quorum
        assert self.controller is not None
        assert quorum is not None
        environment = BrokerEnvironment(
            config=config,
            cluster_id=identities.cluster_id,
            directories=directories,
            directory_ports=DirectoryPorts(
                self._directories,
                self._file_system,
                self._metadata_log_dir,
                self._configured,
                self._changed_log_dirs,
                lambda count: self._share_open_files(count).by_directory,
            ),
            previous_broker_epoch=previous_broker_epoch(
                self._file_system, {p: self._directories.thread(p) for p in self._log_dirs}
            ),
            channel=self.controller.channel,
            kraft_version=lambda: quorum.kraft_version,
            authorizer=self._authorizer,
            peers=peers,
            now_ms=self._machine.wall_clock_ms,
            device_health=self._machine.device_health,
            native_lanes=self._machine.native_lanes,
            new_uuid=self._machine.new_uuid,
            random=self._machine.random,
            on_fatal=self.fail,
            listen=self._machine.listen,
            tls=tls,
            sasl_of=self._sasl_rules,
            max_descriptors=self._open_files.by_brokers_clients,
        )
        return BrokerServer(environment, self.request_metrics)

    async def _bind_controller_listeners(self, tls: TlsListeners) -> list[Listener]:
        """Bind the controller ports first: the quorum's messages name them."""
        listeners = [
            Listener(e.listener, e.host, e.port, {}, tls.security_of(e), self._sasl_rules(e))
            for e in self._config.controller_listeners
        ]
        buffers = SocketBuffers.of(self._config)
        for listener in listeners:
            await bind(listener, self._machine.listen, buffers)
        return listeners

    def _sasl_rules(self, endpoint: Endpoint) -> SaslRules | None:
        now_ms = self._machine.wall_clock_ms
        return sasl_rules(
            self._config,
            endpoint,
            lambda: self.publisher.image,
            now_ms,
            self._key_sets,
            self._unauthenticated,
        )

    def _controller_endpoints(self, bound: Sequence[Listener]) -> list[Endpoint]:
        return reachable(self._config.advertised_controller_listeners, bound)

    async def _unless_fatal(self, task: "asyncio.Task[None]") -> None:
        """Wait for the work, or for a fault of the node."""
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Nothing may run after the node has stopped.
            await end(task, stopped)
            raise
        await end(stopped)
        if task.done():
            task.result()
        await end(task)

    def _check_started(self, limit_s: float) -> None:
        """Stop the node if it has not become ready within the limit."""
        if not self._is_serving or self.publisher.last_committed_offset < 0:
            self.fail(f"not ready within server.max.startup.time.ms ({limit_s:g} s)")

    # -- life

    @property
    def is_active_controller(self) -> bool:
        return self.controller is not None and self.controller.driver.is_active

    def when_active(self, broker_ids: Collection[int], then: Callable[[], None]) -> None:
        """Call `then` once when all these brokers are unfenced in this node's metadata."""
        ActiveBrokersWatch(self.publisher, broker_ids, then)

    def fail(self, reason: str) -> None:
        """End the node because of a fault. It may be called more than once."""
        if self._fatal is None:
            self._fatal = reason
            log.critical("shutting down: %s", reason)
        self._stopped.set()

    def request_stop(self) -> None:
        self._stopped.set()

    @property
    def is_stopping(self) -> bool:
        """True if a stop was requested, or a fault requires one."""
        return self._stopped.is_set()

    def unready_reason(self) -> str | None:
        """Return None while clients can be served, else a short reason."""
        if self._fatal is not None:
            return self._fatal
        if self.is_stopping:
            return "stopping"
        if not self._is_serving:
            return "starting"
        if self.broker is None:
            return None if self.publisher.leader.leader_id >= 0 else "the quorum has no leader"
        own = self.publisher.image.cluster.brokers.get(self._config.node_id)
        return None if own is not None and own.is_active else "the broker is fenced"

    async def wait_stopped(self) -> str | None:
        """Return when the node should stop; the result is the fault that requires it, if any."""
        await self._stopped.wait()
        return self._fatal

    def _directory_failed(self, failure: LogDirectoryFailed) -> None:
        if failure.is_fault_of_process:
            self.fail(str(failure))
        elif failure.path == self._metadata_log_dir:
            self.fail(f"the metadata log directory failed: {failure}")
        else:
            self._directories.failed(failure)
            if self.broker is not None:
                self.broker.directory_failed(failure)

    # -- stop

    async def stop(self) -> None:
        """Stop in order and in limited time, even if the quorum is lost or a disk hangs."""
        if self._start_timer is not None:
            self._start_timer.cancel()
        self._directories.wait_at_most(_DISK_S)
        if self.broker is not None:
            is_faulty = self._fatal is not None
            limit_s = _FAREWELL_S if is_faulty else _SHUTDOWN_S
            await self._bounded(self.broker.stop(limit_s, must_leave_at_once=is_faulty))
        if self.before_quorum_stop is not None:
            await self._bounded(self.before_quorum_stop())
        # Close the listeners last: the next leader asks this node for its vote.
        if self.quorum is not None:
            await self._bounded(self.quorum.stop(_QUORUM_STOP_S))
        if self.controller is not None:
            await self._bounded(self.controller.stop())
        if self.tls is not None:
            await self._bounded(self.tls.stop())
        await self._bounded(self._key_sets.close())
        if self.metrics_server is not None:
            await self._bounded(self.metrics_server.stop())
        self._directories.close(_DISK_S)

    async def _bounded(self, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(_SHUTDOWN_S + _DISK_S):
                await work
        except TimeoutError:
            log.error("a part of the node did not stop in %.0f s", _SHUTDOWN_S + _DISK_S)
        except Exception:  # continue with the next part
            log.exception("a part of the node failed to stop")
