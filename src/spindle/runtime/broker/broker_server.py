"""One broker with all its parts: directories, replicas, coordinators, lifecycle, listeners."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from spindle.common.errors import LogDirectoryFailed
from spindle.common.ids import Endpoint
from spindle.common.uuids import Uuid
from spindle.config.broker_keys.spindle import (
    CLIENT_METRICS_MAX_SERIES,
    NATIVE_ENABLE,
    NATIVE_LANE_ENABLE,
)
from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.config.sasl_settings import check_dynamic_users
from spindle.disks.cordons import Cordon
from spindle.log.log_config import LogConfig
from spindle.metadata.cluster import directories_changed_in_epoch
from spindle.metadata.configs import BROKER_RESOURCE, TOPIC_RESOURCE
from spindle.metadata.features import DIRECTORY_ASSIGNMENT_LEVEL, SUPPORTED_FEATURES
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.metadata.local_changes import local_changes
from spindle.protocol.sentinels import NO_BROKER_EPOCH
from spindle.publication.loader import Publication
from spindle.replicas.partition import Partition, ReplicationContext
from spindle.replicas.replica_manager import ReplicaManager
from spindle.replicas.report_queues import IsrChanges, Reports
from spindle.replicas.topic_settings import TopicSettings
from spindle.replication.fetch_session import FetchSessionCache
from spindle.replication.leader_state import IsrProposal
from spindle.runtime import background
from spindle.runtime.backoff import Backoff
from spindle.runtime.broker.broker_metadata import BrokerMetadata
from spindle.runtime.broker.coordinators import Coordinators
from spindle.runtime.broker.cordon_controller import CordonController
from spindle.runtime.broker.directory_changes import BrokerParts, DirectoryChanges
from spindle.runtime.broker.directory_reports import DirectoryReports
from spindle.runtime.broker.environment import BrokerEnvironment
from spindle.runtime.broker.housekeeping import Housekeeping
from spindle.runtime.broker.lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    LifecycleTimes,
)
from spindle.runtime.broker.replica_fetchers import ReplicaFetchers
from spindle.runtime.broker.replica_mover import ReplicaMover
from spindle.runtime.broker.replica_rebuilder import ReplicaRebuilder
from spindle.runtime.broker.report_sender import ReportSender
from spindle.runtime.broker.topic_settings import SettingsOfTopics
from spindle.runtime.coordinator.transaction_verification import CoordinatorQuestions
from spindle.runtime.disks.capacity import DirectoryCapacities
from spindle.runtime.disks.directory_logs import close_logs, load_logs
from spindle.runtime.lanes.lanes import Lanes
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.listener import Listener, bind, reachable
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.server import RequestServer
from spindle.runtime.network.socket_buffers import SocketBuffers
from spindle.runtime.share.dead_letter_writer import DeadLetterWriter
from spindle.runtime.share.settings import delivery_config_of
from spindle.serving.encoded_topics import EncodedTopics
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.handler_table import broker_handlers
from spindle.serving.handlers.auto_topics import request_dead_letter_topic, request_topics
from spindle.serving.produce_order import ProduceOrder
from spindle.serving.producer_ids import ProducerIds
from spindle.serving.quotas.enforcement import ClientQuotas
from spindle.serving.quotas.replication import ReplicationQuotas
from spindle.serving.read_replicas import RACK_AWARE_SELECTOR
from spindle.serving.services import BrokerServices
from spindle.serving.telemetry.telemetry import Telemetry
from spindle.serving.topology import endpoint_of
from spindle.serving.traffic import Traffic
from spindle.serving.unsupported_feature_log import RefusalLog

log = logging.getLogger(__name__)

_LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""As in Kafka: a transaction that stays open this much longer than the longest timeout hangs."""
_INTERNAL_TOPIC_WAIT_S: Final = 5.0
_NEVER_S: Final = 86_400.0
_FOLLOW_AGAIN_S: Final = 5.0
"""Pause between the attempts of replicas that could not begin to follow."""


def _may_have_lanes(config: NodeConfig) -> bool:
    is_enabled = config.flag(NATIVE_ENABLE) and config.flag(NATIVE_LANE_ENABLE)
    return is_enabled and config.integer("queued.max.request.bytes") < 0


