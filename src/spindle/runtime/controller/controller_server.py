"""The controller side of a node: the driver, snapshots of the image, the controller listeners.

A broker without the controller role has no controller listener; there this class only passes
requests on to the local member of the quorum.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from spindle.authorization.access import Access
from spindle.authorization.authorizer import Authorizer
from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed, ProtocolViolation
from spindle.common.log_throttle import LogThrottle
from spindle.common.uuids import Uuid
from spindle.config.authorizer import early_start_listeners
from spindle.config.controller_config_rules import ControllerConfigRules
from spindle.config.node_config import NodeConfig
from spindle.controller.access_checks import check_request
from spindle.controller.decision import ControllerContext, ControllerSettings, TokenSettings
from spindle.controller.error_responses import error_answer
from spindle.controller.operations import OPERATIONS
from spindle.protocol.api import APIS, ApiKey
from spindle.protocol.message import Message
from spindle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from spindle.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.publication.loader import Publication
from spindle.publication.publishers import ImagePublisher, MetadataPublisher
from spindle.publication.snapshot_generator import SnapshotGenerator, SnapshotWork
from spindle.runtime import background
from spindle.runtime.controller.channel import ActiveControllerChannel
from spindle.runtime.controller.cluster_log import ClusterLog
from spindle.runtime.controller.driver import ControllerDriver
from spindle.runtime.controller.mutation_quotas import MutationQuotas
from spindle.runtime.controller.registrar import ControllerRegistrar
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.large_requests import max_elements
from spindle.runtime.network.listener import Listener
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.server import RequestServer
from spindle.runtime.peers.port import Peers
from spindle.runtime.quorum.metadata_quorum import QUORUM_APIS, RaftMetadataQuorum
from spindle.serving.context import Handler, RequestContext
from spindle.serving.forwarding import open_request, seal_response
from spindle.serving.handlers.alter_configs import alter_own_first, change_own_loggers
from spindle.serving.handlers.api_versions import answer_of_listener
from spindle.serving.handlers.describe_cluster import CONTROLLERS, endpoint_type_error
from spindle.serving.handlers.describe_configs import describe_configs
from spindle.serving.handlers.describe_security import (
    describe_acls,
    describe_user_scram_credentials,
)
from spindle.serving.handlers.sasl import sasl_authenticate, sasl_handshake

log = logging.getLogger(__name__)

_FORWARDED: Final = frozenset((*OPERATIONS, *QUORUM_APIS))


class _DescribedController(NamedTuple):
    """The parts of a node that DescribeCluster and DescribeQuorum need."""

    node_id: int
    config: NodeConfig
    metadata: ImagePublisher
    authorizer: Authorizer


class WrittenSnapshot(NamedTuple):
    """A snapshot of the metadata, and the time of its completion."""

    size_bytes: int
    written_ms: int


class ControllerServer(MetadataPublisher):
    """The controller side of one node.

    Attributes:
        channel: the channel to the active controller, in this process or another.
        registrar: registers this controller.
        last_snapshot: the newest snapshot that this process has written.
    """

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        quorum: RaftMetadataQuorum,
        publisher: ImagePublisher,
        bootstrap: Callable[[], Sequence[Message]],
        new_uuid: Callable[[], Uuid],
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        random: Random,
        peers: Peers,
        authorizer: Authorizer,
    ) -> None:
        self.channel = ActiveControllerChannel(
            config.node_id,
            self,
            lambda: quorum.leader_endpoint,
            quorum.peers_after_fault,
            peers,
            config.integer("request.timeout.ms") / 1000,
        )
        self.last_snapshot: WrittenSnapshot | None = None
        self._config = config
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._publisher = publisher
        self._random = random
        self._authorizer = authorizer
        self._clock = clock
        self._refused_envelopes = LogThrottle(clock)
        self.registrar = ControllerRegistrar(
            config.node_id, new_uuid(), publisher, self.channel.request
        )
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._servers: list[RequestServer] = []
        self._is_started = False
        context = ControllerContext(
            _settings(config, cluster_id), ControllerConfigRules(config), new_uuid, random
        )
        quotas = MutationQuotas(
            config.integer("controller.quota.window.num"),
            1000 * config.integer("controller.quota.window.size.seconds"),
        )
        self.driver = ControllerDriver(
            quorum,
            publisher,
            context,
            bootstrap=bootstrap,
            clock=clock,
            wall_clock=wall_clock,
            authorizer=authorizer,
            quotas=quotas,
        )
        self._snapshots = SnapshotGenerator(
            max_bytes=config.integer("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=config.integer("metadata.log.max.snapshot.interval.ms"),
            now_ms=clock(),
        )

    # -- life

    def start(self) -> None:
        """Follow the quorum; call it before the quorum starts, so that no event is missed."""
        self._is_started = True
        self._publisher.add(self)
        if self._config.is_controller:
            self.driver.start()
            self._publisher.add(ClusterLog(lambda: self.driver.is_active))
        # Subscribe after the driver, so that a request that waits for a leader finds the local
        # controller active.
        self._publisher.add(self.channel)
        if self._config.is_controller:
            self._publisher.add(self.registrar)

    async def serve(
        self,
        listeners: Sequence[Listener],
        metrics: RequestMetrics,
        max_descriptors: int,
        acls_loaded: asyncio.Event,
    ) -> None:
        """Open the controller listeners, which are already bound.

        A listener that is not among `early.start.listeners` is opened when the ACLs are loaded.
        """
        early = early_start_listeners(self._config)
        limits = RequestLimits.of(self._config, max_descriptors)
        handlers = self._handlers()
        for listener in listeners:
            listener.handlers = handlers
            server = RequestServer(
                listener,
                limits=limits,
                metrics=metrics,
            )
            self._servers.append(server)
            if listener.name in early:
                await server.open()
            else:
                self._run(_open_when(acls_loaded, server), "opening a listener")

    async def stop(self) -> None:
        for server in self._servers:
            await server.close()
        self.channel.close()
        await self.registrar.close()
        await background.end(*self._tasks)
        if self._is_started and self._config.is_controller:
            self.driver.stop()

    # -- requests

    def request(self, message: Message, context: RequestContext | None = None) -> Awaitable[Any]:
        """Serve a request for the active controller or for the quorum's leader.

        Without a context, the request comes from this process.

        Raises:
            ApiError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if context is not None:
            self._check(message.API_KEY, context)
        if message.API_KEY in QUORUM_APIS:
            return self._quorum.handle(message)
        return self.driver.handle(message, context)

    def _check(self, api_key: int, context: RequestContext) -> None:
        if self._authorizer.is_active:
            check_request(
                Access(self._authorizer, context.principal, context.client_address, api_key)
            )

    async def _answer(self, context: RequestContext, request: Message) -> Message:
        try:
            response: Message = await self.request(request, context)
        except ApiError as error:
            is_refused = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if context.api_key in QUORUM_APIS and not is_refused:
                # The node leaves the quorum, and the quorum's protocol has no error for that;
                # cancelling the request closes the connection.
                raise asyncio.CancelledError from error
            return error_answer(request, error)
        return response

    async def _alter_configs(
        self,
        node: _DescribedController,
        context: RequestContext,
        request: IncrementalAlterConfigsRequest,
    ) -> Message:
        """Change levels of loggers in this process (KIP-412); forward the other changes."""
        try:
            response: Message = await alter_own_first(
                context,
                request,
                partial(change_own_loggers, node, context, validate_only=request.validate_only),
                self.request,
            )
        except ApiError as error:
            return error_answer(request, error)
        return response

    async def _answer_envelope(
        self, context: RequestContext, envelope: EnvelopeRequest
    ) -> EnvelopeResponse:
        """Answer a client's request that a broker has forwarded, with the rights of the client."""
        try:
            self._check(ApiKey.ENVELOPE, context)
            request, client = open_request(envelope, _FORWARDED.__contains__, max_elements)
        except (ApiError, ProtocolViolation) as error:
            if self._refused_envelopes.allow((context.client_address, str(error))):
                log.warning("refusing an envelope from %s: %s", context.client_address, error)
            code = error.code if isinstance(error, ApiError) else ErrorCode.INVALID_REQUEST
            return EnvelopeResponse(error_code=code)
        try:
            response = await self.request(request, client)
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                return EnvelopeResponse(error_code=error.code)
            response = error_answer(request, error)
        return seal_response(response, client)

    def _handlers(self) -> dict[int, Handler]:
        served = (key for key in (*OPERATIONS, *QUORUM_APIS) if APIS[key].on_controller)
        handlers: dict[int, Handler] = dict.fromkeys(served, self._answer)
        node = _DescribedController(
            self._config.node_id, self._config, self._publisher, self._authorizer
        )
        handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = partial(self._alter_configs, node)
        handlers[ApiKey.DESCRIBE_ACLS] = partial(describe_acls, node)
        handlers[ApiKey.DESCRIBE_CONFIGS] = partial(describe_configs, node)
        handlers[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS] = partial(
            describe_user_scram_credentials, node
        )
        handlers[ApiKey.DESCRIBE_CLUSTER] = self._describe_cluster
        handlers[ApiKey.ENVELOPE] = self._answer_envelope
        handlers[ApiKey.SASL_HANDSHAKE] = sasl_handshake
        handlers[ApiKey.SASL_AUTHENTICATE] = sasl_authenticate
        handlers[ApiKey.API_VERSIONS] = answer_of_listener(
            handlers, lambda: self._publisher.image, lambda: self._quorum.kraft_version
        )
        return handlers

    def _describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Return the controllers, with the endpoints that this listener's clients can reach
        (KIP-919)."""
        try:
            self._check(context.api_key, context)
        except ApiError as error:
            return DescribeClusterResponse(error_code=error.code, error_message=error.message)
        refusal = endpoint_type_error(request.endpoint_type, CONTROLLERS)
        if refusal is not None:
            return refusal
        controllers = self._publisher.image.cluster.controllers
        rows = [
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=controller_id, host=endpoint.host, port=endpoint.port
            )
            for controller_id, controller in sorted(controllers.items())
            for endpoint in controller.endpoints
            if endpoint.listener == context.listener
        ]
        return DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=self._cluster_id,
            controller_id=self._quorum.leader_id,
            brokers=rows,
        )

    # -- consumer of the image publisher

    def on_publication(self, publication: Publication) -> None:
        work = self._snapshots.on_publication(publication, self._clock())
        if work is not None:
            self._run(self._write_snapshot(work), "metadata snapshot")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = background.run_once(work, name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _write_snapshot(self, work: SnapshotWork) -> None:
        try:
            size_bytes = await self._quorum.write_snapshot(
                work.snapshot_id, work.values(), work.last_append_time_ms
            )
            self.last_snapshot = WrittenSnapshot(size_bytes, self._clock())
        except (ValueError, LogDirectoryFailed) as error:
            log.warning("snapshot %s was not written: %s", work.snapshot_id, error)


async def _open_when(acls_loaded: asyncio.Event, server: RequestServer) -> None:
    await acls_loaded.wait()
    await server.open()


def _settings(config: NodeConfig, cluster_id: str) -> ControllerSettings:
    integer = config.integer
    return ControllerSettings(
        node_id=config.node_id,
        cluster_id=cluster_id,
        default_replication_factor=integer("default.replication.factor"),
        num_partitions=integer("num.partitions"),
        min_insync_replicas=integer("min.insync.replicas"),
        unclean_leader_election_enable=config.flag("unclean.leader.election.enable"),
        broker_session_timeout_ms=integer("broker.session.timeout.ms"),
        max_idle_interval_ms=integer("metadata.max.idle.interval.ms"),
        auto_leader_rebalance_enable=config.flag("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval_ms=1000
        * integer("leader.imbalance.check.interval.seconds"),
        unclean_leader_election_interval_ms=integer("unclean.leader.election.interval.ms"),
        delete_topic_enable=config.flag("delete.topic.enable"),
        delegation_tokens=_token_settings(config),
        has_authorizer=bool(config.text("authorizer.class.name")),
        controller_listener_names=config.controller_listener_names,
        static_voter_ids=tuple(voter.node_id for voter in config.quorum_voters),
    )


def _token_settings(config: NodeConfig) -> TokenSettings | None:
    secret = config.delegation_token_secret
    if secret is None:
        return None
    return TokenSettings(
        secret=secret,
        max_lifetime_ms=config.integer("delegation.token.max.lifetime.ms"),
        expiry_time_ms=config.integer("delegation.token.expiry.time.ms"),
        expiry_check_interval_ms=config.integer("delegation.token.expiry.check.interval.ms"),
    )
