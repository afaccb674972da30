"""One node: a broker, a controller or both, from its configuration to its orderly stop."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from spindle.common.errors import ConfigError, LogDirectoryFailed
from spindle.common.ids import Endpoint
from spindle.config.broker_keys.spindle import HANG_TIMEOUT, METRICS_LISTENER
from spindle.config.endpoints import parse_servers
from spindle.config.node_config import NodeConfig
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.executor import DirectoryExecutor
from spindle.disks.identity import DirectoryIdentities, identify_directories
from spindle.disks.log_directory import LogDirectory
from spindle.publication.image_publisher import ActiveBrokersWatch, ImagePublisher
from spindle.runtime.banner import directory_lines, identity_lines, level_line, listener_lines
from spindle.runtime.broker.broker_server import BrokerEnvironment, BrokerServer
from spindle.runtime.controller.controller_server import ControllerServer
from spindle.runtime.disks.directory_logs import previous_broker_epoch
from spindle.runtime.disks.open_files import OpenFiles, scarcity, share_out
from spindle.runtime.machine import LocalMachine, Lock, Machine
from spindle.runtime.metrics.http_server import MetricsServer
from spindle.runtime.metrics.metadata_counts import MetadataCounts
from spindle.runtime.metrics.parts import NodeParts
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.listener import Listener, bind, reachable
from spindle.runtime.peers.pool import PeerPool
from spindle.runtime.quorum.factory import open_quorum, read_bootstrap_records
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum

log = logging.getLogger(__name__)

_SHUTDOWN_S: Final = 30.0
"""Time for a broker to transfer the leadership of its partitions."""
_FAREWELL_S: Final = 1.0
"""Time for a broker that a fault ends to tell the controller, which then waits for no session."""
_DISK_S: Final = 10.0
"""Time for a directory's thread to finish its work; a thread that hangs longer is abandoned."""
_QUORUM_STOP_S: Final = 5.0
"""Time for a leader of the quorum to wait for its successor."""