class IsrExpiration:
    """Calls `review_isrs` twice per `replica.lag.time.max.ms`."""

    def __init__(self, review_isrs: Callable[[], None], max_lag_ms: int) -> None:
        self._review_isrs = review_isrs
        self._period_s = max(max_lag_ms / 2000, 0.001)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = background.run_forever(self._turn, "ISR expiration")

    async def stop(self) -> None:
        await background.end(self._task)

    async def _turn(self) -> None:
        await asyncio.sleep(self._period_s)
        self._review_isrs()


class BrokerServer:
    """A broker from its start to its stop."""

    def __init__(self, environment: BrokerEnvironment, metrics: RequestMetrics) -> None:
        """Create the parts in the order of their dependencies.

        A `_make_` method uses only parts that exist already.
        """
        env = environment
        config = env.config
        self._env = env
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._settings = SettingsOfTopics(config)
        self._followed = EMPTY_IMAGE
        self._following: asyncio.Task[None] | None = None
        self._has_open_logs = False
        # Metadata, and the session with the controller.
        self.metadata = BrokerMetadata(self._react, env.on_fatal)
        self._producer_ids = ProducerIds(config.node_id, env.channel, self._loop)
        self.lifecycle = self._make_lifecycle()
        self.isr_changes = IsrChanges(config.node_id)
        self._isr_sender = self._report_sender("ISR changes", self.isr_changes, 50, 1_000)
        self.directory_reports = DirectoryReports(
            config.node_id,
            env.directories,
            self.metadata,
            self.lifecycle,
            self._report_sender,
            env.on_fatal,
        )
        # Replicas and their directories.
        self.replication_quotas = ReplicationQuotas(config, self._steady_ms)
        self.replica_fetchers = self._make_fetchers()
        self.replicas = self._make_replicas()
        self.directory_reports.on_acknowledged(self.replicas.assignment_acknowledged)
        max_lag_ms = config.integer("replica.lag.time.max.ms")
        self._isr_expiration = IsrExpiration(self.replicas.review_isrs, max_lag_ms)
        self.mover = self._make_mover()
        self.capacities = DirectoryCapacities()
        self.rebuilder = self._make_rebuilder()
        self.housekeeping = Housekeeping(self.replicas, config, env.now_ms)
        self.directory_changes = self._make_directory_changes()
        self._cordons = self._make_cordon_keeper()
        # Clients.
        self.verification = CoordinatorQuestions(config, self.metadata, env.peers.broker_pool)
        self.coordinators = self._make_coordinators()
        self.groups = self.coordinators.groups
        self.traffic = Traffic()
        self.quotas = ClientQuotas(
            config.integer("quota.window.num"),
            1000 * config.integer("quota.window.size.seconds"),
            self._steady_ms,
        )
        parts = 2 if _may_have_lanes(config) else 1  # lanes use the other half
        self.limits = RequestLimits.of(config, env.max_descriptors // parts)
        self.telemetry = self._make_telemetry()
        self.services = self._make_services()
        close_sessions = self.services.fetch_sessions.close_replica_sessions
        self.replicas.on_new_fetches_required = close_sessions
        self.listeners = self._make_listeners()
        self._servers = [
            RequestServer(listener, limits=self.limits, metrics=metrics, quotas=self.quotas)
            for listener in self.listeners
        ]
        self._lanes = self._make_lanes(metrics)

    def late_transactions_before_ms(self) -> int:
        """Return the time in ms; an open transaction whose last records are older is late."""
        timeout_ms = self._config.integer("transaction.max.timeout.ms")
        return self._env.now_ms() - timeout_ms - _LATE_TRANSACTION_BUFFER_MS

    def _steady_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _make_cordon_keeper(self) -> CordonController:
        env = self._env
        return CordonController(
            self._config,
            env.directories,
            self._cordon,
            partial(self.capacities.ask, env.directories),
            env.channel.request,
            env.now_ms,
            env.random.random,
        )

    def _make_replicas(self) -> ReplicaManager:
        env, config = self._env, self._config
        max_lag_ms = config.integer("replica.lag.time.max.ms")
        return ReplicaManager(
            ReplicationContext(
                config.node_id,
                self.metadata,
                self._steady_ms,
                max_lag_ms,
                self._propose,
            ),
            env.directories,
            self._settings_of,
            self.directory_reports.assign,
            self.replica_fetchers,
            env.now_ms,
            env.new_uuid,
            self.replica_fetchers.damages,
        )

    def _make_mover(self) -> ReplicaMover:
        env, metadata = self._env, self.metadata
        threads = self._config.optional_integer("num.replica.alter.log.dirs.threads")
        return ReplicaMover(
            self.replicas,
            self.replication_quotas.directories,
            threads or len(env.directories),
            lambda: metadata.newest.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL,
            env.now_ms,
        )

    def _make_rebuilder(self) -> ReplicaRebuilder:
        return ReplicaRebuilder(
            self.replicas,
            self.metadata,
            self.mover.alone,
            self.directory_reports.assign,
            self.directory_reports.is_queued,
            self._min_isr_of,
            self.capacities.ask,
            self._env.now_ms,
            self._env.new_uuid,
        )

    def _make_directory_changes(self) -> DirectoryChanges:
        env = self._env
        parts = BrokerParts(
            node_id=self._config.node_id,
            cluster_id=env.cluster_id,
            replicas=self.replicas,
            metadata=self.metadata,
            lifecycle=self.lifecycle,
            lock=self.mover.lock,
            lock_directory=self.mover.lock_directory,
            log_config_of=self._log_config_of,
            followed=self._followed_image,
            settle_moves=self.mover.settle,
            report_for_election=self.directory_reports.assign,
            on_changed=self._directories_changed,
            on_failed=self.directory_failed,
            now_ms=env.now_ms,
            new_uuid=env.new_uuid,
        )
        return DirectoryChanges(env.directory_ports, parts)

    def _make_fetchers(self) -> ReplicaFetchers:
        listener = self._config.inter_broker_listener_name
        metadata, lifecycle = self.metadata, self.lifecycle
        return ReplicaFetchers(
            self._config,
            self.replication_quotas.follower,
            lambda leader: endpoint_of(metadata.newest, leader, listener),
            self._env.peers.broker_links,
            lambda: lifecycle.broker_epoch,
            self._env.now_ms,
        )

    def _make_coordinators(self) -> Coordinators:
        env, config = self._env, self._config
        delivery_config = delivery_config_of(config, self.metadata)
        dead_letters = DeadLetterWriter(
            config,
            self.metadata,
            env.peers.broker_pool(f"broker-{config.node_id}-dead-letters"),
            lambda group_id: delivery_config(group_id).dead_letters,
            self._settings_of,
            self._create_dead_letter_topic,
            env.now_ms,
        )
        return Coordinators(
            env,
            self.replicas,
            self.metadata,
            self._producer_ids,
            self._ensure_internal_topic,
            dead_letters,
        )

    def _make_telemetry(self) -> Telemetry:
        return Telemetry(
            lambda: self.metadata.image.configs,
            self._steady_ms,
            self._env.new_uuid,
            self._config.integer("telemetry.max.bytes"),
            self._config.integer(CLIENT_METRICS_MAX_SERIES),
        )

    def _make_services(self) -> BrokerServices:
        env, config = self._env, self._config
        return BrokerServices(
            node_id=config.node_id,
            cluster_id=env.cluster_id,
            config=config,
            loop=self._loop,
            now_ms=env.now_ms,
            steady_ms=self._steady_ms,
            random=env.random,
            metadata=self.metadata,
            replicas=self.replicas,
            capacities=self.capacities.ask,
            device_health=env.device_health,
            alter_disks=self.directory_changes.change,
            move_replica=self.mover.alter,
            begin_rebuild=self.rebuilder.begin,
            cancel_rebuild=self.rebuilder.cancel,
            controller=env.channel,
            fetch_sessions=FetchSessionCache(
                config.integer("max.incremental.fetch.session.cache.slots"),
                lambda: env.random.randrange(1, 2**31),
            ),
            producer_ids=self._producer_ids,
            encoded_topics=EncodedTopics(),
            producer_turns=ProduceOrder(),
            groups=self.groups,
            verification=self.verification,
            transactions=self.coordinators.transactions,
            share=self.coordinators.share_partitions,
            share_groups=self.coordinators.share_groups,
            share_coordinator=self.coordinators.share_states,
            latest_offsets=self.coordinators.latest_offsets.ask,
            ensure_internal_topic=self._ensure_internal_topic,
            fetch_memory=FetchMemory(config.integer("fetch.max.bytes"), unsent=self.limits.unsent),
            replica_memory=FetchMemory(config.integer("fetch.max.bytes")),
            leader_throttle=self.replication_quotas.leader,
            move_throttle=self.replication_quotas.directories,
            is_rack_aware=config.optional_text("replica.selector.class") == RACK_AWARE_SELECTOR,
            quotas=self.quotas,
            authorizer=env.authorizer,
            traffic=self.traffic,
            refusals=RefusalLog(self._steady_ms),
            telemetry=self.telemetry,
            check_listeners=self._check_listeners,
        )

    async def _check_listeners(self, dynamic: Mapping[str, str]) -> None:
        check_dynamic_users(self._config, dynamic)
        await self._env.tls.check(dynamic)

    def _report_sender(
        self,
        what: str,
        reports: Reports,
        first_pause_ms: int,
        longest_pause_ms: int,
    ) -> ReportSender:
        lifecycle = self.lifecycle
        backoff = Backoff(first_pause_ms, longest_pause_ms, self._env.random.random)
        return ReportSender(
            what, reports, self._env.channel, lambda: lifecycle.broker_epoch, backoff
        )

    @property
    def connections_in_lanes(self) -> int:
        """The number of connections that native lanes serve now."""
        return 0 if self._lanes is None else self._lanes.connection_count

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that were received, on the event loop or by lanes, and not answered."""
        in_lanes = 0 if self._lanes is None else self._lanes.held_bytes
        return self.limits.held_bytes + in_lanes

    def take_lane_counts(self) -> None:
        """Count all that the native lanes have served until now."""
        if self._lanes is not None:
            self._lanes.take_counts()

    @property
    def state(self) -> BrokerState:
        return self.lifecycle.state

    # -- start and stop

    async def bind(self) -> None:
        """Bind the ports, so that registration can name them; accept no connections yet."""
        buffers = SocketBuffers.of(self._config)
        for listener in self.listeners:
            await bind(listener, self._env.listen, buffers)

    async def start(self) -> None:
        """Register, catch up, host the replicas, be unfenced, then open the listeners."""
        await self._load_logs()
        self.metadata.observe(self.lifecycle.metadata_advanced)
        self.directory_reports.start()
        self._isr_sender.start()
        self._isr_expiration.start()
        self._following = background.run_forever(self._follow_again, "followers")
        self.lifecycle.start()
        await self.lifecycle.caught_up
        self.metadata.stopped(self._config.node_id, self._env.previous_broker_epoch)
        self.metadata.start()
        await self.metadata.catch_up(_NEVER_S)
        await self._cordons.check_space()
        self.lifecycle.set_ready()
        await self.lifecycle.unfenced
        # Unfencing elects leaders: lead the partitions before the first client comes.
        await self.metadata.catch_up(_NEVER_S)
        self.housekeeping.start()
        self._cordons.start()
        await self._env.tls.renew(may_rename=True)
        if self._lanes is not None:
            self._lanes.start(self._env.directories)
        for server in self._servers:
            await server.open()

    async def stop(self, timeout_s: float, *, must_leave_at_once: bool = False) -> None:
        """Transfer leaderships, close the listeners, flush the logs and mark them as clean.

        Args:
            timeout_s: time for the controlled shutdown.
            must_leave_at_once: shut down after a fault: skip the controlled hand-over.
        """
        if self.lifecycle.state is BrokerState.NOT_RUNNING:
            # A stop while logs are loaded: loading has removed the clean-shutdown files.
            await self._close_logs()
            return
        if must_leave_at_once:
            await self.lifecycle.leave_at_once(timeout_s)
        elif self._config.flag("controlled.shutdown.enable"):
            await self.lifecycle.controlled_shutdown(timeout_s)
        await self.directory_changes.stop()
        if self._lanes is not None:
            await self._lanes.stop()
        for server in self._servers:
            await server.close()
        await self.housekeeping.stop()
        await self._cordons.stop()
        await self.rebuilder.stop()
        await self.mover.stop()
        await self.coordinators.close()
        await self.verification.stop()
        await self.directory_reports.stop()
        await self._isr_expiration.stop()
        await background.end(self._following)
        await self._isr_sender.stop()
        await self.metadata.stop()
        self.replica_fetchers.stop_all()
        await self.lifecycle.stop()
        await self._close_logs()

    def _make_lanes(self, metrics: RequestMetrics) -> Lanes | None:
        config = self._config
        if not _may_have_lanes(config):
            return None
        try:
            code = self._env.native_lanes()
        except ImportError as error:
            log.info("Produce and Fetch are served in Python: %s", error)
            return None
        lanes = Lanes(
            self.services,
            metrics,
            code,
            max_frame_bytes=config.integer("socket.request.max.bytes"),
            fetch_max_bytes=config.integer("fetch.max.bytes"),
            max_descriptors=self._env.max_descriptors // 2,
        )
        for server in self._servers:
            server.lanes = lanes
        log.info("Produce and Fetch of plain connections are served in native threads")
        return lanes

    def _make_listeners(self) -> list[Listener]:
        env = self._env
        handlers = broker_handlers(self.services, env.kraft_version)
        return [
            Listener(e.listener, e.host, e.port, handlers, env.tls.security_of(e), env.sasl_of(e))
            for e in self._config.broker_listeners
        ]

    def _make_lifecycle(self) -> BrokerLifecycle:
        env, config, metadata = self._env, self._config, self.metadata
        identity = BrokerIdentity(
            broker_id=config.node_id,
            cluster_id=env.cluster_id,
            incarnation_id=env.new_uuid(),
            endpoints=self.advertised,
            features=dict(SUPPORTED_FEATURES),
            rack=config.rack,
            directories=self._online_directory_ids,
            previous_broker_epoch=env.previous_broker_epoch,
        )
        return BrokerLifecycle(
            identity,
            LifecycleTimes.of(config),
            env.channel,
            lambda: metadata.offset,
            self._producer_ids.begin_epoch,
            env.on_fatal,
            env.random,
        )

    def advertised(self) -> list[Endpoint]:
        """Return the advertised listeners, with the bound port instead of port 0."""
        return reachable(self._config.advertised_listeners, self.listeners)

    def _online_directory_ids(self) -> list[Uuid]:
        return self.directory_changes.online_ids()

    def _followed_image(self) -> MetadataImage:
        return self._followed

    async def _load_logs(self) -> None:
        env = self._env
        self._has_open_logs = True
        loaded = await load_logs(env.directories, self._log_config_of, env.now_ms())
        for directory, logs in loaded:
            self.replicas.add_loaded(logs, directory)
            self.replicas.futures.add(directory)

    def _settings_of(self, topic: str) -> TopicSettings:
        return self._settings.of(self.metadata.newest, topic)

    def _min_isr_of(self, topic: str) -> int:
        return self._settings_of(topic).min_isr

    def _log_config_of(self, topic: str) -> LogConfig:
        return self._settings_of(topic).log_config

    async def _close_logs(self) -> None:
        if not self._has_open_logs:
            return
        self._has_open_logs = False
        epoch = self.lifecycle.broker_epoch
        if epoch == NO_BROKER_EPOCH:
            # Not registered in this run: the logs are as the previous run left them.
            epoch = self._env.previous_broker_epoch
        await close_logs(self._env.directories, epoch)

    # -- reactions

    async def _react(self, publication: Publication) -> None:
        """Apply the parts of a metadata delta that concern this broker."""
        delta = publication.delta
        self._cordons.follow(publication.image)
        for broker_id, trusted in directories_changed_in_epoch(delta.cluster):
            self.services.fetch_sessions.close_replica_sessions()
            for partition in self.replicas:
                partition.require_new_fetch(broker_id, trusted)
        self.lifecycle.registration_changed(delta.cluster.changed_brokers.get(self._config.node_id))
        changed = delta.configs.changed
        is_broker_changed = any(r.resource_type == BROKER_RESOURCE for r in changed)
        if is_broker_changed:
            self._settings.forget()
        async with self.mover.lock:
            await self.replicas.apply(local_changes(delta, self._config.node_id))
            # Before the next reaction, which may make a topic of the same name.
            await self.replicas.put_aside_strays()
            await self.mover.settle()
            self._followed = publication.image
        self.directory_changes.ask_for_leaders(delta.cluster)
        self.replicas.resume_waiting(all_is_done=publication.image is self.metadata.image)
        if delta.cluster.changed_brokers:
            self.replicas.review_isrs()
        if is_broker_changed:
            self._update_values(publication.image)
            self.replicas.refresh_settings(None)
        else:
            topics = [r.name for r in changed if r.resource_type == TOPIC_RESOURCE]
            if topics:
                self.replicas.refresh_settings(topics)
        if delta.features.is_changed:
            self.directory_reports.features_changed(publication.image)
        self.quotas.update(publication.image.client_quotas)
        if self._lanes is not None:
            self._lanes.review_permissions()
        if delta.topics.deleted:
            gone = [(topic_id, topic.name) for topic_id, topic in delta.topics.deleted.items()]
            self.coordinators.on_topics_deleted(gone)
            self.traffic.forget(name for _, name in gone)

    async def _follow_again(self) -> None:
        await asyncio.sleep(_FOLLOW_AGAIN_S)
        async with self.mover.lock:
            await self.replicas.follow_again()

    def _directories_changed(self) -> None:
        """Work in the directories that the broker has now."""
        self.services.config = self._config.with_log_dirs(d.path for d in self._env.directories)
        self.housekeeping.follow_directories()
        if self._lanes is not None and self.lifecycle.state is BrokerState.RUNNING:
            self._lanes.follow(self._env.directories)
        self._cordons.directories_changed(self._followed)

    def _update_values(self, image: MetadataImage) -> None:
        """Apply the broker's own settings that can change while it runs."""
        values = BrokerValues(
            self._config,
            image.configs.broker(self._config.node_id),
            image.configs.default_broker(),
        )
        self.replication_quotas.update(values)
        self.replica_fetchers.resize(values.integer("num.replica.fetchers"))
        self.housekeeping.update(values)
        self._cordons.update(values)
        self.limits.update(values)
        self.groups.update(values)

    def _cordon(self, cordons: Mapping[str, Sequence[Cordon]]) -> None:
        self.replicas.cordon(cordons)
        ids = {directory.path: directory.directory_id for directory in self._env.directories}
        # A directory that could not be read at the start has no id to report.
        self.lifecycle.set_cordoned([ids[path] for path in cordons if ids[path]])

    def _propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self.isr_changes.add(partition, proposal)
        self._isr_sender.wake()

    async def _ensure_internal_topic(self, name: str) -> None:
        await request_topics(self.services, None, [name])
        await self.metadata.wait_for(
            lambda image: name in image.topics.by_name, _INTERNAL_TOPIC_WAIT_S
        )

    async def _create_dead_letter_topic(self, name: str) -> None:
        await request_dead_letter_topic(self.services, name)
        await self.metadata.wait_for(
            lambda image: name in image.topics.by_name, _INTERNAL_TOPIC_WAIT_S
        )

    def directory_failed(self, failure: LogDirectoryFailed) -> None:
        """Fail the requests that wait for a failed directory, and report it to the controller."""
        directory = self.replicas.directory_at(failure.path)
        if directory is None or directory.executor.failure is not failure:
            return  # it is not in use: a command gets the failure
        log.error("Stopping serving logs in dir %s: %s", failure.path, failure.cause)
        self.replicas.on_directory_failed(directory)
        if self._lanes is not None:
            self._lanes.directory_failed(directory)
        directory.executor.run_after_failure(directory.store.close_without_flush)
        self.directory_reports.directory_failed(directory)