class Node:
    """The parts of one process. Made and used on its event loop.

    Attributes:
        before_leaving: awaited, for a limited time, when the broker has stopped and the quorum
            still has the node: other brokers may need the quorum for their own stop.
    """

    def __init__(self, config: NodeConfig, machine: Machine | None = None) -> None:
        self._config = config
        self._machine = machine or LocalMachine()
        # From here on, directories are named by their absolute paths, as in Kafka.
        self._log_dirs = [os.path.abspath(path) for path in config.log_dirs]
        self._metadata_log_dir = os.path.abspath(config.metadata_log_dir)
        self._file_system = self._machine.file_system(
            list(dict.fromkeys((self._metadata_log_dir, *self._log_dirs)))
        )
        self._metrics = RequestMetrics()
        self._open_files = OpenFiles(0, 0, 0, 0)
        self._threads: dict[str, DirectoryExecutor] = {}
        self._locks: dict[str, Lock] = {}
        self._stopped = asyncio.Event()
        self._fatal: str | None = None
        self._is_serving = False
        self.before_leaving: Callable[[], Awaitable[None]] | None = None
        self.metrics_server: MetricsServer | None = None
        self.publisher = ImagePublisher()
        self._counts = MetadataCounts()
        self.quorum: RaftMetadataQuorum | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None

    # -- start

    async def start(self) -> None:
        """Return when the node serves.

        Raises:
            ConfigError: the node must not start; the text says why and what to do.
            CorruptLog: the metadata log or quorum state cannot be read.
            LogDirectoryFailed: the metadata directory fails.
            MisplacedDirectory: a log directory holds what does not belong there.
        """
        config, machine = self._config, self._machine
        self._open_files = share_out(
            machine.open_files_limit(),
            len(dict.fromkeys(self._log_dirs)),
            is_broker=config.is_broker,
            is_controller=config.is_controller,
        )
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
        warning = scarcity(self._open_files)
        if warning is not None:
            log.warning(warning)
        self._open_directories(identities)
        await self._start_metrics(identities.cluster_id)
        controller_listeners = await self._bind_controller_listeners()
        self.quorum = await self._open_quorum(identities, controller_listeners)
        self.controller = self._make_controller(identities, controller_listeners, self.quorum)
        if config.is_broker:
            self.broker = self._make_broker(identities)
            await self.broker.bind()
            self.publisher.add(self.broker.metadata)
        self.controller.start()
        await self.quorum.start()
        self.quorum.subscribe(self.publisher)
        await self.controller.serve(
            controller_listeners, self._metrics, self._open_files.by_controllers_clients
        )
        if self.broker is not None:
            await self._unless_fatal(asyncio.ensure_future(self.broker.start()))
        self._is_serving = True
        self._log_banner(identities, controller_listeners)

    async def _open_quorum(
        self, identities: DirectoryIdentities, listeners: Sequence[Listener]
    ) -> RaftMetadataQuorum:
        return await open_quorum(
            self._config,
            metadata_log_dir=self._metadata_log_dir,
            cluster_id=identities.cluster_id,
            directory_id=identities.directory_ids[self._metadata_log_dir],
            endpoints=self._controller_endpoints(listeners),
            file_system=self._file_system,
            thread=self._threads[self._metadata_log_dir],
            random=self._machine.random,
            clock=self._machine.steady_clock_ms,
            on_fault=lambda fault: self.fail(f"metadata quorum: {fault}"),
        )

    def _make_controller(
        self,
        identities: DirectoryIdentities,
        listeners: Sequence[Listener],
        quorum: RaftMetadataQuorum,
    ) -> ControllerServer:
        config, machine = self._config, self._machine
        controller = ControllerServer(
            config,
            identities.cluster_id,
            quorum,
            self.publisher,
            read_bootstrap_records(self._file_system, self._metadata_log_dir),
            machine.new_uuid,
            machine.steady_clock_ms,
            machine.random,
            self._connect(f"node-{config.node_id}-to-controller"),
        )
        controller.registrar.endpoints = self._controller_endpoints(listeners)
        return controller

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
        self.metrics_server = MetricsServer(host, port, metrics.pages, self.why_not_ready)
        await self.metrics_server.start()
        log.info("metrics, health and readiness on http://%s:%d", host, self.metrics_server.port)

    def _parts(self) -> NodeParts:
        controller = self.controller
        return NodeParts(
            requests=self._metrics,
            disks=self._threads.values(),
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
        """Lock every directory and give it its thread."""
        for path in dict.fromkeys((self._metadata_log_dir, *self._log_dirs)):
            thread = self._machine.open_directory(
                path, self._directory_failed, self._config.integer(HANG_TIMEOUT) / 1000
            )
            self._threads[path] = thread
            if path in identities.offline:
                log.error("log directory %s is offline: %s", path, identities.offline[path])
                thread.fail(identities.offline[path])
                continue
            try:
                self._locks[path] = self._machine.lock_directory(path)
            except OSError as error:
                if path == self._metadata_log_dir:
                    raise ConfigError(
                        f"the metadata log directory {path} fails: {error}"
                    ) from error
                log.error("log directory %s is offline: %s", path, error)
                thread.fail(error)
        failures = [self._threads[path].failure for path in dict.fromkeys(self._log_dirs)]
        if self._config.is_broker and None not in failures:
            reasons = "; ".join(map(str, failures))
            raise ConfigError(f"none of the log directories can be used: {reasons}")

    def _connect(self, client_id: str) -> PeerPool:
        """Return a pool of connections to other nodes."""
        return PeerPool(client_id, self._config.integer("controller.socket.timeout.ms") / 1000)

    def _make_broker(self, identities: DirectoryIdentities) -> BrokerServer:
        config = self._config
        directories = []
        for path in dict.fromkeys(self._log_dirs):
            store = DirectoryStore(self._file_system, path, self._open_files.by_directory)
            directory_id = identities.directory_ids.get(path, b"")
            directories.append(LogDirectory(path, directory_id, self._threads[path], store))
        quorum = self.quorum
        assert self.controller is not None
        assert quorum is not None
        environment = BrokerEnvironment(
            config=config,
            cluster_id=identities.cluster_id,
            directories=directories,
            previous_broker_epoch=previous_broker_epoch(
                self._file_system, {path: self._threads[path] for path in self._log_dirs}
            ),
            channel=self.controller.channel,
            kraft_version=lambda: quorum.kraft_version,
            connect=self._connect,
            now_ms=self._machine.wall_clock_ms,
            new_uuid=self._machine.new_uuid,
            random=self._machine.random,
            on_fatal=self.fail,
            listen=self._machine.listen,
            most_descriptors=self._open_files.by_brokers_clients,
        )
        return BrokerServer(environment, self._metrics)

    async def _bind_controller_listeners(self) -> list[Listener]:
        """Take the controller ports first: the quorum must be able to name them."""
        listeners = [
            Listener(e.listener, e.host, e.port, {}) for e in self._config.controller_listeners
        ]
        for listener in listeners:
            await bind(listener, self._machine.listen)
        return listeners

    def _controller_endpoints(self, bound: Sequence[Listener]) -> list[Endpoint]:
        return reachable(self._config.advertised_controller_listeners, bound)

    async def _unless_fatal(self, task: "asyncio.Future[None]") -> None:
        """Wait for the work, or for a fault that makes it useless."""
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if task.done():
            task.result()
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

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

    def why_not_ready(self) -> str | None:
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
        elif self.broker is not None:
            self.broker.directory_failed(failure)

    # -- stop

    async def stop(self) -> None:
        """Stop in order and in limited time, even if the quorum is lost or a disk hangs."""
        for thread in self._threads.values():
            thread.wait_at_most(_DISK_S)
        if self.broker is not None:
            is_faulty = self._fatal is not None
            limit_s = _FAREWELL_S if is_faulty else _SHUTDOWN_S
            await self._bounded(self.broker.stop(limit_s, must_leave_at_once=is_faulty))
        if self.before_leaving is not None:
            await self._bounded(self.before_leaving())
        # Close the listeners last: the next leader asks this node for its vote.
        if self.quorum is not None:
            await self._bounded(self.quorum.stop(_QUORUM_STOP_S))
        if self.controller is not None:
            await self._bounded(self.controller.stop())
        if self.metrics_server is not None:
            await self._bounded(self.metrics_server.stop())
        for path, thread in self._threads.items():
            if not thread.stop(_DISK_S):
                log.error("log directory %s hangs; its thread is left behind", path)
                # The lock file is on that disk; the lock also ends with the process.
                self._locks.pop(path, None)
        for lock in self._locks.values():
            try:
                lock.release()
            except OSError as error:
                log.warning("lock file: %s", error)

    async def _bounded(self, work: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(work, _SHUTDOWN_S + _DISK_S)
        except TimeoutError:
            log.error("a part of the node did not stop in %.0f s", _SHUTDOWN_S + _DISK_S)
        except Exception:  # go on with the next part
            log.exception("a part of the node did not stop in order")
